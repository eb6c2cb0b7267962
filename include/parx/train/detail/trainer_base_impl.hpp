// Definitions of trainer_base.hpp.
#pragma once

#include <algorithm>
#include <array>

#include <parx/checkpoint.hpp>
#include <parx/comm/abort_reason.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/log.hpp>
#include <parx/core/stopped.hpp>
#include <parx/train/announce.hpp>
#include <parx/train/detail/lines.hpp>
#include <parx/train/detail/same_settings.hpp>
#include <parx/train/detail/trainer_base.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE trainer_base::trainer_base(trainer_options options, process_group& data,
                                       process_group& job, call_site site)
    : options_(std::move(options)),
      site_(site),
      metrics_(options_, data, job, state_, site),
      precision_(options_),
      data_(data),
      job_(job),
      folder_(options_, job, site) {
  validate(options_);
}

PARX_INLINE trainer_base::~trainer_base() = default;

PARX_INLINE record trainer_base::train() {
  const auto start = std::chrono::steady_clock::now();
  begin();
  record line;
  try {
    if (options_.save_on_signal && saves()) signals_ = signal_watch::start();
    for (bool ended = false; !ended;) {
      try {
        line = run(start);
        ended = true;
      } catch (const error& failure) {
        if (!options_.on_loss || !is_rank_loss(failure)) throw;
      }
      if (!ended) continue_after_loss();
    }
    close_files();
  } catch (...) {
    signals_.mark_handled();  // the exception takes precedence over a signal
    close_files();
    if (!job().closed() || job().awaits_reason()) job().abort(abort_reason(job()));
    throw;
  }
  if (signal_ != 0) throw_stopped_by_signal();
  return line;
}

PARX_INLINE record trainer_base::evaluate() {
  require(!evaluations_.empty(),
          "trainer: evaluate() has nothing to measure: add_evaluation(loader, measure) first");
  return *evaluate_unless({});
}

/// Trains from the current state to the end.
PARX_INLINE record trainer_base::run(std::chrono::steady_clock::time_point start) {
  const bool shows = !options_.disable_progress && !done();
  progress bar{
      {.total = plan_.steps, .enabled = is_rank0() && shows, .initial = state_.global_step}};
  metrics_.open(start, shows ? &bar : nullptr);
  bar_ = &bar;
  if (options_.explain) metrics_.log.print("***** What this run will do *****\n" + explain());
  announce(metrics_.log, plan_, options_, count_parameters(), rates_.highest(), state_.global_step);
  call(&callbacks::on_train_begin);
  metrics_.begin_counting(times());
  schedule_.begin(state_.global_step);
  if (progress_.done != step_phase::complete) finish_step();
  while (!done()) run_epoch();
  exchange_counts();
  folder_.wait();
  if (signal_ != 0) return {};
  record line = finish();
  bar.finish();
  if (metrics_.has_trained()) print_metrics(metrics_.log, line);
  return line;
}

PARX_INLINE void trainer_base::make_plan_for_ranks() {
  const epoch_data epoch = data_of_epoch();
  plan_ = make_plan(options_, epoch.samples, epoch.batch_size, epoch.parts, epoch.batches);
  plan_.ranks = static_cast<std::size_t>(job().size());
  plan_.hosts = hosts(), plan_.has_replicas = epoch.has_replicas;
  state_.max_steps = plan_.steps;
  state_.global_batch = plan_.global_batch();
  state_.world_size = world();
}

/// The number of hosts of the job on rank 0, which tells it; 1 on the others.
PARX_INLINE std::size_t trainer_base::hosts() {
  if (!is_rank0()) return 1;
  const std::vector<int> numbers = job_.hosts();
  return static_cast<std::size_t>(*std::max_element(numbers.begin(), numbers.end())) + 1;
}

PARX_INLINE void trainer_base::continue_after_loss() {
  close_log();
  const std::size_t before = world();
  for (bool joined = false; !joined;) {
    process_group next = options_.on_loss();
    try {
      catch_up(next);
      regroup(std::move(next));
      folder_.take_over();
      joined = true;
    } catch (const error& another) {
      if (!is_rank_loss(another)) throw;
    }
  }
  make_plan_for_ranks();
  plan_ = continued(plan_, options_, state_.global_step, state_.epoch);
  state_.max_steps = plan_.steps;
  log_lost_ranks(before);
}

