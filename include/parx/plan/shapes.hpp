// model_shapes: the model, as input of a plan: its parameters by path, and the units in which a
// wrapper gathers and reduces them. It has no values, so a laptop can plan a model of any size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/distributed_module.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

enum class table_rows {
  none,       ///< not a table: every step uses all of the parameter
  of_a_batch  ///< a step only uses the rows that its batch looks up
};

/// A parameter, by its path and shape.
struct planned_parameter {
  std::string path;
  parx::shape extents = {};
  dtype type = dtype::float32;
  table_rows rows = table_rows::none;
  bool trainable = true;
  std::size_t unit = 0;  ///< index in model_shapes::units

  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : extents) product *= extent;
    return product;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * size_of(type); }
};

struct model_shapes {
  /// Paths, in the order of forward. The first is "", the root: all that is in no other unit.
  std::vector<std::string> units = {""};
  std::vector<planned_parameter> parameters = {};

  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t sum = 0;
    for (const planned_parameter& each : parameters) sum += each.count();
    return sum;
  }
};

/// The first components of `path`, as many as `pattern` has, if they match it, else nullopt. A
/// component "*" matches any.
[[nodiscard]] inline std::optional<std::string_view> matched_prefix(std::string_view path,
                                                                    std::string_view pattern) {
  std::size_t end = 0;
  while (true) {
    const std::size_t dot = std::min(path.find('.', end), path.size());
    const std::string_view wanted = pattern.substr(0, pattern.find('.'));
    if (wanted != "*" && wanted != path.substr(end, dot - end)) return std::nullopt;
    if (wanted.size() == pattern.size()) return path.substr(0, dot);
    if (dot == path.size()) return std::nullopt;
    pattern.remove_prefix(wanted.size() + 1);
    end = dot + 1;
  }
}

/// The shapes of `model`, which needs no values. `units` are paths of modules, in which "*" stands
/// for any one component: "transformer.h.*" makes each layer a unit. An embedding of at least 256
/// KiB that is only looked up in is a table. Throws usage_error for a pattern that matches nothing.
template <distributed_module M>
[[nodiscard]] model_shapes shapes_of(M& model, std::span<const std::string> units = {}) {
  constexpr std::size_t least_table = std::size_t{1} << 18U;
  model_shapes shapes;
  std::vector<bool> used(units.size(), false);
  model.for_each_parameter([&](const std::string& path, auto& p) {
    const auto handle = make_parameter_handle(path, p);
    planned_parameter next{.path = path, .extents = handle->shape(), .type = handle->type()};
    if constexpr (requires { p.requires_grad(); }) next.trainable = p.requires_grad();
    const row_gradient_part* const rows = handle->row_gradient();
    if (rows != nullptr && rows->expects_row_grad() && handle->bytes() >= least_table) {
      next.rows = table_rows::of_a_batch;
    }
    for (std::size_t i = 0; i < units.size(); ++i) {
      const auto unit = matched_prefix(path, units[i]);
      if (!unit) continue;
      used[i] = true;
      const auto known = std::find(shapes.units.begin(), shapes.units.end(), *unit);
      next.unit = static_cast<std::size_t>(known - shapes.units.begin());
      if (known == shapes.units.end()) shapes.units.emplace_back(*unit);
      break;
    }
    shapes.parameters.push_back(std::move(next));
  });
  for (std::size_t i = 0; i < units.size(); ++i) {
    require(used[i], "shapes_of: the model has no parameter in a module \"{}\"", units[i]);
  }
  return shapes;
}
template <distributed_module M>
[[nodiscard]] model_shapes shapes_of(M& model, std::initializer_list<std::string> units) {
  return shapes_of(model, std::span(units.begin(), units.size()));
}

}  // namespace parx
