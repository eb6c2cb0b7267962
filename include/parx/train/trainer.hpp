// trainer: the training loop of Hugging Face's Trainer, for a model in a wrapper that makes it
// parallel: a parx::ddp or any other wrapped_model.
//
//   parx::ddp ddp{model, world};
//   parx::optim::adamw opt{ddp.parameters()};
//   parx::train::trainer trainer{ddp, opt, loader,
//       [](auto& model, auto& batch) {
//         return parx::nn::cross_entropy(model(batch.x), batch.y, {.row_weights = batch.weights});
//       },
//       {.output_dir = "out", .num_train_epochs = 3, .learning_rate = 1e-3, .logging_steps = 10}};
//   trainer.train();
//
// Losses are (sum, count) pairs, so with accumulation, uneven batches and padding every sample has
// the weight that it has in one big batch. Ranks communicate for gradients, log lines, evaluations
// and checkpoints. The decision to end training (steps, early stopping, request_stop, a signal to
// any rank) is based on values with the same bits on all ranks; a rank's request to stop is sent
// with the gradients. Only rank 0 writes logs. A resumed run ends with the same bits as one that
// never stopped, because all that a step depends on (order of data, rate, dropout) is a function of
// its number and the seeds. With other ranks but the same global batch it differs by rounding and
// dropout masks, with virtual replicas not at all; with another batch it ends at num_train_epochs.
// Members are called on every rank, from one thread, unless they say otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/checkpoint.hpp>
#include <parx/comm/abort_reason.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/data/sampler.hpp>
#include <parx/optim/clip.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/announce.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/detail/finite.hpp>
#include <parx/train/detail/rates.hpp>
#include <parx/train/detail/recomputation.hpp>
#include <parx/train/detail/run_metrics.hpp>
#include <parx/train/detail/same_settings.hpp>
#include <parx/train/detail/samples_differ.hpp>
#include <parx/train/detail/step_progress.hpp>
#include <parx/train/detail/trainer_base.hpp>
#include <parx/train/evaluation.hpp>
#include <parx/train/explain.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/options.hpp>
#include <parx/train/precision.hpp>
#include <parx/train/run_log.hpp>
#include <parx/train/run_plan.hpp>
#include <parx/train/state.hpp>
#include <parx/train/wrapped_model.hpp>

namespace parx::inline PARX_ABI::train {

/// Loader: data::loader, or a class with its epoch(), batches(), batch_size() and sampler(). Loss:
/// called with (wrapper, batch); returns a weighted_loss, or an nn::tally if it runs backward
/// itself, as with a raw_module.
template <typename Wrapper, typename Optimizer, typename Loader, typename Loss>
class trainer : public detail::trainer_base {
  static_assert(detail::is_in_a_wrapper<Wrapper>,
                "a trainer takes the model in its wrapper: parx::ddp ddp{model, world}");
  static_assert(detail::has_its_whole_chapter<Wrapper, Optimizer>,
                "a trainer over this wrapper needs its whole chapter: include <parx/fsdp.hpp>, "
                "<parx/pipeline.hpp> or <parx/parallel.hpp>");
  static_assert(detail::is_complete<Wrapper, Optimizer>());

 public:
  /// Local. Model, optimizer and loader are borrowed. Throws usage_error for invalid options, and
  /// for a loader that gives several ranks the same samples.
  trainer(Wrapper& model, Optimizer& optimizer, const Loader& loader, Loss loss,
          trainer_options options = {}, call_site site = call_site::current())
      : trainer_base(std::move(options), model.data_group(), model.job_group(), site),
        model_(model),
        optimizer_(optimizer),
        loader_(loader),
        loss_(std::move(loss)),
        precision_(options_),
        rates_(optimizer, options_.learning_rate) {
    detail::check_samples_differ(loader.sampler(), data(), "training");
    detail::check_replicas(loader.sampler(), model);
    if (options_.on_loss) {
      detail::require_replaceable(model.reason_to_stop_at_loss(), detail::dealable<Loader>,
                                  options_.words);
    }
    make_plan_for_ranks();
    state_.num_samples = plan_.samples;
    state_.seed = options_.seed;
    state_.data_order = data_order_of(loader.sampler().options());
  }

