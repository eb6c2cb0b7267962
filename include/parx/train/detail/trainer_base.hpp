// trainer_base: the part of a trainer that does not depend on the types of model, optimizer and
// data: options, groups, plan, state, log, checkpoints and callbacks.
//
// Threads: only that of train(), except request_stop().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/core/stopped.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/detail/lines.hpp>
#include <parx/train/detail/run_folder.hpp>
#include <parx/train/detail/run_metrics.hpp>
#include <parx/train/detail/signal_watch.hpp>
#include <parx/train/detail/step_progress.hpp>
#include <parx/train/options.hpp>
#include <parx/train/run_plan.hpp>
#include <parx/train/save_interval.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

class trainer_base {
 public:
  /// Local. Callbacks run in the order in which they were added.
  void add_callbacks(callbacks more) { callbacks_.push_back(std::move(more)); }

  /// From any thread, on any rank: training ends on all ranks, after the current step or the next.
  void request_stop() noexcept { stop_requested_ = true; }

  [[nodiscard]] const trainer_state& state() const noexcept { return state_; }
  [[nodiscard]] const run_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const trainer_options& options() const noexcept { return options_; }

 protected:
  /// The groups are borrowed. Throws usage_error for invalid options.
  trainer_base(trainer_options options, process_group& data, process_group& job, call_site site)
      : options_(std::move(options)),
        site_(site),
        data_(data),
        job_(job),
        folder_(options_, job, site),
        metrics_(options_, data, job, state_, site) {
    validate(options_);
  }
  ~trainer_base() = default;
  trainer_base(const trainer_base&) = delete;
  trainer_base& operator=(const trainer_base&) = delete;

  [[nodiscard]] process_group& job() noexcept { return job_; }
  [[nodiscard]] process_group& data() noexcept { return data_; }
  [[nodiscard]] std::size_t world() noexcept { return static_cast<std::size_t>(data_.size()); }
  /// Of the job, on rank 0, which tells it; 1 on the others.
  [[nodiscard]] std::size_t hosts() {
    if (!is_rank0()) return 1;
    const std::vector<int> numbers = job_.hosts();
    return static_cast<std::size_t>(*std::max_element(numbers.begin(), numbers.end())) + 1;
  }
  [[nodiscard]] bool is_rank0() noexcept { return job_.rank() == 0; }
  [[nodiscard]] bool done() const noexcept {
    return stopping_ || state_.global_step >= plan_.steps;
  }
  [[nodiscard]] bool saves() const noexcept {
    return folder_.is_given() && options_.save_strategy != strategy::no;
  }
  [[nodiscard]] bool logs_at(std::uint64_t step) const noexcept {
    return options_.logging_steps > 0 &&
           (step % options_.logging_steps == 0 || step >= plan_.steps);
  }

  /// After the current step.
  [[nodiscard]] bool evaluation_is_due(bool epoch_ends) const noexcept {
    const std::uint64_t interval =
        options_.eval_steps > 0 ? options_.eval_steps : options_.logging_steps;
    return is_due(options_.eval_strategy, interval, state_.global_step, epoch_ends);
  }
  [[nodiscard]] bool chooses_saves() const noexcept {
    return options_.save_strategy == strategy::steps && options_.save_steps == save_steps_auto;
  }
  [[nodiscard]] bool checkpoint_is_due(bool epoch_ends) const noexcept {
    return folder_.is_given() &&
           ((chooses_saves() ? schedule_.is_due(state_.global_step)
                             : is_due(options_.save_strategy, options_.save_steps,
                                      state_.global_step, epoch_ends)) ||
            progress_.was_due || (options_.save_strategy != strategy::no && done()) ||
            (progress_.best && options_.load_best_model_at_end));
  }

  /// Of the step that the state has.
  void count_step() {
    unfinished_.end();
    ++metrics_.watch.counts.steps;
    schedule_.end_step(state_.global_step, std::chrono::steady_clock::now());
  }
  /// Collective. Saves a checkpoint, by save(); of the first one the ranks learn how often the next
  /// ones pay.
  template <typename Save>
  void save_by_schedule(Save save) {
    const auto start = std::chrono::steady_clock::now();
    save();
    if (chooses_saves() && !schedule_.is_decided()) {
      folder_.wait();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      std::array<double, 2> slowest{schedule_.step_seconds(), taken.count()};
      parx::all_reduce(job_, slowest, {.op = reduce_op::max}, site_);
      if (slowest[0] > 0) {
        metrics_.log.print(
            schedule_.decide(slowest[0], slowest[1], options_.mean_hours_between_failures * 3600));
      }
    }
    schedule_.note_saved(state_.global_step);
  }

  template <typename Call, typename... Arguments>
  void call(Call callbacks::*which, const Arguments&... arguments) {
    for (const callbacks& each : callbacks_) {
      if (each.*which) (each.*which)(state_, arguments...);
    }
  }

  /// The metric by which evaluations are compared; nullopt if they are not.
  [[nodiscard]] std::optional<double> judged_metric(const record& line) const {
    if (!compares_evaluations(options_)) return std::nullopt;
    return metric_of(line, options_.metric_for_best_model);
  }
  /// Returns whether this is the best so far. Ends training after early_stopping_patience
  /// evaluations without a gain.
  [[nodiscard]] bool judge(double metric) {
    const bool best =
        note_metric(state_, metric, goal_of(options_), options_.early_stopping_threshold);
    const std::size_t patience = options_.early_stopping_patience;
    if (patience > 0 && state_.evaluations_without_gain >= patience) {
      stopping_ = true;
      metrics_.log.print(stopping_text(state_, options_));
    }
    return best;
  }

  [[nodiscard]] stop_request own_request() const noexcept {
    return {stop_requested_, signals_.signal()};
  }
  [[noreturn]] void throw_stopped_by_signal() {
    const std::string text = stopped_text(signal_, state_.global_step,
                                          folder_.path_of(state_.global_step), options_.words);
    if (is_rank0()) log(log_level::warn, "{}", text);
    throw stopped_by_signal(signal_, text);
  }
  void log_rank_loss(std::size_t ranks_before) {
    if (!is_rank0()) return;
    log(log_level::warn, "training goes on after step {} with {} of {} ranks, {} samples a step",
        state_.global_step, world(), ranks_before, plan_.global_batch());
  }
  void close_log() noexcept {
    metrics_.close();
    bar_ = nullptr;
  }
  void close_files() noexcept {
    close_log();
    folder_.leave();
    signals_ = {};
  }

  const trainer_options options_;
  const call_site site_;
  process_group& data_;
  process_group& job_;
  run_plan plan_;
  trainer_state state_;
  step_progress progress_;
  unfinished_step unfinished_;
  run_folder folder_;
  save_schedule schedule_;
  run_metrics metrics_;
  std::vector<callbacks> callbacks_;
  std::atomic<bool> stop_requested_{false};
  bool stopping_ = false;
  signal_watch signals_;
  int signal_ = 0;  ///< the signal that ends this run, on all ranks
  progress* bar_ = nullptr;
};

}  // namespace parx::train::detail
