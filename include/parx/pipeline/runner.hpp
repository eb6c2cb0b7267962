// stage_runner: runs any valid table over the stages of this rank.
//
// A forward takes what the stage before made, a backward what the stage behind made, of which the
// receive was posted before the first action. What a stage made goes on at once, and its values are
// let go of as soon as the message and the graph need them no more. The last whole backward of a
// rank runs in halves: what the stage before waits for leaves ahead of the sums over ranks.
// Threads: one, which uses the group.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/border.hpp>
#include <parx/autograd/loss.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/loss.hpp>
#include <parx/pipeline/batch.hpp>
#include <parx/pipeline/messages.hpp>
#include <parx/pipeline/simulate.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI {

/// Whether others follow a backward that makes gradients of parameters, in a step of this rank.
enum class stage_backward { not_last, last };

template <typename Input, typename T>
class stage_runner {
 public:
  /// Runs such a backward, within whatever tells the wrapper of the parameters that others follow.
  using around_backward =
      std::function<void(stage_backward which, const std::function<void()>& backward)>;

  /// `owner` is the rank of each stage, `cut` its first block. A wrapper of several stages adds
  /// the counts of their backwards up: that of the loss is told with those of stage `counted`, and
  /// 0 with the others. The group is borrowed.
  stage_runner(process_group& group, nn::model_blocks<Input, T> blocks, std::vector<int> owner,
               std::vector<std::size_t> cut, int counted, around_backward around)
      : group_(group), blocks_(std::move(blocks)), owner_(std::move(owner)), cut_(std::move(cut)),
        counted_(counted), around_(std::move(around)) {}

  /// Collective. Returns the sum of what loss(result of the last stage, micro-batch) returned, on
  /// all ranks. Records for backward unless within no_grad, where the table has forwards alone.
  template <typename Batch, typename Loss>
  nn::tally run(const pipeline_table& table, std::span<const Batch> microbatches, Loss& loss) {
    const auto& actions = table.ranks[static_cast<std::size_t>(group_.rank())];
    stage_messages<T> messages(group_, table.stages, table.microbatches);
    try {
      for (const stage_action& a : actions) expect(messages, table, a);
    } catch (...) {
      fail(actions.front(), "before");
    }
    passages_.clear();
    for (const int rank : owner_) {
      passages_.emplace_back(rank == group_.rank() ? microbatches.size() : 0);
    }
    backwards_left_ = std::count_if(actions.begin(), actions.end(), makes_weight_gradient);
    spans_.clear();
    in_flight_ = peak_in_flight_ = 0;
    nn::tally figure;
    const auto start = clock::now();
    const auto now = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    for (const stage_action& a : actions) {
      try {
        const stage_values<T> given = take(messages, table, a);
        const trace::span traced(to_string(a.kind), "pipeline");
        spans_.push_back({a, now(), 0});
        act(messages, table, a, given, microbatches, loss, figure);
        spans_.back().end = now();
      } catch (...) {
        fail(a);
      }
    }
    std::array<double, 2> total{figure.sum, figure.count};
    try {
      messages.finish();
      broadcast(group_, total, {.root = owner_.back()});
    } catch (...) {
      fail(actions.back(), "behind");
    }
    return {total[0], total[1]};
  }

  /// Of the last run, in seconds from its start.
  [[nodiscard]] const std::vector<action_span>& spans() const noexcept { return spans_; }
  /// Most forwards at a time, in the last run, of which some backward was still to come.
  [[nodiscard]] int peak_in_flight() const noexcept { return peak_in_flight_; }

 private:
  using clock = std::chrono::steady_clock;
  using way = stage_direction;
  /// A micro-batch in a stage, from its forward to the last part of its backward.
  struct passage {
    std::optional<border<T>> input;
    variable<T> output;  // of a stage that is not the last: the graph, without values
    std::optional<weighted_loss<T>> loss;
    std::optional<backward_rest> rest;
    double count = 0;  // of the loss
  };

