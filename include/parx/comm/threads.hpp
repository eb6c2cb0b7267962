// run_threads: a job whose ranks are threads of this process, over the inproc network.
//
// For tests, teaching and sandboxes: the same code as with processes, without a launcher.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <parx/comm/abort_reason.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/transport/inproc.hpp>

namespace parx::inline PARX_ABI {

struct threads_options {
  inproc_options network;
  group_options group;
};

namespace detail {

/// Whether the exception only reports that another rank failed.
[[nodiscard]] inline bool tells_of_another(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const error& known) {
    const errc code = known.code_value();
    return code == errc::aborted || code == errc::closed || code == errc::peer_lost;
  } catch (...) {
    return false;
  }
}

}  // namespace detail

/// Calls body(process_group&) on `ranks` threads and joins them. If a body throws, the job is
/// aborted with its reason and the exception is rethrown here: of several, the first that does not
/// merely report another rank's failure.
template <typename Body>
void run_threads(int ranks, Body&& body, threads_options options = {}) {
  const auto network = std::make_shared<inproc_network>(ranks, options.network);
  std::mutex mutex;
  std::vector<std::exception_ptr> failures;  // in order of time
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      process_group group(network->attach(rank), "world", options.group);
      try {
        body(group);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          failures.push_back(std::current_exception());
        }
        group.abort(abort_reason(group));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  if (failures.empty()) return;
  const auto cause = std::find_if_not(failures.begin(), failures.end(), detail::tells_of_another);
  std::rethrow_exception(cause != failures.end() ? *cause : failures.front());
}

}  // namespace parx
