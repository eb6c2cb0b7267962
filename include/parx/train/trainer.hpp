// trainer: the training loop of Hugging Face's Trainer, for a model in a wrapper: most programs use
// parx::parallel, others a parx::ddp or any wrapped_model.
//
//   parx::parallel model{net, world, parx::layout::parse("ddp")};
//   parx::optim::adamw opt{model.parameters()};
//   parx::train::trainer trainer{model, opt, loader,
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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/anomaly.hpp>
#include <parx/checkpoint.hpp>
#include <parx/core/check.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/data/sampler.hpp>
#include <parx/optim/clip.hpp>
#include <parx/train/announce.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/detail/finite.hpp>
#include <parx/train/detail/rates.hpp>
#include <parx/train/detail/samples_differ.hpp>
#include <parx/train/detail/step_progress.hpp>
#include <parx/train/detail/trainer_base.hpp>
#include <parx/train/evaluation.hpp>
#include <parx/train/explain.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/options.hpp>
#include <parx/train/run_plan.hpp>
#include <parx/train/state.hpp>
#include <parx/train/wrapped_model.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// trainer_options::gradient_checkpointing, for models that support it.
template <typename Model>
void enable_gradient_checkpointing(Model& model) {
  if constexpr (requires { model.gradient_checkpointing_enable(); }) {
    model.gradient_checkpointing_enable();
  } else {
    throw_usage(
        "trainer: gradient_checkpointing is for models with gradient_checkpointing_enable(), which "
        "this one has not. Wrap its layers in nn::checkpointed instead, see nn/checkpointed.hpp");
  }
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

/// Loader: data::loader, or a class with its epoch(), batches(), batch_size() and sampler(). Loss:
/// called with (wrapper, batch); returns a weighted_loss, or an nn::tally if it runs backward
/// itself, as with a raw_module.
template <typename Wrapper, typename Optimizer, typename Loader, typename Loss>
class trainer : public detail::trainer_base {
  static_assert(detail::is_in_a_wrapper<Wrapper>,
                "a trainer takes the model in its wrapper: parx::ddp ddp{model, world}");
  static_assert(detail::has_its_whole_chapter<Wrapper, Optimizer>,
                "a trainer over this wrapper needs its whole chapter: include <parx/fsdp.hpp> "
                "or <parx/parallel.hpp>");
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
        loss_(std::move(loss)) {
    rates_ = detail::group_rates(optimizer, options_.learning_rate);
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
    detail::require_evaluable(detail::evaluation_data_of(loader), data(), prefix);
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

  /// Local. Callbacks run in the order in which they were added.
  using trainer_base::add_callbacks;
  /// From any thread, on any rank: training ends on all ranks, after the current step or the next.
  using trainer_base::request_stop;

  /// Collective. Trains to the end and returns the last line: train_loss, train_runtime, .... If a
  /// rank fails (a loss that is not a number, a full disk), every rank throws and the group is
  /// closed; see also on_loss. After a signal (save_on_signal) every rank throws stopped_by_signal,
  /// and the group stays usable.
  using trainer_base::train;

  /// Collective. What train() will do: see explain_run.
  [[nodiscard]] std::string explain() override {
    return explain_run(model_, optimizer_, plan_, options_, rates_.highest(), site_);
  }

  /// Collective. Runs all evaluations that were added. Returns the metrics over all ranks, on all
  /// ranks.
  using trainer_base::evaluate;

  /// Collective. Writes the model's parameters to `path`, a safetensors file or a folder: see
  /// parx::save.
  void save_model(const std::string& path) { save(model_, path, site_); }

 private:
  [[nodiscard]] detail::epoch_data data_of_epoch() override {
    const auto& sampler = loader_.sampler();
    return {.samples = static_cast<std::size_t>(sampler.size()),
            .batch_size = static_cast<std::size_t>(loader_.batch_size()),
            .parts = detail::parts_of(sampler, world()),
            .batches = static_cast<std::uint64_t>(detail::dealt_to(data(), loader_).batches()),
            .has_replicas = detail::has_replicas(sampler)};
  }
  [[nodiscard]] bool begins_epoch() const override {
    return loader_.sampler().position(state_.samples_seen).consumed == 0;
  }

  void run_epoch() override {
    const auto from = loader_.sampler().position(state_.samples_seen);
    auto batches = metrics_.watch.waiting_for_data(
        [this, &from] { return detail::dealt_to(data(), loader_).epoch(from); });
    std::size_t taken = 0, micro_batch = 0;
    auto next = metrics_.watch.waiting_for_data([&batches] { return batches.begin(); });
    while (next != batches.end()) {
      const bool epoch_ends = ++taken == batches.size();
      const bool step_ends = micro_batch + 1 == plan_.accumulation || epoch_ends;
      if (micro_batch == 0) begin_step();
      if (step_ends) {
        if (wants_stop()) model_.raise_flag();
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
      metrics_.watch.waiting_for_data([&next] { ++next; });
    }
    // After a resume with larger batches and last_batch::drop no batch may be left in the epoch.
    if (taken == 0) state_.samples_seen = loader_.sampler().state({from.epoch + 1, 0});
  }

  /// Dropout depends on seed, step and rank (or replica), not on earlier steps: a run can resume.
  void begin_step() {
    keep_for_undo();
    if constexpr (requires { model_.module().reseed(std::uint64_t{}); }) {
      model_.module().reseed(detail::seed_of_step(model_, options_.seed, state_.global_step));
    }
  }

  /// Forward and backward of one batch.
  template <typename Batch>
  void pass(Batch& batch) {
    std::optional<detect_anomaly> watch;
    if (options_.detect_anomaly && precision_.finds_anomalies<decltype(loss_(model_, batch))>())
      watch_step(watch);
    auto loss = precision_.forward([this, &batch] { return loss_(model_, batch); });
    count_batch(figure_of(loss), samples_in(batch), tokens_in(batch));
    precision_.backward(loss, watch, site_);
  }

  [[nodiscard]] double update(double lr) override {
    precision_.unscale(optimizer_, site_);
    const double norm = measures_norm() ? optim::grad_norm(targets_, site_) : 0;
    if (requires_norm()) detail::require_finite(norm, targets_, here());
    if (options_.max_grad_norm > 0) optim::scale_grad(targets_, norm, options_.max_grad_norm);
    rates_.set(optimizer_, lr);
    precision_.step(optimizer_);
    if (options_.stop_at_nan) detail::require_scale(precision_.loss_scale(), here());
    // Also of parameters that the optimizer does not have: ddp would report a forgotten step.
    model_.zero_grad();
    return norm;
  }

  void prepare_model() override {
    targets_ = optimizer_.targets();
    if (options_.gradient_checkpointing) detail::enable_gradient_checkpointing(model_.module());
    if constexpr (requires { model_.module().train(); }) model_.module().train();
  }
  [[nodiscard]] std::size_t count_parameters() override { return parameter_count(model_.module()); }
  [[nodiscard]] reduction_times times() override { return model_.times(); }
  [[nodiscard]] bool flag_raised() override { return model_.flag_raised(); }
  void broadcast_buffers() override { model_.broadcast_buffers(site_); }
  void for_each_buffer(function_ref<void(std::span<std::byte>)> use) override {
    detail::visit_buffers(model_.module(), use);
  }
  void regroup([[maybe_unused]] process_group next) override {
    if constexpr (regroupable<Wrapper>) {
      model_.regroup(std::move(next));
      targets_ = optimizer_.targets();
    }
  }

  void add_to(checkpoint_parts& parts) override {
    add_training_state(model_, optimizer_, parts, site_);
  }
  void load_from(const saved_checkpoint& saved) override {
    load_training_state(model_, optimizer_, saved);
  }
  void load_model_from(const saved_checkpoint& saved) override { load_model(model_, saved); }
  void broadcast_training(process_group& group, int root) override {
    broadcast_state(group, model_.module(), root, site_);
    broadcast_state(group, optimizer_, root, site_);
  }

  Wrapper& model_;
  Optimizer& optimizer_;
  const Loader& loader_;
  Loss loss_;
  decltype(std::declval<Optimizer&>().targets()) targets_;
};

}  // namespace parx::train
