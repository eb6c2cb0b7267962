// run_folder: the checkpoints of a run in output_dir: finds the one of an earlier run to resume
// from, and saves those of this run.
//
// Without an output_dir nothing is read or written. All functions are collective except
// is_given(), leave() and path_of().
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint.hpp>
#include <parx/checkpoint/atomic_folder.hpp>
#include <parx/checkpoint/signed_lock.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/options.hpp>
#include <parx/train/run_log.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

using parx::detail::lock_holder;

/// The lock of `folder`, which one run at a time may use: two would silently replace each other's
/// checkpoints and logs. Local. Throws errc::io if another run holds it, or it cannot be made.
/// Waits up to two seconds, since a run that was just killed may take a moment to end.
[[nodiscard]] inline parx::detail::signed_lock locked_folder(
    const std::string& folder, lock_holder other, const environment& env = process_environment()) {
  parx::detail::signed_lock lock(
      folder + "/" + std::string(parx::detail::stale_prefix) + "run-lock", other,
      std::chrono::seconds(2), env);
  if (!lock.is_held()) {
    throw_error(errc::io,
                "another run trains into \"{}\" ({}). Give each run a folder of its own, or wait "
                "until that one has ended.",
                folder, lock.holder());
  }
  return lock;
}

class run_folder {
 public:
  /// `options` and `group` are borrowed.
  run_folder(const trainer_options& options, process_group& group, call_site site)
      : options_(options), group_(group), site_(site) {
    if (!is_given()) return;
    checkpoints_.emplace(
        group, options.output_dir,
        checkpoint_options{.save_total_limit = options.save_total_limit, .goal = goal_of(options)});
  }

  [[nodiscard]] bool is_given() const noexcept { return !options_.output_dir.empty(); }

  /// Called before the first step. Returns the checkpoint to resume from, if any. Throws errc::io
  /// if checkpoints of such `parts` could not be written or another run uses the folder, and
  /// usage_error if there is an earlier run but resume_from_checkpoint is not set. Locks the folder
  /// until leave().
  [[nodiscard]] std::optional<saved_checkpoint> begin(const checkpoint_parts& parts,
                                                      const std::vector<callbacks>& listeners) {
    const auto hears = [](const callbacks& each) { return static_cast<bool>(each.on_save); };
    announces_saves_ =
        on_any_rank(group_, std::any_of(listeners.begin(), listeners.end(), hears), site_);
    parx::detail::signed_lock mine;
    parx::detail::agree_on_rank0(&group_, site_, [&] {
      parx::detail::make_folders(options_.output_dir);
      mine = locked_folder(options_.output_dir, lock_holder::may_be_another_run);
    });
    checkpoints_->claim(site_);
    checkpoints_->probe(parts, site_);
    if (options_.resume_from_checkpoint == resume::overwrite) {
      checkpoints_->clear(site_);
      parx::detail::agree_on_rank0(&group_, site_, [&] { run_log::clear(options_.output_dir); });
    }
    auto last = checkpoints_->latest(site_);
    const bool logged =
        on_any_rank(group_, group_.rank() == 0 && run_log::has_lines(options_.output_dir), site_);
    require(
        options_.resume_from_checkpoint == resume::latest || (!last && !logged),
        "trainer: output_dir \"{}\" holds {} of an earlier run: {} goes on from it, {} deletes it "
        "and starts over; or give another folder",
        options_.output_dir,
        last ? formatted("the checkpoint of step {}", last->step()) : "the log",
        options_.words.resume, options_.words.overwrite);
    lock_ = std::move(mine);
    return last;
  }
  /// After a rank was lost: the new rank 0 takes over from the former one, which may be stopped.
  void take_over() {
    leave();
    if (!is_given()) return;
    parx::detail::agree_on_rank0(&group_, site_, [&] {
      lock_ = locked_folder(options_.output_dir, lock_holder::is_superseded);
    });
    checkpoints_->claim(site_);
  }
  /// Local. Releases the lock.
  void leave() noexcept { lock_ = {}; }

  /// Saves `parts` as the checkpoint of the state's step; `metric` is from the step's evaluation.
  void save(const trainer_state& state, const checkpoint_parts& parts,
            std::optional<double> metric) {
    checkpoints_->save(state.global_step, parts, metric,
                       state.best_metric ? std::optional(state.best_global_step) : std::nullopt,
                       site_);
    if (announces_saves_) checkpoints_->wait(site_);
  }
  /// Calls use(saved_checkpoint) with the checkpoint of `step`. The ranks share the work of
  /// verifying its checksums. A failure on one rank throws on every rank.
  template <typename Use>
  void load(std::uint64_t step, Use&& use) const {
    const auto found = saved_checkpoint::open_together(&group_, path_of(step), site_);
    parx::detail::agree(&group_, site_, [&] { use(found); });
  }
  /// Blocks until everything that was saved is on the disk.
  void wait() {
    if (checkpoints_) checkpoints_->wait(site_);
  }

  /// The current path of the checkpoint of `step`: output_dir may have been renamed since it was
  /// saved.
  [[nodiscard]] std::string path_of(std::uint64_t step) const {
    return parx::detail::checkpoint_path(options_.output_dir, step).string();
  }

 private:
  const trainer_options& options_;
  process_group& group_;
  const call_site site_;
  std::optional<checkpoint_manager> checkpoints_;
  bool announces_saves_ = false;
  parx::detail::signed_lock lock_;  ///< of rank 0
};

}  // namespace parx::train::detail
