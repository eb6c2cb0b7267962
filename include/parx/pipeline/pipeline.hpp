// pipeline: trains a model whose stages lie on the ranks of a group.
//
//   parx::models::llama<> model{config};                 // shapes alone
//   parx::pipeline pipe{model, mesh["pp"], {.schedule = parx::schedules::zb1p, .microbatches = 8}};
//   parx::optim::adamw opt{pipe.parameters(), {.lr = 3e-4f}};
//   for (auto& batch : loader.epoch(e)) {
//     auto loss = pipe.step(batch, [](auto& logits, auto& b) {
//       return parx::nn::cross_entropy(logits, b.labels);
//     });                                                // (sum, count) on all ranks
//     opt.step();
//   }
//
// Each rank keeps values of its stages' parameters alone. All ranks get the same batch; the first
// stage looks at its inputs, the last at its labels, those between at masks if they need any. The
// gradient is that of the mean over the batch, whatever the sizes of the micro-batches. Stages sum
// gradients in the order of the micro-batches, so every schedule but looped BFS ends in the bits of
// one rank that adds up the same micro-batches. With a group of data-parallel ranks each stage is a
// ddp over it, whose sums begin with the last backward of that stage, in the pipeline's bubble.
// An error names the stage, the action and the micro-batch, and closes the group on all ranks.
// Threads: one, which uses both groups.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/border.hpp>
#include <parx/autograd/loss.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/warm_up.hpp>
#include <parx/core/hash.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/loss.hpp>
#include <parx/pipeline/batch.hpp>
#include <parx/pipeline/csv.hpp>
#include <parx/pipeline/cut.hpp>
#include <parx/pipeline/messages.hpp>
#include <parx/pipeline/one_f_one_b.hpp>
#include <parx/pipeline/simulate.hpp>
#include <parx/pipeline/stage_part.hpp>
#include <parx/pipeline/validate.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI {

struct pipeline_options {
  pipeline_schedule schedule = schedules::one_f_one_b;
  int microbatches = 8;
  int chunks = 1;  ///< stages of each rank, of the schedules that take several
  double hop = 0;  ///< see pipeline_shape; for eager 1F1B
  /// A table of your own (from_csv) instead of a schedule, for its number of micro-batches.
  std::optional<pipeline_table> table{};
  /// The first block of each stage, from 0. Empty: by `weights`.
  std::vector<std::size_t> cut{};
  /// What each block costs, in any unit, such as measured seconds. Empty: its parameters.
  std::vector<double> weights{};
  /// The ranks that have the same stages and different samples: mesh["dp"].
  process_group* data_parallel = nullptr;
  /// Of each stage's gradients over those; its reduction groups sum tied parameters.
  ddp_options reductions{};
};

template <typename Model, typename Input, typename T>
class pipeline {
 public:
  /// Collective over both groups. Proves the schedule, gives the parameters of this rank's stages
  /// their values, where they have none, and takes away those of the others. Model and groups are
  /// borrowed and must outlive this object; the model must not move. Throws usage_error for more
  /// stages than blocks and for a table that is not valid, parx::error (errc::mismatch) where ranks
  /// have different tables or cuts.
  pipeline(Model& model, nn::model_blocks<Input, T> blocks, process_group& group,
           pipeline_options options = {}, call_site site = call_site::current())
      : model_(model), blocks_(std::move(blocks)), group_(group), options_(std::move(options)),
        alone_(group.subgroup(std::array{group.rank()}, {.name = "one pipeline stage"}, site)) {
    const plan& first = plan_for(options_.microbatches);
    const auto stages = static_cast<std::size_t>(first.table.stages);
    owner_ = first.table.owners();
    require(blocks_.size() >= stages,
            "pipeline at {}:{}: {} stages need as many blocks, and the model has {}",
            site.file_name(), site.line, stages, blocks_.size());
    cut_ = options_.cut;
    if (cut_.empty()) cut_ = cut_by_weight(weights(), stages);
    check_cut(cut_, stages, blocks_.size());
    check_agreement(first.table, site);
    make_stages(site);
    open_links();
  }
  /// Of a model whose blocks() need no argument.
  explicit pipeline(Model& model, process_group& group, pipeline_options options = {},
                    call_site site = call_site::current())
      : pipeline(model, model.blocks(), group, std::move(options), site) {}
  pipeline(const pipeline&) = delete;
  pipeline& operator=(const pipeline&) = delete;