  /// Local. Adds an evaluation whose metrics are named `prefix`_loss and so on. `measure` is called
  /// with (wrapper, batch), the same number of times on all ranks, and returns metrics. The loader
  /// is borrowed. Throws usage_error if it has no batches or gives several ranks the same samples.
  template <typename EvalLoader, typename Measure>
  void add_evaluation(const EvalLoader& loader, Measure measure, std::string prefix = "eval") {
    detail::require_evaluable(loader, data(), prefix);
    evaluations_.emplace_back(std::move(prefix),
                              make_evaluation(model_, loader, std::move(measure), site_));
  }
  /// Local, before train(). Saves `state`, an optim::ema or anything else that
  /// checkpoint_parts::add takes, with every checkpoint as the part `name`, and loads it with the
  /// model. Borrowed.
  template <typename State>
  void add_state(const std::string& name, State& state) {
    states_.push_back(
        {[=, &state, &model = model_](auto& to) { add_part(model, name, state, to); },
         [=, &state, &model = model_](const auto& from) { load_part(model, name, state, from); },
         [=, &state, site = site_](process_group& group, int root) {
           broadcast_state(group, state, root, site);
         }});
  }

  /// Collective. Trains to the end and returns the last line: train_loss, train_runtime, .... If a
  /// rank fails (a loss that is not a number, a full disk), every rank throws and the group is
  /// closed; see also on_loss. After a signal (save_on_signal) every rank throws stopped_by_signal,
  /// and the group stays usable.
  record train() {
    const auto start = std::chrono::steady_clock::now();
    begin();
    record line;
    try {
      if (options_.save_on_signal && saves()) signals_ = detail::signal_watch::start();
      for (bool ended = false; !ended;) {
        try {
          line = run(start);
          ended = true;
        } catch (const error& failure) {
          if (!options_.on_loss || !detail::is_rank_loss(failure)) throw;
        }
        if (!ended) continue_after_loss();
      }
      close_files();
    } catch (...) {
      signals_.mark_handled();  // the exception takes precedence over a signal
      close_files();
      if (!job().closed() || job().awaits_reason()) job().abort(abort_reason(job().rank()));
      throw;
    }
    if (signal_ != 0) throw_stopped_by_signal();
    return line;
  }

  /// Collective. What train() will do: see explain_run.
  [[nodiscard]] std::string explain() {
    return explain_run(model_, optimizer_, plan_, options_, rates_.highest(), site_);
  }

  /// Collective. Runs all evaluations that were added. Returns the metrics over all ranks, on all
  /// ranks.
  record evaluate() {
    require(!evaluations_.empty(),
            "trainer: evaluate() has nothing to measure: add_evaluation(loader, measure) first");
    return *evaluate_unless({});
  }

  /// Collective. Writes the model's parameters to `path`, a safetensors file or a folder: see
  /// parx::save.
  void save_model(const std::string& path) { save(model_, path, site_); }

 private:
  /// Trains from the current state to the end.
  record run(std::chrono::steady_clock::time_point start) {
    const bool shows = !options_.disable_progress && !done();
    progress bar{
        {.total = plan_.steps, .enabled = is_rank0() && shows, .initial = state_.global_step}};
    metrics_.open(start, shows ? &bar : nullptr);
    bar_ = &bar;
    if (options_.explain) metrics_.log.print("***** What this run will do *****\n" + explain());
    announce(metrics_.log, plan_, options_, parameter_count(model_.module()), rates_.highest(),
             state_.global_step);
    call(&callbacks::on_train_begin);
    metrics_.begin_counting(model_.times());
    schedule_.begin(state_.global_step);
    if (progress_.done != detail::step_stage::complete) finish_step();
    while (!done()) run_epoch();
    fold();
    folder_.wait();
    if (signal_ != 0) return {};
    record line = finish();
    bar.finish();
    if (metrics_.has_trained()) print_metrics(metrics_.log, line);
    return line;
  }

