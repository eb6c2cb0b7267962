// run: joins the job, runs a function, and turns its result or exception into an exit code.
#pragma once

#include <exception>
#include <type_traits>
#include <utility>

#include <parx/comm/abort_reason.hpp>
#include <parx/core/call_context.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/core/stopped.hpp>
#include <parx/launch/init.hpp>

namespace parx::inline PARX_ABI {

/// Joins the job, calls body(world&) and returns the process's exit code: 0; 2 after a usage_error;
/// 75 (stopped_exit_code) after a stopped_by_signal, which all ranks throw together; 1 after any
/// other exception, and where the ranks' last calls did not match. The text of the exception, with
/// its causes, is printed to standard error, with blame_tag() where another rank is the cause, and
/// sent to the other ranks as the reason why their operations end.
template <typename Body>
[[nodiscard]] int run(Body&& body, init_options options = {}, call_site = call_site::current()) {
  static_assert(std::is_invocable_v<Body, world&>,
                "run calls its function with the world by reference: "
                "parx::run([](parx::world& world) { ... })");
  const auto report = [] {  // of the exception that is being handled
    try {
      throw;
    } catch (const usage_error& wrong) {
      logger::instance().write(log_level::error, with_last_call(wrong.what()));
      return 2;
    } catch (const error& failure) {
      const failure_record record = record_of(std::current_exception(), logger::instance().rank());
      logger::instance().write(log_level::error, with_last_call(failure), blame_tag(record));
      return 1;
    } catch (...) {
      logger::instance().write(log_level::error, text_of(std::current_exception()));
      return 1;
    }
  };
  try {
    world job = init(std::move(options));
    try {
      // The condition avoids a second compiler error after the static_assert.
      if constexpr (std::is_invocable_v<Body, world&>) std::forward<Body>(body)(job);
      return job.all_calls_read() ? 0 : 1;
    } catch (const stopped_by_signal&) {
      return stopped_exit_code;
    } catch (...) {
      if (!job.closed() || job.awaits_reason() || job.goes_on()) {
        job.abort(abort_reason(job));
      }
      return report();
    }
  } catch (...) {
    return report();
  }
}

}  // namespace parx
