// concat: tensors joined along an axis.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// The parts one after another along `axis`; all other extents must be equal. Throws usage_error
/// naming the shapes that differ.
template <typename T>
[[nodiscard]] variable<T> concat(std::span<const variable<T>> parts, int axis = 0,
                                 call_site = call_site::current()) {
  require(!parts.empty(), "concat needs at least one part");
  shape whole = parts[0].shape();
  const std::size_t along = resolve_axis(axis, whole);
  std::vector<std::size_t, pool_allocator<std::size_t>> begin;
  begin.reserve(parts.size());
  whole[along] = 0;
  for (const variable<T>& part : parts) {
    shape rest = part.shape();
    if (rest.rank() == whole.rank()) rest[along] = whole[along];
    require(rest == whole, "shapes {} and {} cannot be joined along axis {}",
            to_string(parts[0].shape()), to_string(part.shape()), axis);
    begin.push_back(whole[along]);
    whole[along] += part.shape()[along];
  }
  tensor<T> joined = tensor<T>::empty(whole);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t extent = parts[i].shape()[along];
    joined.slice(axis, begin[i], begin[i] + extent).copy_from(parts[i].value());
  }
  return differentiable_list(
      std::move(joined),
      [axis, along, begin = std::move(begin)](const tensor<T>& upstream, std::size_t i,
                                              grad_sink<T> part) {
        part.add(upstream.slice(axis, begin[i], begin[i] + part.shape()[along]));
      },
      parts);
}
template <typename T>
[[nodiscard]] variable<T> concat(std::initializer_list<variable<T>> parts, int axis = 0,
                                 call_site = call_site::current()) {
  return concat(std::span<const variable<T>>(parts.begin(), parts.size()), axis);
}
/// For other arguments: a compile-time error that says what to do.
template <typename T, typename... More>
variable<T> concat(const variable<T>& first, const variable<T>&, const More&...) {
  static_assert(std::is_void_v<T>, "the parts go in braces: concat({a, b}, 1)");
  return first;
}

}  // namespace parx