  /// Collective: one batch, forward and backward, in options.microbatches parts. loss_function(
  /// logits, micro-batch) returns a weighted_loss; it is called on the rank of the last stage.
  /// Returns the loss of this pipeline's batch, equal on all its ranks. Blocks until the gradients
  /// are what the optimizer should see.
  template <typename Batch, typename Loss>
  nn::tally step(const Batch& batch, Loss&& loss_function) {
    const std::vector<Batch> parts = split_batch(batch, options_.microbatches);
    return step(std::span<const Batch>(parts), loss_function);
  }
  /// The same of a batch that is cut already, into any number of parts where options.table is
  /// empty.
  template <typename Batch, typename Loss>
  nn::tally step(std::span<const Batch> microbatches, Loss&& loss_function) {
    return run(plan_for(static_cast<int>(microbatches.size())).table, microbatches, loss_function);
  }

  /// Collective: forwards alone, and nothing is recorded for backward. `figure`(logits,
  /// micro-batch) returns a weighted_loss or a tally (nn::accuracy).
  template <typename Batch, typename Figure>
  nn::tally evaluate(const Batch& batch, Figure&& figure) {
    const std::vector<Batch> parts = split_batch(batch, options_.microbatches);
    return evaluate(std::span<const Batch>(parts), figure);
  }
  template <typename Batch, typename Figure>
  nn::tally evaluate(std::span<const Batch> microbatches, Figure&& figure) {
    const no_grad guard;
    return run(plan_for(static_cast<int>(microbatches.size())).forwards, microbatches, figure);
  }

  /// Of this rank's stages, for an optimizer.
  [[nodiscard]] std::vector<parameter<T>> parameters() {
    std::vector<parameter<T>> all;
    own_->for_each_parameter([&](const std::string&, auto& each) { all.push_back(each); });
    return all;
  }
  /// This rank's stages as one module: parameters and buffers by their paths in the model.
  [[nodiscard]] stage_part<Model>& module() noexcept { return *own_; }
  void zero_grad() {
    own_->for_each_parameter([](const std::string&, auto& each) { each.zero_grad(); });
  }

  [[nodiscard]] process_group& group() noexcept { return group_; }
  [[nodiscard]] const pipeline_table& table() { return plan_for(options_.microbatches).table; }
  /// The first block of each stage.
  [[nodiscard]] const std::vector<std::size_t>& cut() const noexcept { return cut_; }
  /// Most forwards at a time whose backward, with its second half, was still to come, in the last
  /// step of this rank.
  [[nodiscard]] int peak_in_flight() const noexcept { return peak_in_flight_; }

