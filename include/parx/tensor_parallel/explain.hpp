// explain: shows what a plan would do to a model, without cutting it and without a group.
//
//   const auto told = parx::tp::explain(model, lines, {.ranks = 4, .texts = 8, .positions = 128});
//   std::puts(told.table().c_str());
//
// It shows for each layer its rule, one rank's part of its parameters, and the collectives of a
// step with their bytes. It throws the same errors as parallelize(). Pure: the model is not
// changed. Bytes are the payload that a rank sends with bandwidth-optimal algorithms: 2 (n - 1) / n
// of the data for an all-reduce, half of that for an all-gather or reduce-scatter.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/tensor_parallel/plan.hpp>

namespace parx::inline PARX_ABI::tp {

struct explain_options {
  int ranks = 2;
  int rank = 0;               ///< the rank whose parts are shown
  std::size_t texts = 1;      ///< in a step
  std::size_t positions = 1;  ///< of each text
};

/// A layer that a plan cuts.
struct explained_layer {
  struct parameter {
    std::string name;
    shard_spec part;
    std::size_t bytes;  ///< of the values on this rank
  };
  std::string path;
  nn::layer_cut rule;
  std::vector<parameter> parameters = {};
  std::vector<nn::cut_message> messages = {};
};

/// The name of a collective, as in tables.
[[nodiscard]] constexpr const char* to_string(nn::cut_collective how) noexcept {
  return how == nn::cut_collective::all_reduce   ? "all-reduce"
         : how == nn::cut_collective::all_gather ? "all-gather"
                                                 : "reduce-scatter";
}

/// What a plan does to a model: layer by layer, parts, messages and bytes.
class explanation {
 public:
  explanation(explain_options options, std::size_t number_bytes)
      : options_(options), number_bytes_(number_bytes) {}

  [[nodiscard]] const std::vector<explained_layer>& layers() const noexcept { return layers_; }
  /// The number of classes if the logits are cut, else 0.
  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }
  /// The bytes of this rank's parts of all parameters.
  [[nodiscard]] std::size_t parameter_bytes() const noexcept { return here_bytes_; }
  /// The bytes that a rank sends in a step, and the number of collectives.
  [[nodiscard]] double bytes_a_step() const;
  [[nodiscard]] std::size_t collectives_a_step() const;
  /// A paragraph for each layer, then the totals.
  [[nodiscard]] std::string table() const;

  void add(explained_layer layer);
  void add_bytes(std::size_t here, std::size_t whole) noexcept {
    here_bytes_ += here;
    whole_bytes_ += whole;
  }
  void set_classes(std::size_t classes) noexcept { classes_ = classes; }

 private:
  template <typename Use>
  void for_each_message(Use use) const {
    for (const explained_layer& each : layers_) {
      for (const nn::cut_message& message : each.messages) use(message);
    }
  }
  [[nodiscard]] double bytes_of(const nn::cut_message& message) const;

  explain_options options_;
  std::size_t number_bytes_;
  std::vector<explained_layer> layers_;
  std::size_t classes_ = 0, here_bytes_ = 0, whole_bytes_ = 0;
};

namespace detail {

/// A layer of the model and the lines of the plan that match it.
struct planned_layer {
  std::string path;
  nn::cuttable_layer* layer = nullptr;
  bool is_attention = false, is_multi_head = false;
  std::vector<std::size_t> lines = {};
};

/// The layers of a model that can be cut.
template <typename Model>
[[nodiscard]] std::vector<planned_layer> planned_layers(Model& model, const plan& lines) {
  std::vector<planned_layer> layers;
  using multi_head = nn::multi_head_attention<typename nn::value_type_or_float<Model>::type>;
  model.for_each_module([&](const std::string& path, const nn::module_view& part) {
    if (part.cut == nullptr) return;
    planned_layer found{path, part.cut, part.type == typeid(nn::dot_product_attention),
                        part.type == typeid(multi_head)};
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (matches(lines[i].pattern, path)) found.lines.push_back(i);
    }
    layers.push_back(std::move(found));
  });
  return layers;
}

[[nodiscard]] std::string plan_table(const std::vector<planned_layer>& layers, const plan& lines);

