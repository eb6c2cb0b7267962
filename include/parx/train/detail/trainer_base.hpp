// trainer_base: the training loop. What depends on the types of model, optimizer and data, a
// batch's forward and backward above all, are virtual functions that trainer.hpp has; the rest is
// compiled once for all models.
//
// The public functions are those of a trainer, and documented there.
// Threads: only that of train(), except request_stop().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/loss.hpp>
#include <parx/reduction/times.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/callbacks.hpp>
#include <parx/train/detail/finite.hpp>
#include <parx/train/detail/rates.hpp>
#include <parx/train/detail/run_folder.hpp>
#include <parx/train/detail/run_metrics.hpp>
#include <parx/train/detail/signal_watch.hpp>
#include <parx/train/detail/step_progress.hpp>
#include <parx/train/evaluation.hpp>
#include <parx/train/options.hpp>
#include <parx/train/precision.hpp>
#include <parx/train/run_plan.hpp>
#include <parx/train/save_interval.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// The data of an epoch, as the loader gives them to the ranks that there are.
struct epoch_data {
  std::size_t samples = 0;     ///< over all ranks
  std::size_t batch_size = 0;  ///< of one rank or virtual replica
  std::size_t parts = 0;       ///< ranks or virtual replicas with different samples
  std::uint64_t batches = 0;   ///< of this rank
  bool has_replicas = false;   ///< `parts` are virtual replicas
};

class trainer_base {
 public:
  void add_callbacks(callbacks more) { callbacks_.push_back(std::move(more)); }
  void request_stop() noexcept { stop_requested_ = true; }
  record train();
  [[nodiscard]] virtual std::string explain() = 0;
  record evaluate();

  [[nodiscard]] const trainer_state& state() const noexcept { return state_; }
  [[nodiscard]] const run_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const trainer_options& options() const noexcept { return options_; }

 protected:
  /// The groups are borrowed. Throws usage_error for invalid options.
  trainer_base(trainer_options options, process_group& data, process_group& job, call_site site);
  virtual ~trainer_base();
  trainer_base(const trainer_base&) = delete;
  trainer_base& operator=(const trainer_base&) = delete;

  [[nodiscard]] process_group& job() noexcept { return job_; }
  [[nodiscard]] process_group& data() noexcept { return data_; }
  [[nodiscard]] std::size_t world() noexcept { return static_cast<std::size_t>(data_.size()); }
  /// Whether the run has made all its steps or is being stopped.
  [[nodiscard]] bool done() const noexcept {
    return stopping_ || state_.global_step >= plan_.steps;
  }

  /// Collective. Plans the run for the ranks that there are.
  void make_plan_for_ranks();
  /// Whether this rank asks all ranks to end training.
  [[nodiscard]] bool wants_stop() const noexcept { return own_request().any(); }
  /// Before a step, where training goes on after a lost rank: keeps what the step will change and a
  /// step that is broken off must give back, counts and buffers.
  void keep_for_undo();
  /// Counts a batch's loss, samples and tokens. Throws errc::bad_data if the loss has to be a
  /// number and is none.
  void count_batch(const nn::tally& loss, double samples, double tokens);
  /// Lets `watch` look for the first Inf or NaN of a batch.
  void watch_step(std::optional<detect_anomaly>& watch);
  /// Makes the step whose gradients are there. The state's position in the data is behind it.
  void end_step();

  /// Whether the step needs the norm of the gradients, and whether that has to be finite.
  [[nodiscard]] bool measures_norm() const;
  [[nodiscard]] bool requires_norm() const;
  [[nodiscard]] run_position here();

  const trainer_options options_;
  const call_site site_;
  run_plan plan_;
  trainer_state state_;
  run_metrics metrics_;
  precision precision_;
  group_rates rates_;
  std::vector<std::pair<std::string, evaluate_function>> evaluations_;
  std::vector<saved_object> states_;

