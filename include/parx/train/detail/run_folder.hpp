// run_folder: the checkpoints of a run in output_dir: finds the one of an earlier run to resume
// from, and saves those of this run.
//
// Without an output_dir nothing is read or written. All functions are collective except
// is_given(), leave() and path_of().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <parx/checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/detail/run_lock.hpp>
#include <parx/train/options.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

class run_folder {
 public:
  /// `options` and `group` are borrowed.
  run_folder(const trainer_options& options, process_group& group, call_site site);

  [[nodiscard]] bool is_given() const noexcept { return !options_.output_dir.empty(); }

  /// Called before the first step. Returns the checkpoint to resume from, if any. Throws errc::io
  /// if checkpoints of such `parts` could not be written or another run uses the folder, and
  /// usage_error if there is an earlier run but resume_from_checkpoint is not set. Locks the folder
  /// until leave().
  [[nodiscard]] std::optional<saved_checkpoint> begin(const checkpoint_parts& parts,
                                                      const std::vector<callbacks>& listeners);
  /// After a rank was lost: the new rank 0 takes over from the former one, which may be stopped.
  void take_over();
  /// Local. Releases the lock.
  void leave() noexcept { lock_ = run_lock(); }

  /// Saves `parts` as the checkpoint of the state's step; `metric` is from the step's evaluation.
  void save(const trainer_state& state, const checkpoint_parts& parts,
            std::optional<double> metric);
  /// Calls use(saved_checkpoint) with the checkpoint of `step`. The ranks share the work of
  /// verifying its checksums. A failure on one rank throws on every rank.
  template <typename Use>
  void load(std::uint64_t step, Use&& use) const {
    const auto found = saved_checkpoint::open_together(&group_, path_of(step), site_);
    parx::detail::agree(&group_, site_, [&] { use(found); });
  }
  /// Blocks until everything that was saved is on the disk.
  void wait();

  /// The current path of the checkpoint of `step`: output_dir may have been renamed since it was
  /// saved.
  [[nodiscard]] std::string path_of(std::uint64_t step) const;

 private:
  const trainer_options& options_;
  process_group& group_;
  const call_site site_;
  std::optional<checkpoint_manager> checkpoints_;
  bool announces_saves_ = false;
  run_lock lock_;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_folder_impl.hpp>
#endif
