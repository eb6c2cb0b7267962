// Definitions of run_folder.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/detail/run_folder.hpp>
#include <parx/train/run_log.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE run_folder::run_folder(const trainer_options& options, process_group& group,
                                   call_site site)
    : options_(options), group_(group), site_(site) {
  if (!is_given()) return;
  checkpoints_.emplace(
      group, options.output_dir,
      checkpoint_options{.save_total_limit = options.save_total_limit, .goal = goal_of(options)});
}

PARX_INLINE void run_folder::take_over() {
  leave();
  if (!is_given()) return;
  parx::detail::agree_on_rank0(
      &group_, site_, [&] { lock_ = run_lock(options_.output_dir, lock_holder::is_superseded); });
  checkpoints_->claim(site_);
}

PARX_INLINE void run_folder::save(const trainer_state& state, const checkpoint_parts& parts,
                                  std::optional<double> metric) {
  checkpoints_->save(state.global_step, parts, metric,
                     state.best_metric ? std::optional(state.best_global_step) : std::nullopt,
                     site_);
  if (announces_saves_) checkpoints_->wait(site_);
}

PARX_INLINE void run_folder::wait() {
  if (checkpoints_) checkpoints_->wait(site_);
}

PARX_INLINE std::string run_folder::path_of(std::uint64_t step) const {
  return parx::detail::checkpoint_path(options_.output_dir, step).string();
}

PARX_INLINE std::optional<saved_checkpoint> run_folder::begin(
    const checkpoint_parts& parts, const std::vector<callbacks>& listeners) {
  const auto hears = [](const callbacks& each) { return static_cast<bool>(each.on_save); };
  announces_saves_ =
      on_any_rank(group_, std::any_of(listeners.begin(), listeners.end(), hears), site_);
  run_lock mine;
  parx::detail::agree_on_rank0(&group_, site_, [&] {
    parx::detail::make_folders(options_.output_dir);
    mine = run_lock(options_.output_dir, lock_holder::may_be_another_run);
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
      options_.output_dir, last ? formatted("the checkpoint of step {}", last->step()) : "the log",
      options_.words.resume, options_.words.overwrite);
  lock_ = std::move(mine);
  return last;
}

}  // namespace parx::train::detail