 private:
  // Of the data.
  [[nodiscard]] virtual epoch_data data_of_epoch() = 0;
  [[nodiscard]] virtual bool begins_epoch() const = 0;  ///< the state's position
  /// Trains from the state's position to the end of its epoch, or until done().
  virtual void run_epoch() = 0;
  // Of the model and its optimizer: see wrapped_model.
  virtual void prepare_model() = 0;
  /// Makes a step with this learning rate. Returns the norm of the gradients if measures_norm(),
  /// else 0.
  [[nodiscard]] virtual double update(double lr) = 0;
  [[nodiscard]] virtual std::size_t count_parameters() = 0;
  [[nodiscard]] virtual reduction_times times() = 0;
  [[nodiscard]] virtual bool flag_raised() = 0;
  virtual void broadcast_buffers() = 0;
  virtual void for_each_buffer(function_ref<void(std::span<std::byte>)> use) = 0;
  virtual void regroup(process_group next) = 0;
  // Of a checkpoint.
  virtual void add_to(checkpoint_parts& parts) = 0;
  virtual void load_from(const saved_checkpoint& saved) = 0;
  virtual void load_model_from(const saved_checkpoint& saved) = 0;
  /// Collective. Gives all ranks of `group` the model and the optimizer of `root`.
  virtual void broadcast_training(process_group& group, int root) = 0;

  record run(std::chrono::steady_clock::time_point start);
  /// After the loss of a rank: gets the group of those that are left from the options, and goes on
  /// from the state of the one that has come furthest.
  void continue_after_loss();
  void catch_up(process_group& next);
  void begin();
  [[nodiscard]] checkpoint_parts parts();
  void restore(const saved_checkpoint& saved);
  [[nodiscard]] double rate() const;
  void finish_step();
  void evaluate_step(bool epoch_ends);
  [[nodiscard]] std::optional<record> evaluate_unless(const stop_early& stops);
  [[nodiscard]] std::optional<record> evaluate_unless_signalled();
  /// Collective, in the same steps on all ranks: sums what they have counted, and notes whether one
  /// of them asks to stop.
  void exchange_counts();
  void write_line(double norm, double lr);
  void save_checkpoint(std::optional<double> metric, bool best);
  record finish();

  [[nodiscard]] std::size_t hosts();
  [[nodiscard]] bool is_rank0() noexcept { return job_.rank() == 0; }
  [[nodiscard]] bool saves() const noexcept;
  [[nodiscard]] bool logs_at(std::uint64_t step) const noexcept;
  [[nodiscard]] bool evaluation_is_due(bool epoch_ends) const noexcept;
  [[nodiscard]] bool chooses_saves() const noexcept;
  [[nodiscard]] bool checkpoint_is_due(bool epoch_ends) const noexcept;
  void count_step();
  void save_by_schedule(std::optional<double> metric);
  template <typename Call, typename... Arguments>
  void call(Call callbacks::*which, const Arguments&... arguments) {
    for (const callbacks& each : callbacks_) {
      if (each.*which) (each.*which)(state_, arguments...);
    }
  }
  [[nodiscard]] std::optional<double> judged_metric(const record& line) const;
  [[nodiscard]] bool judge(double metric);
  [[nodiscard]] stop_request own_request() const noexcept {
    return {stop_requested_, signals_.signal()};
  }
  [[noreturn]] void throw_stopped_by_signal();
  void log_lost_ranks(std::size_t ranks_before);
  void close_log() noexcept;
  void close_files() noexcept;

  process_group& data_;
  process_group& job_;
  step_progress progress_;
  unfinished_step unfinished_;
  run_folder folder_;
  save_schedule schedule_;
  std::vector<callbacks> callbacks_;
  std::atomic<bool> stop_requested_{false};
  bool stopping_ = false;
  signal_watch signals_;
  int signal_ = 0;  ///< the signal that ends this run, on all ranks
  progress* bar_ = nullptr;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/trainer_base_impl.hpp>
#endif
