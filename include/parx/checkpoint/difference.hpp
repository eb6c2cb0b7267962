// differences_of: how the tensors of two files, model folders or checkpoints differ, by name.
//
// Values are compared as doubles, whatever their types; NaN equals NaN. Needs a few megabytes of
// memory, whatever the size of the tensors. Local, one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Elements [begin, begin + to.size()) of a tensor.
inline void read_doubles(const safetensors_shards& from, const stored_tensor& tensor,
                         std::size_t begin, std::span<double> to) {
  std::vector<std::byte> bytes(to.size() * size_of(*tensor.type));
  read_part(from, tensor, whole_spec(tensor).flat(begin, begin + to.size()), *tensor.type, bytes);
  widen(*tensor.type, bytes.data(), to);
}

}  // namespace detail

/// For a tensor that has the same shape in both.
struct tensor_difference {
  std::string name;
  std::size_t elements = 0;      ///< number of elements that differ
  double largest = 0;            ///< absolute difference; infinite if one of the values is NaN
  std::size_t where = 0;         ///< index of the element with the largest difference
  double first = 0, second = 0;  ///< its values
};

/// What differs between two checkpoints.
struct difference_report {
  state_report names;  ///< missing from the second, unexpected there, of another shape
  std::vector<tensor_difference> values;
  [[nodiscard]] bool empty() const noexcept { return names.empty() && values.empty(); }
};

/// Throws errc::io, errc::bad_data if one of them cannot be read.
[[nodiscard]] inline difference_report differences_of(const safetensors_shards& first,
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
      report.names.mismatched.push_back(formatted("{}: [{}] {} and [{}] {}", tensor.name,
                                                  joined_text(tensor.shape), tensor.dtype_name,
                                                  joined_text(other->shape), other->dtype_name));
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