/// Collective over `next`. Copies the state of the rank that has progressed furthest to all.
PARX_INLINE void trainer_base::catch_up(process_group& next) {
  progress_.exchanges = metrics_.exchanges();
  progress_.stopping = stopping_;
  progress_.signal = signal_;
  const most_advanced_rank most_advanced = find_most_advanced(next, progress_, site_);
  const bool behind = !progress_.whole || progress_.step != most_advanced.its.step;
  if (behind) unfinished_.end();  // another rank has finished the step, so its counts are valid
  unfinished_.undo(metrics_.watch.counts, [this](auto use) { for_each_buffer(use); });
  if (most_advanced.all_equal) return;
  if (behind) progress_ = {.whole = false, .step = most_advanced.its.step};
  if (!most_advanced.same_steps) {
    broadcast_training(next, most_advanced.rank);
    precision_.broadcast(next, most_advanced.rank, site_);
    for (const saved_object& each : states_) each.broadcast(next, most_advanced.rank);
  }
  std::string state = json::dump(to_json(state_));
  broadcast_object(next, state, {.root = most_advanced.rank}, site_);
  state_ = state_from(json::parse(state));
  metrics_.follow(most_advanced.its.exchanges);
  progress_ = most_advanced.its;
  stopping_ = progress_.stopping;
  signal_ = progress_.signal;
}

/// Checks the options, opens output_dir and loads the checkpoint to resume from, if any.
PARX_INLINE void trainer_base::begin() {
  require(!evaluations_.empty() || !compares_evaluations(options_),
          "trainer: load_best_model_at_end and early_stopping_patience need an add_evaluation()");
  require_same_settings(job(), settings_text(options_, state_, rate(), evaluations_.size()), site_);
  stopping_ = false;
  stop_requested_ = false;
  signal_ = 0;
  prepare_model();
  metrics_.watch = meter();
  if (folder_.is_given()) {
    if (const auto last = folder_.begin(parts(), callbacks_)) restore(*last);
  }
  progress_ = {.step = state_.global_step,
               .done = state_.evaluation_is_due ? step_phase::logged : step_phase::complete};
}

/// Collective. This rank's parts of a checkpoint of the current state.
PARX_INLINE checkpoint_parts trainer_base::parts() {
  checkpoint_parts made;
  add_to(made);
  precision_.add_to(made);
  for (const saved_object& each : states_) each.add(made);
  made.add_json("trainer_state", to_json(state_));
  return made;
}

PARX_INLINE void trainer_base::restore(const saved_checkpoint& saved) {
  const trainer_state before = state_in(saved);
  if (is_rank0()) {
    for (const std::string& each : differences(before, state_, saved.path()))
      log(log_level::warn, "{}", each);
  }
  if (before.global_batch != plan_.global_batch()) {
    plan_ = continued(plan_, options_, before.global_step, before.epoch);
    state_.max_steps = plan_.steps;
  }
  state_ = resumed(before, state_, saved.path());
  if (!state_.best_model_checkpoint.empty()) {
    state_.best_model_checkpoint = folder_.path_of(state_.best_global_step);
    if (options_.load_best_model_at_end) {  // fails now if it is damaged, not at the end
      (void)saved_checkpoint::open(state_.best_model_checkpoint, checkpoint_check::sizes);
    }
  }
  parx::detail::agree(&job(), site_, [this, &saved] {
    load_from(saved);
    precision_.load(saved);
    for (const saved_object& each : states_) each.load(saved);
  });
}

PARX_INLINE void trainer_base::keep_for_undo() {
  if (!options_.on_loss) return;
  unfinished_.begin(metrics_.watch.counts, [this](auto use) { for_each_buffer(use); });
}

PARX_INLINE void trainer_base::watch_step(std::optional<detect_anomaly>& watch) {
  watch.emplace(formatted("step {}, rank {}", state_.global_step + 1, job().rank()));
}

PARX_INLINE void trainer_base::count_batch(const nn::tally& loss, double samples, double tokens) {
  if (options_.stop_at_nan) require_finite(loss, here());
  rank_counts& counts = metrics_.watch.counts;
  counts.loss_sum += loss.sum;
  counts.loss_count += loss.count;
  counts.samples += samples;
  counts.tokens += tokens;
}

