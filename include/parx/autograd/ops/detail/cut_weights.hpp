// What errors say where a weight is cut over ranks (tensor parallelism) and the layers around it do
// not follow.
//
// All is read from the graph, so nothing is known without gradients: an error then says less.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/autograd/detail/leaf.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

/// The node as a parameter, if this rank has only some indices of its axes; else null.
template <typename T>
[[nodiscard]] const leaf<T>* as_cut_weight(const node_base* node) {
  if (node == nullptr || !node->is_leaf) return nullptr;
  const auto* const found = dynamic_cast<const leaf<T>*>(node);
  const bool is_cut = found != nullptr && !found->spec.is_whole() && !found->spec.is_flat();
  return is_cut ? found : nullptr;
}

/// Calls accept(here, all) for the axes that are cut, with their extents; whether one is accepted.
template <typename T, typename Accept>
[[nodiscard]] bool has_cut_axis(const leaf<T>& weight, Accept accept) {
  const shape here = weight.spec.shape(), &all = weight.spec.global_shape();
  for (std::size_t axis = 0; axis < all.rank(); ++axis) {
    if (here[axis] != all[axis] && accept(here[axis], all[axis])) return true;
  }
  return false;
}

/// The nearest weight before `x` that is cut to the same fraction as x, of whose last axis `all`
/// are expected; null if there is none.
template <typename T>
[[nodiscard]] const leaf<T>* cut_weight_before(const variable<T>& x, std::size_t all) {
  const auto is_of_x = [&](std::size_t part, std::size_t whole) {
    return x.extent(-1) * whole == all * part;
  };
  std::vector<const node_base*> found{x.node().get()};
  for (std::size_t at = 0; at < found.size(); ++at) {
    const node_base* const node = found[at];
    if (node == nullptr) continue;
    const leaf<T>* const weight = as_cut_weight<T>(node);
    if (weight != nullptr && has_cut_axis(*weight, is_of_x)) return weight;
    for (std::size_t i = 0; i < node->inputs(); ++i) {
      if (std::find(found.begin(), found.end(), node->input(i)) == found.end())
        found.push_back(node->input(i));
    }
  }
  return nullptr;
}

/// Why an input does not fit a weight, of whose axes number `in` is that of the inputs, if one of
/// them is cut and the other is not; else "".
template <typename T>
[[nodiscard]] std::string why_cut_weights_do_not_fit(const variable<T>& x,
                                                     const variable<T>& weight, std::size_t in) {
  if (x.rank() == 0 || weight.rank() != 2) return "";
  const leaf<T>* const own = as_cut_weight<T>(weight.node().get());
  if (own != nullptr && own->spec.global_shape()[in] == x.extent(-1)) {
    return formatted(
        ". The weight is cut by row, to {}, so its input must be cut too: give the layer before it "
        "parx::tp::column in the plan",
        own->spec.text());
  }
  const leaf<T>* const before = cut_weight_before(x, weight.shape()[in]);
  if (before == nullptr) return "";
  return formatted(
      ". The input is only a part, because \"{}\" is cut by column, to {}: give this layer "
      "parx::tp::row in the plan",
      before->name, before->spec.text());
}

}  // namespace parx::detail
