// run_folder: the checkpoints of a run. What an earlier run left in output_dir when this one
// begins, and where this one's go.
//
// Without an output_dir nothing is looked at and nothing written. Collective, all of it, but for
// leave() and path_of().
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/detail/run_lock.hpp>
#include <parx/train/metrics.hpp>
#include <parx/train/options.hpp>
#include <parx/train/run_log.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

class run_folder {
 public:
  /// `options` and `group` are borrowed.
  run_folder(const trainer_options& options, process_group& group, call_site site)
      : options_(options), group_(group), site_(site) {
    if (!is_given()) return;
    checkpoints_.emplace(
        group, options.output_dir,
        checkpoint_options{
            .save_total_limit = options.save_total_limit,
            .goal = is_greater_better(options) ? metric_goal::maximize : metric_goal::minimize});
  }

  [[nodiscard]] bool is_given() const noexcept { return !options_.output_dir.empty(); }

  /// Before the first step of a run with checkpoints of such `parts`: what to go on from. Throws
  /// errc::io where they could not be written or another run is at it, usage_error where an earlier
  /// one has not been spoken of. The folder is this run's until leave().
  [[nodiscard]] std::optional<saved_checkpoint> begin(const checkpoint_parts& parts,
                                                      const std::vector<callbacks>& listeners) {
    const auto hears = [](const callbacks& each) { return static_cast<bool>(each.on_save); };
    announces_saves_ =
        on_any_rank(group_, std::any_of(listeners.begin(), listeners.end(), hears), site_);
    checkpoints_->probe(parts, site_);
    run_lock mine;
    parx::detail::agree_on_rank0(&group_, site_, [&] { mine = run_lock(options_.output_dir); });
    if (options_.resume_from_checkpoint == resume::overwrite) {
      checkpoints_->clear(site_);
      parx::detail::agree_on_rank0(&group_, site_, [&] { run_log::clear(options_.output_dir); });
    }
    auto last = checkpoints_->latest(site_);
    const bool logged =
        on_any_rank(group_, group_.rank() == 0 && run_log::has_lines(options_.output_dir), site_);
    require(options_.resume_from_checkpoint == resume::latest || (!last && !logged),
            "trainer: output_dir \"{}\" holds {} of an earlier run; {}", options_.output_dir,
            last ? fmt::format("the checkpoint of step {}", last->step()) : "the log",
            resume_advice);
    lock_ = std::move(mine);
    return last;
  }
  /// Local. Another run may have the folder.
  void leave() noexcept { lock_ = run_lock(); }

  /// Saves `parts` as the checkpoint of the state's step; `metric` is its evaluation's.
  void save(const trainer_state& state, const checkpoint_parts& parts,
            std::optional<double> metric) {
    checkpoints_->save(state.global_step, parts, metric,
                       state.best_metric ? std::optional(state.best_global_step) : std::nullopt,
                       site_);
    if (announces_saves_) checkpoints_->wait(site_);
  }
  /// Calls use(saved_checkpoint) with that of step `step`, of whose files each rank has compared
  /// some with their checksums. What fails on one rank throws on every rank.
  template <typename Use>
  void load(std::uint64_t step, Use&& use) const {
    const parx::shard_place mine = parx::detail::place_in(group_);
    std::optional<saved_checkpoint> found;
    parx::detail::agree(&group_, site_, [&] {
      found = saved_checkpoint::open(path_of(step), checkpoint_check::contents, mine);
    });
    parx::detail::agree(&group_, site_, [&] { use(*found); });
  }
  /// Returns when all that was saved is on the disk.
  void wait() {
    if (checkpoints_) checkpoints_->wait(site_);
  }

  /// Where the checkpoint of step `step` is now: the folder may have had another name when it was
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
  run_lock lock_;
};

}  // namespace parx::train::detail