  void make_plan_for_ranks() {
    plan_ = make_plan(options_, loader_.sampler().size(), loader_.batch_size(),
                      detail::parts_of(loader_.sampler(), world()),
                      detail::dealt_to(data(), loader_).batches());
    plan_.ranks = static_cast<std::size_t>(job().size());
    plan_.hosts = hosts(), plan_.has_replicas = detail::has_replicas(loader_.sampler());
    state_.max_steps = plan_.steps;
    state_.global_batch = plan_.global_batch();
    state_.world_size = world();
  }

  void continue_after_loss() {
    if constexpr (regroupable<Wrapper>) {
      close_log();
      const std::size_t before = world();
      for (bool joined = false; !joined;) {
        process_group next = options_.on_loss();
        try {
          catch_up(next);
          model_.regroup(std::move(next));
          folder_.take_over();
          joined = true;
        } catch (const error& another) {
          if (!detail::is_rank_loss(another)) throw;
        }
      }
      make_plan_for_ranks();
      plan_ = continued(plan_, options_, state_.global_step, state_.epoch);
      state_.max_steps = plan_.steps;
      targets_ = optimizer_.targets();
      log_rank_loss(before);
    }
  }
  /// Collective over `next`. Copies the state of the rank that has progressed furthest to all.
  void catch_up(process_group& next) {
    progress_.folds = metrics_.folds();
    progress_.stopping = stopping_;
    progress_.signal = signal_;
    const detail::most_advanced_rank most_advanced =
        detail::find_most_advanced(next, progress_, site_);
    const bool behind = !progress_.whole || progress_.step != most_advanced.its.step;
    if (behind) unfinished_.end();  // another rank has finished the step, so its counts are valid
    unfinished_.undo(metrics_.watch.counts, model_.module());
    if (most_advanced.all_equal) return;
    if (behind) progress_ = {.whole = false, .step = most_advanced.its.step};
    if (!most_advanced.same_steps) {
      broadcast_state(next, model_.module(), most_advanced.rank, site_);
      broadcast_state(next, optimizer_, most_advanced.rank, site_);
      precision_.broadcast(next, most_advanced.rank, site_);
      for (const saved_part& each : states_) each.broadcast(next, most_advanced.rank);
    }
    std::string state = json::dump(to_json(state_));
    broadcast_object(next, state, {.root = most_advanced.rank}, site_);
    state_ = state_from(json::parse(state));
    metrics_.follow(most_advanced.its.folds);
    progress_ = most_advanced.its;
    stopping_ = progress_.stopping;
    signal_ = progress_.signal;
  }

  /// Checks the options, opens output_dir and loads the checkpoint to resume from, if any.
  void begin() {
    require(!evaluations_.empty() || !compares_evaluations(options_),
            "trainer: load_best_model_at_end and early_stopping_patience need an add_evaluation()");
    detail::require_same_settings(
        job(), detail::settings_text(options_, state_, rate(), evaluations_.size()), site_);
    stopping_ = false;
    stop_requested_ = false;
    signal_ = 0;
    targets_ = optimizer_.targets();
    if (options_.gradient_checkpointing) detail::enable_gradient_checkpointing(model_.module());
    if constexpr (requires { model_.module().train(); }) model_.module().train();
    metrics_.watch = meter();
    if (folder_.is_given()) {
      if (const auto last = folder_.begin(parts(), callbacks_)) restore(*last);
    }
    using detail::step_stage;
    progress_ = {.step = state_.global_step,
                 .done = state_.evaluation_is_due ? step_stage::logged : step_stage::complete};
  }

  /// Collective. This rank's parts of a checkpoint of the current state.
  [[nodiscard]] checkpoint_parts parts() {
    checkpoint_parts made;
    add_training_state(model_, optimizer_, made, site_);
    precision_.add_to(made);
    for (const saved_part& each : states_) each.add(made);
    made.add_json("trainer_state", to_json(state_));
    return made;
  }