/// Why these layers of a model can no longer be cut; "" if they can.
template <typename Model>
[[nodiscard]] std::string model_fault(Model& model, const std::vector<planned_layer>& layers) {
  std::string fault;
  model.for_each_parameter([&](const std::string& path, const auto& parameter) {
    const std::string_view layer(path.data(), std::min(path.rfind('.'), path.size()));
    const bool is_planned = std::any_of(layers.begin(), layers.end(), [&](const auto& each) {
      return each.path == layer && !each.lines.empty();
    });
    if (!fault.empty() || !is_planned) return;
    if (!parameter.spec().is_whole()) {
      fault = formatted("the model is cut already: this rank has only {} of \"{}\"",
                        parameter.spec().text(), path);
    }
  });
  return fault;
}

/// What is wrong with a plan; "" if nothing is.
[[nodiscard]] std::string plan_fault(const std::vector<planned_layer>& layers, const plan& lines,
                                     const nn::cut_place& where);

/// The explanation of a plan without faults.
template <typename Model>
[[nodiscard]] explanation explained(Model& model, const std::vector<planned_layer>& layers,
                                    const plan& lines, const explain_options& options) {
  using element = typename nn::value_type_or_float<Model>::type;
  explanation told(options, sizeof(arithmetic_type<element>));
  std::vector<std::pair<std::string, shard_spec>> cut;  // by the parameter's path
  for (const planned_layer& each : layers) {
    if (each.lines.empty()) continue;
    explained_layer layer{each.path, lines[each.lines[0]].rule};
    nn::layer_piece part =
        each.layer->part_on({options.rank, options.ranks}, layer.rule, each.path);
    layer.messages = std::move(part.messages);
    model.for_each_parameter([&](const std::string& path, auto& parameter) {
      const std::size_t dot = path.rfind('.');
      if (dot == std::string::npos || path.substr(0, dot) != each.path) return;
      using value = typename std::remove_cvref_t<decltype(parameter)>::value_type;
      const std::string name = path.substr(dot + 1);
      shard_spec here = shard_spec::whole(parameter.global_shape());
      for (const auto& known : part.cut) {
        if (known.name == name) here = known.part;
      }
      if (layer.rule.result == nn::cut_result::logits && parameter.global_shape().rank() == 2)
        told.set_classes(parameter.global_shape()[0]);
      cut.emplace_back(path, here);
      layer.parameters.push_back({name, here, here.size() * sizeof(value)});
    });
    told.add(std::move(layer));
  }
  if (told.classes() > 0) {
    using nn::cut_message;
    const auto reduced = [](const char* what, std::size_t numbers, std::size_t fixed = 0) {
      return cut_message{nn::cut_pass::forward, nn::cut_collective::all_reduce, what, numbers,
                         fixed};
    };
    told.add(
        {"(the loss)",
         head,
         {},
         {reduced("the largest logits", 1, 2), reduced("exponentials and labels' logits", 2)}});
  }
  model.for_each_parameter([&](const std::string& path, auto& parameter) {
    using value = typename std::remove_cvref_t<decltype(parameter)>::value_type;
    const auto known =
        std::find_if(cut.begin(), cut.end(), [&](const auto& each) { return each.first == path; });
    const std::size_t whole = parameter.global_shape().size();
    told.add_bytes((known == cut.end() ? whole : known->second.size()) * sizeof(value),
                   whole * sizeof(value));
  });
  return told;
}

}  // namespace detail

/// Throws usage_error, with a table of all layers, if a line of the plan matches no layer, two
/// lines match the same one, or a layer cannot be cut that way.
template <typename Model>
[[nodiscard]] explanation explain(Model& model, const plan& lines,
                                  const explain_options& options = {},
                                  call_site site = call_site::current()) {
  require(options.ranks > 0 && options.rank >= 0 && options.rank < options.ranks,
          "explain at {}: there is no rank {} of {}", site, options.rank, options.ranks);
  const std::vector<detail::planned_layer> layers = detail::planned_layers(model, lines);
  const std::string fault = detail::plan_fault(layers, lines, {options.rank, options.ranks});
  require(fault.empty(), "explain at {}: {}. The layers and their rules:{}", site, fault,
          detail::plan_table(layers, lines));
  return detail::explained(model, layers, lines, options);
}

}  // namespace parx::tp

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/tensor_parallel/detail/explain_impl.hpp>
#endif
