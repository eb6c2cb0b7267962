// init: joins the job that this process was started in.
//
// The same program runs under srun, torchrun, mpirun and parxrun, with RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT set by hand, or alone as a world of one.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string_view>

#include <parx/comm/process_group.hpp>
#include <parx/core/compiled_for.hpp>
#include <parx/core/env.hpp>
#include <parx/core/own_process.hpp>
#include <parx/launch/launch_env.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

class rendezvous;

struct init_options {
  group_options group;
  /// How long to wait for all ranks. PARX_RENDEZVOUS_TIMEOUT (seconds) overrides it.
  std::chrono::milliseconds rendezvous_timeout = std::chrono::minutes(5);
  environment env = process_environment();
  /// For a program that knows its rank from elsewhere: instead of what launchers' variables say.
  /// Give rank, world_size and share_line, local_rank and local_world_size where they are known,
  /// and in master_host a host that all ranks reach: rank 0 listens on its interface towards it.
  /// The secret is still that of `env`. Threads are then the program's affair: PARX_THREADS does
  /// not count. Borrowed until init() returns.
  const launch_env* job = nullptr;
};

/// The group of all ranks of the job, and the owner of its connections. It cannot be copied or
/// moved: keep it in main() and pass it by reference. If an exception leaves its scope, the other
/// ranks are told.
class world : public process_group {
 public:
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  ~world();

  /// This process's index among the job's processes on its host, to choose a core or device by.
  [[nodiscard]] int local_rank() const noexcept { return job_.local_rank.value_or(job_.rank); }
  /// The job's part of the store, for the program's own keys; null in a world of one.
  [[nodiscard]] std::shared_ptr<store> job_store() const;

  /// Collective over the surviving ranks: to be called after a rank was lost and a call has failed,
  /// to go on without that rank, as MPIX_Comm_shrink does. It first revokes all groups, as abort()
  /// does: on the other ranks all present and later calls on the world and its groups end with a
  /// parx::error, and then those ranks call shrink(), too. Returns a new group of the ranks that
  /// called it, in their order, the same on all of them even if more ranks die meanwhile. May be
  /// called again after the next loss. The group must not outlive this world. Waits `patience` for
  /// ranks whose processes seem to be alive. Throws parx::error on a rank that came too late, and
  /// on all ranks where rank 0 was lost and kept the job's store.
  [[nodiscard]] process_group shrink(std::chrono::milliseconds patience = std::chrono::seconds(30));
  /// Whether there was a shrink() and none of its ranks has failed since.
  [[nodiscard]] bool goes_on() const;
  /// As process_group::abort; also aborts the group that shrink() made.
  void abort(std::string_view reason);

 private:
  friend world init(init_options options);

  world(launch_env job, std::unique_ptr<rendezvous> meeting, std::unique_ptr<links> network,
        group_options options);

  [[nodiscard]] static std::unique_ptr<links> alone();

  launch_env job_;
  std::unique_ptr<rendezvous> meeting_;
  group_options options_;
  int exceptions_ = std::uncaught_exceptions();
  detail::own_process process_;
};

/// Collective over the job; blocks until all its ranks have arrived. From here on standard output
/// is line buffered, so that no complete line is lost if another rank's failure ends this process.
/// Throws usage_error where the launcher's variables are incomplete or contradictory, parx::error
/// where the ranks do not find each other.
[[nodiscard]] world init(init_options options = {});

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/launch/detail/init_impl.hpp>
#endif
