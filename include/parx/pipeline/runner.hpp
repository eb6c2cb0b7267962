// stage_runner: runs any valid table over the stages of this rank.
//
// A forward takes the result of the previous stage, a backward the gradient of the next one; their
// receives are posted before the first action. A stage's result is sent at once, and its values are
// freed as soon as neither the message nor the graph needs them. Skip connections to later stages
// are sent in the same messages, from stage to stage. Gradients are summed over data-parallel ranks
// in the background; the runner waits for the sums after the last action.
// Threads: one, which uses the group.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/border.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/loss.hpp>
#include <parx/autograd/loss_scale.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/call_context.hpp>
#include <parx/core/formatted.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/loss.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/pipeline/messages.hpp>
#include <parx/pipeline/microbatches.hpp>
#include <parx/pipeline/routes.hpp>
#include <parx/pipeline/simulate.hpp>
#include <parx/pipeline/stage_reductions.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class stage_runner {
 public:
  /// `owner` is the rank of each stage, `cut` its first block. Group and reductions are borrowed.
  stage_runner(process_group& group, nn::model_blocks<any_input, T> blocks, std::vector<int> owner,
               std::vector<std::size_t> cut, stage_reductions<T>& reductions)
      : group_(group), blocks_(std::move(blocks)), owner_(std::move(owner)), cut_(std::move(cut)),
        reductions_(reductions), routes_(blocks_, cut_) {}

  using batches = microbatches<T>;

  /// Collective. Returns the sum, on all ranks, of the figures of the last stage's results.
  /// Backward runs from their losses times `loss_scale`. Within no_grad nothing is recorded, and
  /// the table must only have forwards.
  nn::tally run(const pipeline_table& table, const batches& of, double loss_scale = 1) {
    loss_scale_ = loss_scale;
    const auto& actions = table.ranks[static_cast<std::size_t>(group_.rank())];
    const trace::span whole("step", "pipeline");
    stage_messages<T> messages(group_, table.stages, table.microbatches, routes_.widest(), of.site);
    try {
      for (const stage_action& a : actions) expect(messages, table, a);
    } catch (...) {
      fail(actions.front(), "before");
    }
    microbatch_states_.clear();
    for (const int rank : owner_) {
      microbatch_states_.emplace_back(rank == group_.rank() ? of.count : 0);
    }
    reductions_.begin_step(actions);
    spans_.clear();
    in_flight_ = peak_in_flight_ = 0;
    block_seconds_.assign(blocks_.size(), 0);
    message_bytes_ = 0;
    nn::tally figure;
    const auto start = clock::now();
    const auto now = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    for (const stage_action& a : actions) {
      try {
        const stage_values<T> given = take(messages, table, a);
        const trace::span traced(trace::enabled() ? to_string(a) : std::string(), "pipeline");
        spans_.push_back({a, now(), 0});
        act(messages, table, a, given, of, figure);
        spans_.back().end = now();
      } catch (...) {
        fail(a);
      }
    }
    std::array<double, 2> total{figure.sum, figure.count};
    try {
      messages.finish();
      broadcast(group_, total, {.root = owner_.back()}, of.site);
      reductions_.finish();
    } catch (...) {
      fail(actions.back(), "after");
    }
    return {total[0], total[1]};
  }

  /// The actions of the last run, in seconds from its start.
  [[nodiscard]] const std::vector<action_span>& spans() const noexcept { return spans_; }
  /// By block: the total time of its forwards in the last run; 0 for blocks of other ranks.
  [[nodiscard]] const std::vector<double>& block_seconds() const noexcept { return block_seconds_; }
  /// The longest result of a stage in the last run.
  [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
  /// The largest number of micro-batches, in the last run, that had run forward but not all of
  /// their backward.
  [[nodiscard]] int peak_in_flight() const noexcept { return peak_in_flight_; }

 private:
  using clock = std::chrono::steady_clock;
  using way = stage_direction;
  /// A micro-batch in a stage, from its forward to the last part of its backward.
  struct microbatch_state {
    std::vector<border<T>> inputs;
    std::vector<variable<T>> sent;  // unless it is the last stage: the graph, without values
    std::optional<weighted_loss<T>> loss;
    std::optional<backward_rest> rest;
    double count = 0;  // the loss's count
  };

  [[nodiscard]] std::size_t end_of(std::size_t stage) const noexcept {
    return stage + 1 < cut_.size() ? cut_[stage + 1] : blocks_.size();
  }
  [[nodiscard]] int owner(int stage) const { return owner_[static_cast<std::size_t>(stage)]; }
  [[nodiscard]] bool takes_result(const stage_action& a) const noexcept {
    return a.kind == stage_work::forward && a.stage > 0;
  }
  [[nodiscard]] static bool takes_gradient(const pipeline_table& table, const stage_action& a) {
    return makes_input_gradient(a.kind) && a.stage + 1 < table.stages;
  }
  void expect(stage_messages<T>& messages, const pipeline_table& table, const stage_action& a) {
    const int from = takes_result(a)            ? owner(a.stage - 1)
                     : takes_gradient(table, a) ? owner(a.stage + 1)
                                                : group_.rank();
    if (from == group_.rank()) return;
    const auto border = static_cast<std::size_t>(takes_result(a) ? a.stage : a.stage + 1);
    messages.expect(takes_result(a) ? way::onwards : way::backwards, a.stage, a.microbatch, from,
                    routes_.into(border).size());
  }
  [[nodiscard]] stage_values<T> take(stage_messages<T>& messages, const pipeline_table& table,
                                     const stage_action& a) {
    if (takes_result(a)) return messages.take(way::onwards, a.stage, a.microbatch);
    if (takes_gradient(table, a)) return messages.take(way::backwards, a.stage, a.microbatch);
    return {};
  }
  void pass(stage_messages<T>& messages, way direction, int stage, int microbatch,
            stage_values<T> what) {
    if (owner(stage) == group_.rank()) {
      messages.hand_over(direction, stage, microbatch, std::move(what));
    } else {
      messages.send(direction, stage, microbatch, owner(stage), std::move(what));
    }
  }

  void act(stage_messages<T>& messages, const pipeline_table& table, const stage_action& a,
           const stage_values<T>& given, const batches& of, nn::tally& figure) {
    if (!is_compute(a.kind)) return reductions_.reduce(a.stage);
    const auto stage = static_cast<std::size_t>(a.stage);
    const auto number = static_cast<std::size_t>(a.microbatch);
    microbatch_state& here = microbatch_states_[stage][number];
    if (a.kind == stage_work::forward) {
      forward(messages, table, a, here, given, of, figure);
      peak_in_flight_ = std::max(peak_in_flight_, ++in_flight_);
      return;
    }
    run_backward(messages, a, here, given);
  }

  /// One action of a backward: all of it, or a half.
  void run_backward(stage_messages<T>& messages, const stage_action& a, microbatch_state& here,
                    const stage_values<T>& given) {
    if (makes_weight_gradient(a.kind)) {
      // A second half has nothing to take: the count is there since the first.
      const double count = a.kind == stage_work::backward_weights ? here.count
                           : here.loss                            ? here.loss->count
                                                                  : given.count;
      reductions_.around_backward(a.stage, count, [&, this] { backward(a, here, given); });
    } else {
      backward(a, here, given);
    }
    if (makes_input_gradient(a.kind) && a.stage > 0) {
      stage_values<T> gradients{{}, here.count};
      for (const border<T>& each : here.inputs) {
        // An input without a gradient was not used: for example, the next block ignores it.
        gradients.values.push_back(each.has_gradient() ? each.gradient().sum : tensor<T>());
      }
      pass(messages, way::backwards, a.stage - 1, a.microbatch, std::move(gradients));
    }
    if (!makes_weight_gradient(a.kind)) return;
    here = {};
    --in_flight_;
  }

  void forward(stage_messages<T>& messages, const pipeline_table& table, const stage_action& a,
               microbatch_state& here, const stage_values<T>& given, const batches& of,
               nn::tally& figure) {
    const auto stage = static_cast<std::size_t>(a.stage);
    const auto number = static_cast<std::size_t>(a.microbatch);
    std::vector<variable<T>> results(routes_.has_skips() ? blocks_.size() : 0);
    variable<T> x;
    reductions_.around_forward(a.stage, [&, this] {
      of.with_input(number, [&, this](const any_input& input) {
        x = run_blocks(a, here, given, of, input, results);
      });
    });
    if (a.stage + 1 < table.stages) {
      std::vector<variable<T>> leaving{x};
      const std::vector<std::size_t>& sources = routes_.into(stage + 1);
      for (std::size_t i = 1; i < sources.size(); ++i) leaving.push_back(results[sources[i]]);
      keep_graph(leaving, here);
      stage_values<T> values;
      std::size_t bytes = 0;
      for (const variable<T>& each : leaving) {
        values.values.push_back(each.value());
        bytes += each.value().size() * sizeof(T);
      }
      message_bytes_ = std::max(message_bytes_, bytes);
      pass(messages, way::onwards, a.stage + 1, a.microbatch, std::move(values));
      return;
    }
    require_samples(of, number, "the loss");
    microbatch_result<T> made = of.result(number, x);
    figure += made.figure;
    if (!is_grad_enabled()) return;
    require(made.loss.has_value(), "the loss function of a step returns a weighted_loss");
    here.loss = detail::scaled(std::move(*made.loss), loss_scale_);
  }

  /// Returns the result of the stage's last block. Writes those that skip connections take to
  /// `results`.
  [[nodiscard]] variable<T> run_blocks(const stage_action& a, microbatch_state& here,
                                       const stage_values<T>& given, const batches& of,
                                       const any_input& input, std::vector<variable<T>>& results) {
    const auto stage = static_cast<std::size_t>(a.stage);
    const auto number = static_cast<std::size_t>(a.microbatch);
    variable<T> x;
    for (std::size_t i = 0; i < given.values.size() && a.stage > 0; ++i) {
      const auto each = is_grad_enabled()
                            ? variable<T>(here.inputs.emplace_back(given.values[i]))
                            : variable<T>(given.values[i]);
      if (i == 0) x = each;
      if (!results.empty()) results[routes_.into(stage)[i]] = each;
    }
    for (std::size_t b = cut_[stage]; b < end_of(stage); ++b) {
      std::vector<variable<T>> taken;
      for (const std::size_t from : routes_.taken_by(b)) taken.push_back(results[from]);
      if (blocks_[b].reads_input) require_samples(of, number, blocks_[b].name);
      const auto from = clock::now();
      x = blocks_[b].forward({std::move(x), std::move(taken)}, input);
      block_seconds_[b] += std::chrono::duration<double>(clock::now() - from).count();
      if (routes_.is_taken(b)) results[b] = x;
    }
    return x;
  }

  static void require_samples(const batches& of, std::size_t number, const std::string& reader) {
    require(of.has_samples(number),
            "the batch of this rank is empty, and {} reads it: give batches to the ranks where "
            "model.needs_input()",
            reader);
  }

  /// Keeps the graph for backward without the values of the results: the message or an operation
  /// holds those while it needs them. A leaf is the stage's own input, or a parameter.
  void keep_graph(const std::vector<variable<T>>& leaving, microbatch_state& here) {
    if (!is_grad_enabled()) return;
    for (const variable<T>& each : leaving) {
      here.sent.push_back(each.is_leaf() ? each
                                         : variable<T>(tensor<T>::without_memory(each.shape()),
                                                       each.node()));
    }
  }

  void backward(const stage_action& a, microbatch_state& here, const stage_values<T>& given) {
    if (a.kind == stage_work::backward_weights) {
      if (here.rest) here.rest->weights();
      return;
    }
    here.count = here.loss ? here.loss->count : given.count;
    const backward_options how{.count = reductions_.counts(a.stage) ? here.count : 0,
                               .of = gradient_of::sum};
    const bool in_halves = a.kind == stage_work::backward_inputs;
    if (here.loss && in_halves) {
      here.rest.emplace(here.loss->sum.backward_inputs(how));
    } else if (here.loss) {
      here.loss->sum.backward(how);
    } else if (auto [root, upstream] = root_of(here.sent, given.values); root.defined()) {
      if (in_halves) here.rest.emplace(root.backward_inputs_from(std::move(upstream), how));
      else root.backward_from(std::move(upstream), how);
    }
    // Frees the graph and the values that it held.
    here.loss.reset();
    here.sent.clear();
  }

  /// Where backward begins in a stage that is not the last, with the gradient there. Several
  /// results that have a gradient are joined in one node, which distributes the gradients to them;
  /// those that have none stay out, as if one process had run all stages. Not defined if there is
  /// nothing to do: no result has a gradient, or wants one (of a frozen stage).
  [[nodiscard]] static std::pair<variable<T>, tensor<T>> root_of(
      const std::vector<variable<T>>& sent, const std::vector<tensor<T>>& given) {
    std::vector<variable<T>> reached;
    std::vector<tensor<T>> gradients;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (!sent[i].requires_grad() || !given[i].defined()) continue;
      reached.push_back(sent[i]);
      gradients.push_back(given[i]);
    }
    if (reached.empty()) return {};
    const tensor<T> first = gradients.front();
    if (reached.size() == 1) return {reached.front(), first};
    return {differentiable_list(
                tensor<T>::without_memory(first.shape()),
                [all = std::move(gradients)](const tensor<T>&, std::size_t i, grad_sink<T> sink) {
                  sink.add(all[i]);
                },
                std::span<const variable<T>>(reached)),
            first};
  }

  /// Aborts the group on all ranks, whose errors name this rank and the place: "in" the action,
  /// "before" the first one or "after" the last. Throws the current exception: with the place, if
  /// it is of parx; as the cause of an error with the place, if communication has failed.
  [[noreturn]] void fail(const stage_action& a, const char* place = "in") {
    const std::string action =
        is_compute(a.kind)
            ? formatted("{} (stage {}, micro-batch {})", to_string(a), a.stage, a.microbatch)
            : to_string(a);
    const std::string where = formatted("pipeline: rank {} of group \"{}\" failed {} {}",
                                        group_.rank(), group_.name(), place, action);
    const std::exception_ptr cause = std::current_exception();
    if (!group_.closed() || group_.awaits_reason()) {
      group_.abort(where + "; caused by: " + text_of(cause));
    }
    try {
      throw;
    } catch (const error& known) {
      if (!is_communication_failure(known)) {
        throw error(known.code_value(), formatted("{}, {} {}", known.message(), place, action),
                    known.context(), known.cause());
      }
      throw error(known.code_value(), where,
                  {.operation = to_string(a),
                   .group = group_.name(),
                   .rank = group_.rank(),
                   .peer = known.context().peer,
                   .host = known.context().host},
                  cause);
    } catch (const usage_error& mistake) {
      throw_usage("{}, {} {}", mistake.what(), place, action);
    }
  }

  process_group& group_;
  nn::model_blocks<any_input, T> blocks_;
  std::vector<int> owner_;
  std::vector<std::size_t> cut_;
  stage_reductions<T>& reductions_;
  stage_routes routes_;
  std::vector<std::vector<microbatch_state>> microbatch_states_;  // by stage and micro-batch
  std::vector<action_span> spans_;
  std::vector<double> block_seconds_;
  double loss_scale_ = 1;
  std::size_t message_bytes_ = 0;
  int in_flight_ = 0, peak_in_flight_ = 0;
};

}  // namespace parx
