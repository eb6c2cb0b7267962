// joined_rows: the results of a batch's micro-batches as one tensor, on all stages of a pipeline.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// Joins `parts`, which rank `last` of `stages` has, along axis 0. Collective over `stages`; null:
/// local. Throws usage_error, on rank `last` alone, for parts that are no rows of one shape.
template <typename T>
[[nodiscard]] tensor<T> joined_rows(std::vector<tensor<T>> parts, process_group* stages, int last,
                                    call_site site) {
  if (stages != nullptr && stages->rank() != last) parts.clear();
  std::vector<std::size_t> extents;
  for (const tensor<T>& each : parts) {
    const std::vector<std::size_t> its(each.shape().begin(), each.shape().end());
    require(!its.empty(), "outputs at {}: the model's result is one number, not rows", site);
    if (extents.empty()) {
      extents = its;
      continue;
    }
    require(std::equal(its.begin() + 1, its.end(), extents.begin() + 1, extents.end()),
            "outputs at {}: micro-batches have results of {} and {}: pad them alike", site,
            to_string(parts.front().shape()), to_string(each.shape()));
    extents.front() += its.front();
  }
  if (stages != nullptr) broadcast_object(*stages, extents, {.root = last}, site);
  tensor<T> all = tensor<T>::empty(shape(extents));
  T* to = all.data();
  for (const tensor<T>& each : parts) to = std::copy_n(each.data(), each.size(), to);
  if (stages != nullptr) broadcast(*stages, all.span(), {.root = last}, site);
  return all;
}

}  // namespace parx