  void restore(const saved_checkpoint& saved) {
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
    parx::detail::agree(&job(), site_, [&] {
      load_training_state(model_, optimizer_, saved);
      precision_.load(saved);
      for (const saved_part& each : states_) each.load(saved);
    });
  }

  void run_epoch() {
    const auto from = loader_.sampler().position(state_.samples_seen);
    auto batches = metrics_.watch.waiting_for_data(
        [&] { return detail::dealt_to(data(), loader_).epoch(from); });
    std::size_t taken = 0, micro_batch = 0;
    auto next = metrics_.watch.waiting_for_data([&] { return batches.begin(); });
    while (next != batches.end()) {
      const bool epoch_ends = ++taken == batches.size();
      const bool step_ends = micro_batch + 1 == plan_.accumulation || epoch_ends;
      if (micro_batch == 0) begin_step();
      if (step_ends) {
        if (own_request().any()) model_.raise_flag();
        pass(*next);
      } else {
        const auto guard = model_.no_sync();
        pass(*next);
      }
      micro_batch = step_ends ? 0 : micro_batch + 1;
      if (step_ends) {
        const auto at = epoch_ends ? data::sample_position{from.epoch + 1, 0} : batches.position();
        state_.samples_seen = loader_.sampler().state(at);
        state_.epoch = static_cast<double>(at.epoch) +
                       static_cast<double>(at.consumed) / static_cast<double>(plan_.samples);
        end_step();
        if (done()) return;
      }
      metrics_.watch.waiting_for_data([&] { ++next; });
    }
    // After a resume with larger batches and last_batch::drop no batch may be left in the epoch.
    if (taken == 0) state_.samples_seen = loader_.sampler().state({from.epoch + 1, 0});
  }

  /// Dropout depends on seed, step and rank (or replica), not on earlier steps: a run can resume.
  void begin_step() {
    if (options_.on_loss) unfinished_.begin(metrics_.watch.counts, model_.module());
    if constexpr (requires { model_.module().reseed(std::uint64_t{}); }) {
      model_.module().reseed(detail::seed_of_step(model_, options_.seed, state_.global_step));
    }
  }

  /// Forward and backward of one batch.
  template <typename Batch>
  void pass(Batch& batch) {
    std::optional<parx::detect_anomaly> watch;
    if (options_.detect_anomaly && precision_.finds_anomalies<decltype(loss_(model_, batch))>()) {
      watch.emplace(formatted("step {}, rank {}", state_.global_step + 1, job().rank()));
    }
    auto loss = precision_.forward([&] { return loss_(model_, batch); });
    const nn::tally figure = figure_of(loss);
    if (options_.stop_at_nan) detail::require_finite(figure, here());
    rank_counts& counts = metrics_.watch.counts;
    counts.loss_sum += figure.sum;
    counts.loss_count += figure.count;
    counts.samples += samples_in(batch);
    counts.tokens += tokens_in(batch);
    precision_.backward(loss, watch, site_);
  }

  [[nodiscard]] detail::run_position here() {
    return {job().rank(), state_.global_step + 1, state_.epoch, rate()};
  }

  [[nodiscard]] double rate() const {
    return learning_rate_at(options_, plan_, rates_.highest(), state_.global_step);
  }

  void end_step() {
    const double lr = rate();
    const std::uint64_t step = state_.global_step + 1;
    precision_.unscale(optimizer_, site_);
    // With a loss scale, a step with infinite gradients is skipped instead.
    const bool guards = options_.stop_at_nan && !precision_.loss_scale();
    const bool clips = options_.max_grad_norm > 0;
    const double norm = logs_at(step) || guards || clips ? optim::grad_norm(targets_, site_) : 0;
    if (guards) detail::require_finite(norm, targets_, here());
    if (clips) optim::scale_grad(targets_, norm, options_.max_grad_norm);
    rates_.set(optimizer_, lr);
    precision_.step(optimizer_);
    if (options_.stop_at_nan) detail::require_scale(precision_.loss_scale(), here());
    // Also of parameters that the optimizer does not have: ddp would report a forgotten step.
    model_.zero_grad();
    state_.global_step = step;
    progress_ = {.step = step, .done = detail::step_stage::updated, .norm = norm, .lr = lr};
    count_step();
    call(&callbacks::on_step_end);
    bar_->update(step);
    finish_step();
  }