PARX_INLINE run_position trainer_base::here() {
  return {job().rank(), state_.global_step + 1, state_.epoch, rate()};
}

/// The learning rate of the next step.
PARX_INLINE double trainer_base::rate() const {
  return learning_rate_at(options_, plan_, rates_.highest(), state_.global_step);
}

PARX_INLINE bool trainer_base::requires_norm() const {
  // With a loss scale, a step with infinite gradients is skipped instead.
  return options_.stop_at_nan && !precision_.loss_scale();
}

PARX_INLINE bool trainer_base::measures_norm() const {
  return logs_at(state_.global_step + 1) || requires_norm() || options_.max_grad_norm > 0;
}

PARX_INLINE void trainer_base::end_step() {
  const double lr = rate();
  const std::uint64_t step = state_.global_step + 1;
  const double norm = update(lr);
  state_.global_step = step;
  progress_ = {.step = step, .done = step_phase::updated, .norm = norm, .lr = lr};
  count_step();
  call(&callbacks::on_step_end);
  bar_->update(step);
  finish_step();
}

/// Logs, evaluates and saves after a step, as far as progress_.done says that is still to do.
PARX_INLINE void trainer_base::finish_step() {
  if (progress_.done == step_phase::updated) {
    if (logs_at(state_.global_step)) {
      write_line(progress_.norm, progress_.lr);
    } else if (flag_raised()) {
      exchange_counts();
    }
    progress_.done = step_phase::logged;
  }
  const bool epoch_ends = begins_epoch();
  if (progress_.done == step_phase::logged) {
    evaluate_step(epoch_ends);
    progress_.done = step_phase::evaluated;
  }
  if (checkpoint_is_due(epoch_ends)) save_checkpoint(progress_.metric, progress_.best);
  if (epoch_ends && !state_.evaluation_is_due) call(&callbacks::on_epoch_end);
  progress_.done = step_phase::complete;
}

/// After a signal the evaluation, which may take long, is postponed to the resumed run.
PARX_INLINE void trainer_base::evaluate_step(bool epoch_ends) {
  progress_.was_due |= std::exchange(state_.evaluation_is_due, false);
  if (evaluations_.empty() || !evaluation_is_due(epoch_ends)) return;
  const auto line = evaluate_unless_signalled();
  state_.evaluation_is_due = !line;
  if (line) progress_.metric = judged_metric(*line);
  progress_.best = progress_.metric && judge(*progress_.metric);
}

/// The metrics of all evaluations; nullopt if they stopped early.
PARX_INLINE std::optional<record> trainer_base::evaluate_unless(const stop_early& stops) {
  metrics_.watch.pause();
  broadcast_buffers();  // evaluate the statistics that would be saved
  record line;
  for (const auto& [prefix, run] : evaluations_) {
    if (!evaluate_into(line, data(), job(), prefix, run, stops, site_)) return std::nullopt;
  }
  line.set("epoch", state_.epoch);
  metrics_.write(line, run_log::kind::eval);
  call(&callbacks::on_evaluate, line);
  metrics_.watch.resume();
  return line;
}

/// The same, or nullopt if a signal came before or comes during it.
PARX_INLINE std::optional<record> trainer_base::evaluate_unless_signalled() {
  if (signal_ != 0) return std::nullopt;
  stop_early at_a_signal;
  if (options_.save_on_signal && saves()) {
    at_a_signal = [this] { return signals_.signal() != 0; };
  }
  auto line = evaluate_unless(at_a_signal);
  if (!line) exchange_counts();
  return line;
}

/// Collective. Merges the counts and requests of all ranks.
PARX_INLINE void trainer_base::exchange_counts() {
  const stop_request all = metrics_.exchange(times(), own_request());
  stopping_ |= all.any();
  if (signal_ == 0) signal_ = all.signal;
  if (signal_ != 0) signals_.mark_handled();
}

PARX_INLINE void trainer_base::write_line(double norm, double lr) {
  exchange_counts();
  metrics_.watch.pause();
  call(&callbacks::on_log, metrics_.write_training(norm, lr, precision_.loss_scale()));
  metrics_.watch.resume();
}

