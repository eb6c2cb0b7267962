// parallelize: cuts the layers of a model over the ranks of a group, by the lines of a plan.
//
//   parx::models::llama<> model{config};                        // shapes only
//   auto tp = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
//   model.initialize(seed);                                     // or a checkpoint
//   parx::ddp ddp{model, mesh["dp"]};                           // the ranks beside
//   tp.cross_entropy(ddp(batch.x), batch.y).backward();
//   tp.clip_grad_norm(model.parameters(), 1.0);
//
// All ranks of the group get the same samples, have the same seed, and find the loss and the
// gradients that one process would: first values and dropout do not depend on the number of ranks.
// What is cut is each rank's part; what is whole has the same value and gradient on all.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/autograd/ops/across.hpp>
#include <parx/autograd/ops/vocabulary.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/core/check.hpp>
#include <parx/core/hash.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/cut.hpp>
#include <parx/optim/clip.hpp>
#include <parx/tensor_parallel/axis.hpp>
#include <parx/tensor_parallel/plan.hpp>

namespace parx::inline PARX_ABI {

/// What parallelize() did, for whoever trains the model. The model refers to the axis, too.
class parallelized {
 public:
  parallelized(std::shared_ptr<tp::axis> axis, std::size_t classes, std::string table)
      : axis_(std::move(axis)), classes_(classes), table_(std::move(table)) {}

  [[nodiscard]] tp::axis& axis() const noexcept { return *axis_; }
  /// A line a layer: its rule, the part of its parameters here, and what it sends.
  [[nodiscard]] const std::string& table() const noexcept { return table_; }

  /// nn::cross_entropy of what the model returns where its vocabulary is cut: the logits of the
  /// classes here. Two reductions of a few numbers a row; the same result on all ranks.
  template <typename T, std::integral Label>
  [[nodiscard]] weighted_loss<T> cross_entropy(const variable<T>& logits,
                                               const tensor<Label>& labels,
                                               const cross_entropy_options& options = {},
                                               call_site site = call_site::current()) const {
    if (classes_ == 0) return parx::cross_entropy(logits, labels, options, site);
    return vocab_cross_entropy(*axis_, logits, classes_, labels, options, site);
  }
  /// All classes of such logits, on all ranks: for sampling. One all-gather.
  template <typename T>
  [[nodiscard]] variable<T> whole_logits(const variable<T>& logits) const {
    if (classes_ == 0) return logits;
    return across::gather(*axis_, logits, -1, across::whole_gradient::same, classes_);
  }

  /// For save_sharded and checkpoints (checkpoint/sharded.hpp): `world` are all ranks, `replicas`
  /// those that have the same parts (data parallel). Nothing is gathered; what several ranks have
  /// they write together. Loads at any number of ranks and any cut.
  [[nodiscard]] sharding sharded_over(const process_group& world,
                                      const process_group& replicas) const {
    require(world.size() == axis_->size() * replicas.size(),
            "sharded_over: {} ranks with {} parts and {} copies of each", world.size(),
            axis_->size(), replicas.size());
    sharding how = spread_over(world);
    how.copies = [parts = place_in(replicas), all = place_in(world)](
                     const auto&, const shard_spec& part) { return part.is_whole() ? all : parts; };
    return how;
  }
  /// The same where the axis is all ranks.
  [[nodiscard]] sharding sharded() const {
    sharding how = spread_over(axis_->group());
    how.copies = [all = how.file](const auto&, const shard_spec& part) {
      return part.is_whole() ? all : shard_place{};
    };
    return how;
  }

  /// optim::clip_grad_norm by the norm of all parts, of which whole parameters count once. One
  /// all-reduce of 4 KiB.
  template <typename T>
  double clip_grad_norm(const std::vector<parameter<T>>& parameters, double max_norm) const {
    std::vector<parameter<T>> counted;
    for (const parameter<T>& each : parameters) {
      if (axis_->rank() == 0 || !each.spec().is_whole()) counted.push_back(each);
    }
    auto squares = optim::grad_squares(optim::targets_of(counted));
    all_reduce(axis_->group(), squares.words());
    optim::scale_grad(optim::targets_of(parameters), squares.norm(), max_norm);
    return squares.norm();
  }

 private:
  [[nodiscard]] static shard_place place_in(const process_group& group) {
    return {static_cast<std::size_t>(group.rank()), static_cast<std::size_t>(group.size())};
  }
  [[nodiscard]] static sharding spread_over(const process_group& world) {
    return {.file = place_in(world), .copies = {}, .others = place_in(world)};
  }

