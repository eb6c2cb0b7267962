// whole_value: a parameter of which each rank has a part, as one tensor; and a hash of such values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <parx/autograd/parameter.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::detail {

/// Collective over `group`. The values of all of a parameter of shape `whole`, on all ranks. `part`
/// is what this rank has of it; null where it has nothing, or another rank passes the same part.
template <typename T>
[[nodiscard]] tensor<T> whole_value(process_group& group, const shape& whole,
                                    const parameter<T>* part, call_site site) {
  // Each element is set on one rank and 0 on the others, so the sum over ranks is the whole.
  const auto all = tensor<T>::zeros(whole);
  if (part != nullptr) {
    const T* const here = part->value().data();
    part->spec().for_each_run([&](const shard_run& run) {
      std::copy_n(here + run.local, run.length, all.data() + run.global);
    });
  }
  const std::span bytes{reinterpret_cast<std::uint8_t*>(all.data()), all.size() * sizeof(T)};
  all_reduce(group, bytes, {}, site);
  return all;
}

/// A hash of these values after those of `before`.
template <typename T>
[[nodiscard]] std::uint64_t hash_of(const tensor<T>& values, std::uint64_t before) {
  return fnv1a({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}, before);
}

}  // namespace parx::detail