PARX_INLINE void trainer_base::save_checkpoint(std::optional<double> metric, bool best) {
  exchange_counts();
  metrics_.watch.pause();
  if (best) state_.best_model_checkpoint = folder_.path_of(state_.best_global_step);
  save_by_schedule(metric);
  call(&callbacks::on_save);
  metrics_.watch.resume();
}

/// Collective. Saves a checkpoint; of the first one the ranks learn how often the next ones pay.
PARX_INLINE void trainer_base::save_by_schedule(std::optional<double> metric) {
  const auto start = std::chrono::steady_clock::now();
  folder_.save(state_, parts(), metric);
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

PARX_INLINE record trainer_base::finish() {
  broadcast_buffers();
  if (options_.load_best_model_at_end && !state_.best_model_checkpoint.empty() &&
      state_.best_global_step != state_.global_step) {
    metrics_.log.print(formatted("  Loading best model from {} (score: {})",
                                 state_.best_model_checkpoint, state_.best_metric.value_or(0)));
    folder_.load(state_.best_global_step,
                 [this](const saved_checkpoint& best) { load_model_from(best); });
  }
  const record line = metrics_.write_closing();
  call(&callbacks::on_train_end);
  return line;
}

PARX_INLINE bool trainer_base::saves() const noexcept {
  return folder_.is_given() && options_.save_strategy != strategy::no;
}

PARX_INLINE bool trainer_base::logs_at(std::uint64_t step) const noexcept {
  return options_.logging_steps > 0 && (step % options_.logging_steps == 0 || step >= plan_.steps);
}

/// After the current step.
PARX_INLINE bool trainer_base::evaluation_is_due(bool epoch_ends) const noexcept {
  const std::uint64_t interval =
      options_.eval_steps > 0 ? options_.eval_steps : options_.logging_steps;
  return is_due(options_.eval_strategy, interval, state_.global_step, epoch_ends);
}

PARX_INLINE bool trainer_base::chooses_saves() const noexcept {
  return options_.save_strategy == strategy::steps && options_.save_steps == save_steps_auto;
}

PARX_INLINE bool trainer_base::checkpoint_is_due(bool epoch_ends) const noexcept {
  return folder_.is_given() &&
         ((chooses_saves() ? schedule_.is_due(state_.global_step)
                           : is_due(options_.save_strategy, options_.save_steps, state_.global_step,
                                    epoch_ends)) ||
          progress_.was_due || (options_.save_strategy != strategy::no && done()) ||
          (progress_.best && options_.load_best_model_at_end));
}

/// Of the step that the state has.
PARX_INLINE void trainer_base::count_step() {
  unfinished_.end();
  ++metrics_.watch.counts.steps;
  schedule_.end_step(state_.global_step, std::chrono::steady_clock::now());
}

/// The metric by which evaluations are compared; nullopt if they are not.
PARX_INLINE std::optional<double> trainer_base::judged_metric(const record& line) const {
  if (!compares_evaluations(options_)) return std::nullopt;
  return metric_of(line, options_.metric_for_best_model);
}

/// Returns whether this is the best so far. Ends training after early_stopping_patience
/// evaluations without a gain.
PARX_INLINE bool trainer_base::judge(double metric) {
  const bool best =
      note_metric(state_, metric, goal_of(options_), options_.early_stopping_threshold);
  const std::size_t patience = options_.early_stopping_patience;
  if (patience > 0 && state_.evaluations_without_gain >= patience) {
    stopping_ = true;
    metrics_.log.print(stopping_text(state_, options_));
  }
  return best;
}

PARX_INLINE void trainer_base::throw_stopped_by_signal() {
  const std::string text = stopped_text(signal_, state_.global_step,
                                        folder_.path_of(state_.global_step), options_.words);
  if (is_rank0()) log(log_level::warn, "{}", text);
  throw stopped_by_signal(signal_, text);
}

PARX_INLINE void trainer_base::log_lost_ranks(std::size_t ranks_before) {
  if (!is_rank0()) return;
  log(log_level::warn, "training goes on after step {} with {} of {} ranks, {} samples a step",
      state_.global_step, world(), ranks_before, plan_.global_batch());
}

PARX_INLINE void trainer_base::close_log() noexcept {
  metrics_.close();
  bar_ = nullptr;
}

PARX_INLINE void trainer_base::close_files() noexcept {
  close_log();
  folder_.leave();
  signals_ = {};
}

}  // namespace parx::train::detail