  [[nodiscard]] std::size_t end_of(std::size_t stage) const noexcept {
    return stage + 1 < cut_.size() ? cut_[stage + 1] : blocks_.size();
  }
  [[nodiscard]] static bool makes_input_gradient(const stage_action& a) noexcept {
    return a.kind == stage_work::backward || a.kind == stage_work::backward_inputs;
  }
  [[nodiscard]] static bool makes_weight_gradient(const stage_action& a) noexcept {
    return a.kind == stage_work::backward || a.kind == stage_work::backward_weights;
  }
  [[nodiscard]] int owner(int stage) const { return owner_[static_cast<std::size_t>(stage)]; }
  [[nodiscard]] bool takes_result(const stage_action& a) const noexcept {
    return a.kind == stage_work::forward && a.stage > 0;
  }
  [[nodiscard]] static bool takes_gradient(const pipeline_table& table, const stage_action& a) {
    return makes_input_gradient(a) && a.stage + 1 < table.stages;
  }
  void expect(stage_messages<T>& messages, const pipeline_table& table, const stage_action& a) {
    const int from = takes_result(a)            ? owner(a.stage - 1)
                     : takes_gradient(table, a) ? owner(a.stage + 1)
                                                : group_.rank();
    if (from == group_.rank()) return;
    messages.expect(takes_result(a) ? way::onwards : way::backwards, a.stage, a.microbatch, from);
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

  template <typename Batch, typename Loss>
  void act(stage_messages<T>& messages, const pipeline_table& table, const stage_action& a,
           const stage_values<T>& given, std::span<const Batch> microbatches, Loss& loss,
           nn::tally& figure) {
    if (!is_compute(a.kind)) return;  // REDUCE_GRAD: the sums begin with the last backward
    const auto stage = static_cast<std::size_t>(a.stage);
    const auto number = static_cast<std::size_t>(a.microbatch);
    passage& here = passages_[stage][number];
    if (a.kind == stage_work::forward) {
      forward(messages, table, a, here, given, microbatches[number], loss, figure);
      peak_in_flight_ = std::max(peak_in_flight_, ++in_flight_);
      return;
    }
    if (a.kind == stage_work::backward && a.stage > 0 && backwards_left_ == 1) {
      // The wrapper waits for sums with other ranks, and some may wait for what this one sends.
      const stage_action inputs{stage_work::backward_inputs, a.stage, a.microbatch};
      const stage_action weights{stage_work::backward_weights, a.stage, a.microbatch};
      run_backward(messages, inputs, here, given);
      run_backward(messages, weights, here, given);
    } else {
      run_backward(messages, a, here, given);
    }
  }

  /// One action of a backward: all of it, or a half.
  void run_backward(stage_messages<T>& messages, const stage_action& a, passage& here,
              const stage_values<T>& given) {
    if (makes_weight_gradient(a)) {
      around_(--backwards_left_ == 0 ? stage_backward::last : stage_backward::not_last,
              [&] { backward(a, here, given); });
    } else {
      backward(a, here, given);
    }
    if (makes_input_gradient(a) && a.stage > 0) {
      pass(messages, way::backwards, a.stage - 1, a.microbatch,
           {here.input->gradient().sum, here.count});
    }
    if (!makes_weight_gradient(a)) return;
    here = {};
    --in_flight_;
  }

  template <typename Batch, typename Loss>
  void forward(stage_messages<T>& messages, const pipeline_table& table, const stage_action& a,
               passage& here, const stage_values<T>& given, const Batch& batch, Loss& loss,
               nn::tally& figure) {
    const auto stage = static_cast<std::size_t>(a.stage);
    variable<T> x;
    if (a.stage > 0 && detail::recording()) {
      x = here.input.emplace(given.values);
    } else if (a.stage > 0) {
      x = given.values;
    }
    for (std::size_t b = cut_[stage]; b < end_of(stage); ++b) {
      x = blocks_[b].forward(x, input_of<Input>(batch));
    }
    if (a.stage + 1 < table.stages) {
      // Whoever needs the values, the message or an operation, holds them.
      here.output = variable<T>(tensor<T>::without_memory(x.shape()), x.node());
      pass(messages, way::onwards, a.stage + 1, a.microbatch, {x.value(), 0});
      return;
    }
    auto made = loss(x, batch);
    if constexpr (std::is_same_v<decltype(made), weighted_loss<T>>) {
      figure += {static_cast<double>(made.sum.item()), made.count};
      if (detail::recording()) here.loss = std::move(made);
    } else {
      require(!detail::recording(), "the loss function of a step returns a weighted_loss");
      figure += made;
    }
  }

  void backward(const stage_action& a, passage& here, const stage_values<T>& given) {
    // A first stage whose parameters are all frozen has nothing to do.
    if (!here.loss && !here.rest && !here.output.requires_grad()) return;
    if (a.kind != stage_work::backward_weights) {
      here.count = here.loss ? here.loss->count : given.count;
    }
    const backward_options how{.count = a.stage == counted_ ? here.count : 0,
                               .of = gradient_of::sum};
    const bool in_halves = a.kind == stage_work::backward_inputs;
    if (a.kind == stage_work::backward_weights) {
      here.rest->weights();
    } else if (here.loss && in_halves) {
      here.rest.emplace(here.loss->sum.backward_inputs(how));
    } else if (here.loss) {
      here.loss->sum.backward(how);
    } else if (in_halves) {
      here.rest.emplace(here.output.backward_inputs_from(given.values, how));
    } else {
      here.output.backward_from(given.values, how);
    }
    // What the graph and its values needed is not needed any more.
    here.loss.reset();
    here.output = {};
  }

  /// Tells all ranks, and throws what names the place beside the cause: in the action, before the
  /// first one or behind the last.
  [[noreturn]] void fail(const stage_action& a, const char* place = "in") {
    const std::exception_ptr cause = std::current_exception();
    errc code = errc::aborted;
    error_context context{.operation = to_string(a), .group = group_.name(), .rank = group_.rank()};
    try {
      std::rethrow_exception(cause);
    } catch (const error& known) {
      code = known.code_value();
      context.peer = known.context().peer;
      context.host = known.context().host;
    } catch (...) {
    }
    const std::string action =
        is_compute(a.kind)
            ? fmt::format("{} (stage {}, micro-batch {})", to_string(a), a.stage, a.microbatch)
            : to_string(a);
    const std::string where = fmt::format("pipeline: rank {} of group \"{}\" failed {} {}",
                                          group_.rank(), group_.name(), place, action);
    if (!group_.closed()) group_.abort(where + "; caused by: " + text_of(cause));
    throw error(code, where, std::move(context), cause);
  }

  process_group& group_;
  nn::model_blocks<Input, T> blocks_;
  std::vector<int> owner_;
  std::vector<std::size_t> cut_;
  int counted_;
  around_backward around_;
  std::vector<std::vector<passage>> passages_;  // by stage and micro-batch
  std::ptrdiff_t backwards_left_ = 0;
  std::vector<action_span> spans_;
  int in_flight_ = 0, peak_in_flight_ = 0;
};

}  // namespace parx
