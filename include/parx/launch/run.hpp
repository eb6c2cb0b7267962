// run: the body of main() for a rank that should end well or say why not.
#pragma once

#include <cstdio>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <parx/launch/init.hpp>

namespace parx {

/// Joins the job, calls body(world&) and returns the process's exit code: 0, 2 after a usage_error, 1
/// after any other exception. An exception's text is printed to standard error and given to the other
/// ranks as the reason why their operations end.
template <typename Body>
[[nodiscard]] int run(Body&& body, init_options options = {}) {
  const auto report = [](const char* text) {
    logger::instance().write(log_level::error, text);
  };
  try {
    world job = init(std::move(options));
    try {
      std::forward<Body>(body)(job);
      return 0;
    } catch (const std::exception& failure) {
      if (!job.closed()) job.abort(fmt::format("rank {}: {}", job.rank(), failure.what()));
      report(failure.what());
      return dynamic_cast<const usage_error*>(&failure) != nullptr ? 2 : 1;
    }
  } catch (const std::exception& failure) {
    report(failure.what());
    return dynamic_cast<const usage_error*>(&failure) != nullptr ? 2 : 1;
  }
}

}  // namespace parx
