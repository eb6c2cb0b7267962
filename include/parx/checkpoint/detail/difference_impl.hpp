// Definitions of difference.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <parx/checkpoint/difference.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI::detail {

/// Elements [begin, begin + to.size()) of a tensor.
PARX_INLINE void read_doubles(const safetensors_shards& from, const stored_tensor& tensor,
                              std::size_t begin, std::span<double> to) {
  std::vector<std::byte> bytes(to.size() * size_of(*tensor.type));
  read_part(from, tensor, whole_spec(tensor).flat(begin, begin + to.size()), *tensor.type, bytes);
  widen(*tensor.type, bytes.data(), to);
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE difference_report differences_of(const safetensors_shards& first,
                                             const safetensors_shards& second) {
  constexpr std::size_t step = std::size_t{1} << 18U;  // elements at a time
  difference_report report;
  for (const stored_tensor& tensor : second.tensors())
    if (first.find(tensor.name) == nullptr) report.names.unexpected.push_back(tensor.name);
  std::vector<double> a(step), b(step);
  for (const stored_tensor& tensor : first.tensors()) {
    const stored_tensor* const other = second.find(tensor.name);
    if (other == nullptr) {
      report.names.missing.push_back(tensor.name);
      continue;
    }
    if (other->shape != tensor.shape || !tensor.type || !other->type) {
      report.names.mismatched.push_back(
          formatted("{}: [{}] {} and [{}] {}", tensor.name, joined_text(tensor.shape),
                      tensor.dtype_name, joined_text(other->shape), other->dtype_name));
      continue;
    }
    tensor_difference found{.name = tensor.name};
    const std::size_t size = detail::whole_spec(tensor).size();
    for (std::size_t at = 0; at < size; at += step) {
      const std::size_t count = std::min(step, size - at);
      detail::read_doubles(first, tensor, at, std::span(a).first(count));
      detail::read_doubles(second, *other, at, std::span(b).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
        const double gap = std::abs(a[i] - b[i]);
        const double by = std::isnan(gap) ? std::numeric_limits<double>::infinity() : gap;
        if (found.elements++ == 0 || by > found.largest) {
          found.largest = by;
          found.where = at + i;
          found.first = a[i];
          found.second = b[i];
        }
      }
    }
    if (found.elements > 0) report.values.push_back(std::move(found));
  }
  return report;
}

}  // namespace parx