  /// Logs, evaluates and saves after a step, as far as progress_.done says that is still to do.
  void finish_step() {
    if (progress_.done == detail::step_stage::updated) {
      if (logs_at(state_.global_step)) {
        write_line(progress_.norm, progress_.lr);
      } else if (model_.flag_raised()) {
        fold();
      }
      progress_.done = detail::step_stage::logged;
    }
    const bool epoch_ends = loader_.sampler().position(state_.samples_seen).consumed == 0;
    if (progress_.done == detail::step_stage::logged) {
      evaluate_step(epoch_ends);
      progress_.done = detail::step_stage::evaluated;
    }
    if (checkpoint_is_due(epoch_ends)) save_checkpoint(progress_.metric, progress_.best);
    if (epoch_ends && !state_.evaluation_is_due) call(&callbacks::on_epoch_end);
    progress_.done = detail::step_stage::complete;
  }

  /// After a signal the evaluation, which may take long, is postponed to the resumed run.
  void evaluate_step(bool epoch_ends) {
    progress_.was_due |= std::exchange(state_.evaluation_is_due, false);
    if (evaluations_.empty() || !evaluation_is_due(epoch_ends)) return;
    const auto line = evaluate_unless_signalled();
    state_.evaluation_is_due = !line;
    if (line) progress_.metric = judged_metric(*line);
    progress_.best = progress_.metric && judge(*progress_.metric);
  }

  /// The metrics of all evaluations; nullopt if they stopped early.
  [[nodiscard]] std::optional<record> evaluate_unless(const stop_early& stops) {
    metrics_.watch.pause();
    model_.broadcast_buffers(site_);  // evaluate the statistics that would be saved
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
  [[nodiscard]] std::optional<record> evaluate_unless_signalled() {
    if (signal_ != 0) return std::nullopt;
    stop_early at_a_signal;
    if (options_.save_on_signal && saves()) {
      at_a_signal = [&] { return signals_.signal() != 0; };
    }
    auto line = evaluate_unless(at_a_signal);
    if (!line) fold();
    return line;
  }

  /// Collective. Merges the counts and requests of all ranks.
  void fold() {
    const detail::stop_request all = metrics_.fold(model_.times(), own_request());
    stopping_ |= all.any();
    if (signal_ == 0) signal_ = all.signal;
    if (signal_ != 0) signals_.mark_handled();
  }

  void write_line(double norm, double lr) {
    fold();
    metrics_.watch.pause();
    call(&callbacks::on_log, metrics_.write_training(norm, lr, precision_.loss_scale()));
    metrics_.watch.resume();
  }

  void save_checkpoint(std::optional<double> metric, bool best) {
    fold();
    metrics_.watch.pause();
    if (best) state_.best_model_checkpoint = folder_.path_of(state_.best_global_step);
    save_by_schedule([&] { folder_.save(state_, parts(), metric); });
    call(&callbacks::on_save);
    metrics_.watch.resume();
  }

  record finish() {
    model_.broadcast_buffers(site_);
    if (options_.load_best_model_at_end && !state_.best_model_checkpoint.empty() &&
        state_.best_global_step != state_.global_step) {
      metrics_.log.print(formatted("  Loading best model from {} (score: {})",
                                   state_.best_model_checkpoint, state_.best_metric.value_or(0)));
      folder_.load(state_.best_global_step, [&](const auto& best) { load_model(model_, best); });
    }
    const record line = metrics_.write_closing();
    call(&callbacks::on_train_end);
    return line;
  }

  Wrapper& model_;
  Optimizer& optimizer_;
  const Loader& loader_;
  Loss loss_;
  precision precision_;
  const detail::group_rates rates_;
  std::vector<std::pair<std::string, evaluate_function>> evaluations_;
  std::vector<saved_part> states_;
  decltype(std::declval<Optimizer&>().targets()) targets_;
};

}  // namespace parx::train
