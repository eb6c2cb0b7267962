// run_threads: a job whose ranks are threads of this process, over the inproc transport.
//
// For tests, teaching and sandboxes: the same program text as with processes, nothing to launch.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/transport/inproc.hpp>

namespace parx {

struct threads_options {
  inproc_options network;
  group_options group;
};

/// Calls body(process_group&) on `ranks` threads and joins them. When bodies throw, the job is aborted
/// with the first one's reason, and that exception is thrown here.
template <typename Body>
void run_threads(int ranks, Body&& body, threads_options options = {}) {
  const auto network = std::make_shared<inproc_network>(ranks, options.network);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      process_group group(network->attach(rank), "world", options.group);
      try {
        body(group);
      } catch (const std::exception& failure) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        group.abort(fmt::format("rank {}: {}", rank, failure.what()));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace parx
