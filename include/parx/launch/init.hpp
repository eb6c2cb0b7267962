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
#include <parx/core/env.hpp>
#include <parx/core/own_process.hpp>
#include <parx/launch/launcher.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

class rendezvous;

struct init_options {
  group_options group;
  /// How long to wait for all ranks. PARX_RENDEZVOUS_TIMEOUT (seconds) overrides it.
  std::chrono::milliseconds rendezvous_timeout = std::chrono::minutes(5);
  environment env = process_environment();
};

/// All ranks of the job, and the owner of what joins them. It cannot be copied or moved: keep it in
/// main() and pass it by reference. Leaving its scope by an exception tells the other ranks.
class world : public process_group {
 public:
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  ~world();

  /// This process's index among the job's processes on its host: which core or device is its own.
  [[nodiscard]] int local_rank() const noexcept { return job_.local_rank.value_or(job_.rank); }
  /// The job's part of the store, for keys of the program's own; null in a world of one.
  [[nodiscard]] std::shared_ptr<store> job_store() const;

  /// Collective over the ranks that are left: once a rank is lost and a call has failed, call it to
  /// go on without that rank, as MPIX_Comm_shrink does. Revokes first, as abort() does: on every
  /// other rank the calls on the world and its groups end, now and later, with a parx::error, upon
  /// which that rank calls it, too. The new group has the ranks that came, in their order; all of
  /// them return with the same one, also where others die meanwhile, and may call it again after
  /// the next loss. It must not outlive this world. Waits `patience` for ranks whose processes seem
  /// to live. Throws parx::error on a rank without which the others went on, and on all where rank
  /// 0 was lost and kept the job's store.
  [[nodiscard]] process_group shrink(std::chrono::milliseconds patience = std::chrono::seconds(30));
  /// Whether ranks are left after a shrink(), none of which has failed since.
  [[nodiscard]] bool goes_on() const;
  /// As process_group::abort, for the group that shrink() made, too.
  void abort(std::string_view reason);

 private:
  friend world init(init_options options);

  world(launch_env job, std::unique_ptr<rendezvous> meeting, std::unique_ptr<transport> network,
        group_options options);

  [[nodiscard]] static std::unique_ptr<transport> alone();

  launch_env job_;
  std::unique_ptr<rendezvous> meeting_;
  group_options options_;
  int exceptions_ = std::uncaught_exceptions();
  detail::own_process process_;
};

/// Collective over the job; blocks until all its ranks have come. Standard output is written line
/// by line from here on: a rank may be ended because of another's failure. Throws usage_error where
/// the launcher's variables are half set or contradict each other, parx::error where the ranks do
/// not find each other.
[[nodiscard]] world init(init_options options = {});

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/launch/detail/init_impl.hpp>
#endif