  /// Collective: the last step as it ran, in seconds from where this rank entered it, to draw
  /// beside simulate(pipe.table()).
  [[nodiscard]] pipeline_timeline timeline(call_site site = call_site::current()) {
    const pipeline_table& table = *last_table_;
    std::size_t most = 0;
    for (const auto& each : table.ranks) most = std::max(most, each.size());
    std::vector<double> mine(2 * most), all(mine.size() * table.ranks.size());
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      mine[2 * i] = spans_[i].begin;
      mine[2 * i + 1] = spans_[i].end;
    }
    all_gather(group_, mine, all, {}, site);
    pipeline_timeline found{.name = table.name + " as it ran", .stages = table.stages, .ranks = {}};
    for (std::size_t rank = 0; rank < table.ranks.size(); ++rank) {
      auto& spans = found.ranks.emplace_back();
      for (std::size_t i = 0; i < table.ranks[rank].size(); ++i) {
        const double* const at = all.data() + 2 * (rank * most + i);
        spans.push_back({table.ranks[rank][i], at[0], at[1]});
      }
    }
    return found;
  }

 private:
  using clock = std::chrono::steady_clock;
  using way = stage_direction;
  struct plan {
    pipeline_table table, forwards;
  };
  /// A micro-batch in a stage, from its forward to the last part of its backward.
  struct passage {
    std::optional<border<T>> input;
    variable<T> output;  // of a stage that is not the last: the graph, without values
    std::optional<weighted_loss<T>> loss;
    std::optional<backward_rest> rest;
  };
  struct stage_state {
    stage_part<Model> part;
    std::unique_ptr<ddp<stage_part<Model>>> reductions;  // of a stage that has parameters
    std::vector<passage> passages;
    int backwards_left = 0;
  };

  const plan& plan_for(int microbatches) {
    const auto found = plans_.find(microbatches);
    if (found != plans_.end()) return found->second;
    require(microbatches > 0, "a step has at least one micro-batch");
    plan made;
    if (options_.table) {
      require(options_.table->microbatches == microbatches,
              "schedule {} is a table for {} micro-batches, not for {}", options_.table->name,
              options_.table->microbatches, microbatches);
      made.table = *options_.table;
    } else {
      made.table = options_.schedule({.ranks = group_.size(), .microbatches = microbatches,
                                      .chunks = options_.chunks, .hop = options_.hop});
    }
    require(static_cast<int>(made.table.ranks.size()) == group_.size(),
            "schedule {} is for {} ranks, and group \"{}\" has {}", made.table.name,
            made.table.ranks.size(), group_.name(), group_.size());
    static_cast<void>(validate(made.table));
    // Forwards depend on forwards alone: without the others, the order is still a valid one.
    made.forwards = made.table;
    for (auto& actions : made.forwards.ranks) {
      std::erase_if(actions, [](const auto& a) { return a.kind != stage_work::forward; });
      for (const stage_action& a : made.table.ranks[static_cast<std::size_t>(group_.rank())]) {
        require(a.kind != stage_work::unshard && a.kind != stage_work::reshard,
                "schedule {}: {}, but this pipeline's stages are not sharded", made.table.name,
                to_string(a));
      }
    }
    return plans_.emplace(microbatches, std::move(made)).first->second;
  }

  [[nodiscard]] std::vector<std::string> parts_of(std::size_t stage) const {
    std::vector<std::string> parts;
    for (std::size_t b = cut_[stage]; b < end_of(stage); ++b) {
      parts.insert(parts.end(), blocks_[b].parts.begin(), blocks_[b].parts.end());
    }
    return parts;
  }
  [[nodiscard]] std::size_t end_of(std::size_t stage) const {
    return stage + 1 < cut_.size() ? cut_[stage + 1] : blocks_.size();
  }
  [[nodiscard]] std::vector<double> weights() {
    if (!options_.weights.empty()) {
      require(options_.weights.size() == blocks_.size(),
              "pipeline_options::weights has {} weights for {} blocks", options_.weights.size(),
              blocks_.size());
      return options_.weights;
    }
    std::vector<double> found(blocks_.size());
    model_.for_each_parameter([&](const std::string& path, auto& each) {
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        if (is_within(path, blocks_[b].parts)) found[b] += static_cast<double>(each.size());
      }
    });
    return found;
  }

  void check_agreement(const pipeline_table& table, call_site site) {
    const std::string text =
        fmt::format("{}{}", to_csv(table), fmt::join(cut_.begin(), cut_.end(), ","));
    const std::uint64_t mine[] = {detail::fnv1a(text)};
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group_.size()));
    all_gather(group_, mine, all, {}, site);
    const auto other = std::find_if(all.begin(), all.end(), [&](auto each) { return each != *mine; });
    if (other == all.end()) return;
    throw_error(errc::mismatch,
                "pipeline at {}:{}: rank {} of group \"{}\" has another schedule, number of "
                "micro-batches or cut than rank {}, which has {} of {} micro-batches, cut at {}",
                site.file_name(), site.line, other - all.begin(), group_.name(), group_.rank(),
                table.name, table.microbatches, fmt::join(cut_, ", "));
  }

  void make_stages(call_site site) {
    std::vector<std::string> own;
    for (std::size_t s = 0; s < owner_.size(); ++s) {
      if (owner_[s] != group_.rank()) continue;
      const auto parts = parts_of(s);
      own.insert(own.end(), parts.begin(), parts.end());
    }
    own_.emplace(model_, std::move(own));
    model_.materialize_where([&](const std::string& path) { return own_->has(path); });
    model_.for_each_parameter([&](const std::string& path, auto& each) {
      if (!own_->has(path) && each.has_values()) each.forget_values();
    });
    for (std::size_t s = 0; s < owner_.size(); ++s) {
      stages_.push_back({stage_part<Model>(model_, parts_of(s)), nullptr, {}, 0});
    }
    process_group& data = options_.data_parallel != nullptr ? *options_.data_parallel : alone_;
    for (std::size_t s = 0; s < owner_.size(); ++s) {
      if (owner_[s] != group_.rank()) continue;
      bool has_parameters = false;
      stages_[s].part.for_each_parameter(
          [&](const std::string&, auto&) { has_parameters = true; });
      if (!has_parameters) continue;
      stages_[s].reductions = std::make_unique<ddp<stage_part<Model>>>(
          stages_[s].part, data, options_.reductions, site);
    }
  }

  /// The first message of a link takes milliseconds, which each stage in turn would wait for.
  void open_links() {
    std::vector<int> peers;
    for (std::size_t s = 0; s + 1 < owner_.size(); ++s) {
      const int a = owner_[s], b = owner_[s + 1];
      if (a == b || (a != group_.rank() && b != group_.rank())) continue;
      const int peer = a == group_.rank() ? b : a;
      if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
    }
    warm_up(group_, peers);
  }

  template <typename Batch, typename Loss>
  nn::tally run(const pipeline_table& table, std::span<const Batch> microbatches, Loss& loss) {
    const auto& actions = table.ranks[static_cast<std::size_t>(group_.rank())];
    stage_messages<T> messages(group_, table.stages, table.microbatches);
    for (const stage_action& a : actions) expect(messages, table, a);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].passages.clear();
      stages_[s].passages.resize(owner_[s] == group_.rank() ? microbatches.size() : 0);
      stages_[s].backwards_left = static_cast<int>(microbatches.size());
    }
    last_table_ = &table;
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
    messages.finish();
    std::array<double, 2> total{figure.sum, figure.count};
    broadcast(group_, total, {.root = owner_.back()});
    return {total[0], total[1]};
  }

  [[nodiscard]] static bool makes_input_gradient(const stage_action& a) noexcept {
    return a.kind == stage_work::backward || a.kind == stage_work::backward_inputs;
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
    stage_state& stage = stages_[static_cast<std::size_t>(a.stage)];
    const auto number = static_cast<std::size_t>(a.microbatch);
    passage& here = stage.passages[number];
    if (a.kind == stage_work::forward) {
      forward(messages, table, a, here, given, microbatches[number], loss, figure);
      peak_in_flight_ = std::max(peak_in_flight_, ++in_flight_);
      return;
    }
    // The sums over the data-parallel ranks leave with the last gradients.
    const bool makes_weights = a.kind != stage_work::backward_inputs;
    if (makes_weights && --stage.backwards_left > 0 && stage.reductions) {
      const auto adding = stage.reductions->no_sync();
      backward(a, here, given);
    } else {
      backward(a, here, given);
    }
    if (makes_input_gradient(a) && a.stage > 0) {
      border_gradient<T> made = here.input->gradient();
      pass(messages, way::backwards, a.stage - 1, a.microbatch,
           {std::move(made.sum), made.count});
    }
    if (!makes_weights) return;
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
    backward_options how{.of = gradient_of::sum};
    if (a.kind == stage_work::backward_weights) {
      here.rest->weights();
    } else if (here.loss && a.kind == stage_work::backward) {
      here.loss->backward(how);
    } else if (here.loss) {
      here.rest.emplace(here.loss->backward_inputs(how));
    } else if (a.kind == stage_work::backward) {
      how.count = given.count;
      here.output.backward_from(given.values, how);
    } else {
      how.count = given.count;
      here.rest.emplace(here.output.backward_inputs_from(given.values, how));
    }
    // What the graph and its values needed is not needed any more.
    here.loss.reset();
    here.output = {};
  }

  /// Tells all ranks, and throws what names the place beside the cause.
  [[noreturn]] void fail(const stage_action& a) {
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
    const std::string where =
        is_compute(a.kind)
            ? fmt::format("pipeline: rank {} of group \"{}\" failed in {} (stage {}, micro-batch {})",
                          group_.rank(), group_.name(), to_string(a), a.stage, a.microbatch)
            : fmt::format("pipeline: rank {} of group \"{}\" failed in {}", group_.rank(),
                          group_.name(), to_string(a));
    if (!group_.closed()) group_.abort(where + "; caused by: " + text_of(cause));
    throw error(code, where, std::move(context), cause);
  }

  Model& model_;
  nn::model_blocks<Input, T> blocks_;
  process_group& group_;
  const pipeline_options options_;
  process_group alone_;
  std::map<int, plan> plans_;
  std::vector<int> owner_;
  std::vector<std::size_t> cut_;
  std::optional<stage_part<Model>> own_;
  std::vector<stage_state> stages_;  // of all ranks; those of others are empty
  std::vector<action_span> spans_;
  const pipeline_table* last_table_ = nullptr;
  int in_flight_ = 0, peak_in_flight_ = 0;
};

template <typename Model>
pipeline(Model&, process_group&, pipeline_options = {})
    -> pipeline<Model, typename decltype(std::declval<Model&>().blocks())::value_type::input_type,
                typename decltype(std::declval<Model&>().blocks())::value_type::value_type>;

}  // namespace parx