  std::shared_ptr<tp::axis> axis_;
  std::size_t classes_;
  std::string table_;
};

namespace detail {

/// A layer of the model and the line of the plan that is for it.
struct planned_layer {
  std::string path;
  nn::cuttable_layer* layer = nullptr;
  bool is_attention = false;
  std::vector<std::size_t> lines;
};

[[nodiscard]] inline std::string plan_table(const std::vector<planned_layer>& layers,
                                            const tp::plan& lines) {
  std::string table;
  for (const planned_layer& each : layers) {
    table += fmt::format("\n  {:<44}", each.path);
    if (each.lines.empty()) table += " whole";
    for (const std::size_t line : each.lines) {
      table += fmt::format(" {} (by \"{}\")", tp::to_string(lines[line].rule), lines[line].pattern);
    }
  }
  return table;
}

/// What is wrong with a plan, "" for nothing.
[[nodiscard]] inline std::string plan_fault(const std::vector<planned_layer>& layers,
                                            const tp::plan& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool used = std::any_of(layers.begin(), layers.end(), [&](const planned_layer& each) {
      return std::find(each.lines.begin(), each.lines.end(), i) != each.lines.end();
    });
    if (!used) return fmt::format("no layer matches \"{}\"", lines[i].pattern);
  }
  for (const planned_layer& each : layers) {
    if (each.lines.size() > 1) {
      return fmt::format("\"{}\" is matched by both \"{}\" and \"{}\"", each.path,
                         lines[each.lines[0]].pattern, lines[each.lines[1]].pattern);
    }
    if (!each.is_attention) continue;
    const std::string within = each.path + ".";
    const bool has_columns =
        std::any_of(layers.begin(), layers.end(), [&](const planned_layer& other) {
          return other.path.starts_with(within) && !other.lines.empty() &&
                 lines[other.lines[0]].rule.how == nn::cut::columns;
        });
    if (has_columns == each.lines.empty()) {
      return fmt::format("\"{}\" {}", each.path,
                         has_columns ? "lies whole, but its queries, keys or values are cut by "
                                       "column: give it the rule heads"
                                     : "has the rule heads, but none of its queries, keys and "
                                       "values is cut by column");
    }
  }
  return "";
}

/// What a layer with this rule sends, and of what. The layers that read one input sum its gradient
/// once.
[[nodiscard]] inline std::string traffic_of(const nn::layer_cut& rule) {
  const bool positions = rule.between == nn::between_cuts::positions;
  switch (rule.how) {
    case nn::cut::columns:
      return positions ? "forward all-gather, backward reduce-scatter of its input"
                       : "backward all-reduce of its input's gradient";
    case nn::cut::rows:
      return positions ? "forward reduce-scatter, backward all-gather of its result"
                       : "forward all-reduce of its result";
    case nn::cut::vocabulary:
      return positions ? "forward reduce-scatter, backward all-gather of its result"
                       : "forward all-reduce of its result";
    case nn::cut::positions:
      return "backward all-reduce of its parameters' gradients";
    case nn::cut::to_positions:
      return "backward all-gather of its result";
    case nn::cut::heads:
      break;
  }
  return "nothing";
}

}  // namespace detail

/// Collective over the group, which is borrowed and outlives the model. The model is a module that
/// has no values yet: what is cut is never whole in memory. Throws usage_error, with a table of all
/// layers, for a plan whose lines match no layer or one twice, contradict each other, cannot be cut
/// so or differ between ranks; the model is not to be used then.
template <typename Model>
[[nodiscard]] parallelized parallelize(Model& model, process_group& group, const tp::plan& lines,
                                       call_site site = call_site::current()) {
  std::vector<detail::planned_layer> layers;
  model.for_each_module([&]<typename Part>(const std::string& path, Part& part) {
    if constexpr (std::derived_from<Part, nn::cuttable_layer>) {
      detail::planned_layer found{path, &part, std::same_as<Part, nn::dot_product_attention>, {}};
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (tp::matches(lines[i].pattern, path)) found.lines.push_back(i);
      }
      layers.push_back(std::move(found));
    }
  });
  const std::string who = fmt::format("parallelize at {}:{}", site.file_name(), site.line);
  const std::string fault = detail::plan_fault(layers, lines);
  const std::string shown = detail::plan_table(layers, lines);
  const auto digest = static_cast<std::int64_t>(detail::fnv1a(shown + fault) >> 1);
  std::int64_t range[] = {digest, -digest};
  all_reduce(group, range, {.op = reduce_op::max}, site);
  require(fault.empty(), "{}: {}. The layers and their rules:{}", who, fault, shown);
  require(range[0] == -range[1],
          "{}: the ranks of {} have different plans or models. Here the rules are:{}", who,
          group.name(), shown);

  const auto axis = std::make_shared<tp::axis>(group, site);
  std::string table = fmt::format("{} ranks\n", group.size());
  std::size_t classes = 0;
  for (const detail::planned_layer& each : layers) {
    if (each.lines.empty()) continue;
    const nn::layer_cut& rule = lines[each.lines[0]].rule;
    each.layer->lie_on(axis, rule, each.path);
    table +=
        fmt::format("{:<44} {:<28} {}\n", each.path, tp::to_string(rule), detail::traffic_of(rule));
    model.for_each_parameter([&](const std::string& path, auto& parameter) {
      if (path.substr(0, path.rfind('.')) != each.path) return;
      using value = typename std::remove_cvref_t<decltype(parameter)>::value_type;
      if (rule.result == nn::cut_result::logits) classes = parameter.global_shape()[0];
      const shard_spec& part = parameter.spec();
      table += fmt::format("  {}, {} bytes", part.text(), parameter.size() * sizeof(value));
      if (part.global_shape().rank() == 2 && !part.cuts().empty()) {
        // Both ways together, by a ring, whether whole or by positions.
        const double both_ways = 2.0 * (group.size() - 1) / group.size();
        const auto width = static_cast<double>(part.global_shape()[1 - part.cuts()[0].axis]);
        table += fmt::format("; sends {} bytes a token", both_ways * width * sizeof(value));
      }
      table += '\n';
    });
  }
  return {axis, classes, std::move(table)};
}

}  // namespace parx
