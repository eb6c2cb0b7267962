// tensors: PyTorch's tensors and reductions as parx's buffers and options.
#pragma once

#include <ATen/ATen.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#undef CHECK  // glog's

#include <parx/core/check.hpp>
#include <parx/torch/dtype.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parx_torch {

using at::Tensor;
using tensors = std::vector<Tensor>;

/// The type as which parx moves and reduces elements; nullopt for one that it does not know.
inline std::optional<parx::dtype> dtype_of(at::ScalarType type) noexcept {
  return type == at::kBool ? parx::dtype::uint8 : parx::dtype_of_torch(type);
}

/// The elements of a contiguous tensor; those of a type that parx does not know as bytes, which is
/// enough to move them.
inline parx::buffer_view view_of(const Tensor& flat) {
  const auto type = dtype_of(flat.scalar_type());
  const std::size_t count = type ? static_cast<std::size_t>(flat.numel()) : flat.nbytes();
  return {flat.data_ptr(), count, type.value_or(parx::dtype::uint8)};
}
inline std::vector<parx::buffer_view> views_of(const tensors& flat) {
  std::vector<parx::buffer_view> all;
  for (const Tensor& each : flat) all.push_back(view_of(each));
  return all;
}

/// Throws usage_error where parx cannot read `all`.
inline void require_dense(std::string_view operation, const tensors& all) {
  for (const Tensor& each : all) {
    parx::require(each.device().is_cpu(),
                  "parx: {} is given a tensor on {}; parx moves tensors in the memory of the CPU. "
                  "init_process_group(\"cpu:parx,cuda:nccl\") has a backend for each",
                  operation, each.device().str());
    parx::require(each.layout() == at::kStrided,
                  "parx: {} is given a sparse tensor; only all_reduce with ReduceOp.SUM takes them",
                  operation);
  }
}
inline void require_one(std::string_view operation, const tensors& all) {
  parx::require(all.size() == 1, "parx: {} of {} tensors: a process has one device, the CPU",
                operation, all.size());
  require_dense(operation, all);
}

/// The same tensors, contiguous: copies of those that are not.
inline tensors contiguous(const tensors& all) {
  tensors flat;
  for (const Tensor& each : all) {
    flat.push_back(each.is_contiguous() ? each : each.detach().contiguous());
  }
  return flat;
}
/// Writes the results back that were received into copies.
inline void put_back(const tensors& all, const tensors& flat) {
  const at::NoGradGuard guard;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].data_ptr() != flat[i].data_ptr()) all[i].detach().copy_(flat[i]);
  }
}

/// One tensor with the elements of all, one behind the other.
inline Tensor joined(const tensors& all) {
  tensors flat;
  for (const Tensor& each : all) flat.push_back(each.detach().reshape({-1}));
  return at::cat(flat);
}
/// Writes the elements of `from` into all, one behind the other.
inline void split(const Tensor& from, const tensors& all) {
  const at::NoGradGuard guard;
  std::int64_t begin = 0;
  for (const Tensor& each : all) {
    each.detach().copy_(from.narrow(0, begin, each.numel()).view(each.sizes()));
    begin += each.numel();
  }
}
inline std::vector<std::size_t> counts_of(const tensors& all) {
  std::vector<std::size_t> counts;
  for (const Tensor& each : all) counts.push_back(view_of(each).count);
  return counts;
}
inline std::int64_t elements_of(const tensors& all) {
  std::int64_t sum = 0;
  for (const Tensor& each : all) sum += each.numel();
  return sum;
}

struct reduction {
  parx::reduce_op op = parx::reduce_op::sum;
  double factor = 1;
};

/// Booleans are bytes of 0 and 1: their sum is "or", their product "and". Throws usage_error for
/// a type or operation that parx does not reduce.
inline reduction reduction_of(std::string_view operation, const c10d::ReduceOp& op,
                              const Tensor& tensor) {
  using theirs = c10d::ReduceOp;
  using parx::reduce_op;
  const auto type = tensor.scalar_type();
  parx::require(dtype_of(type).has_value(), "parx: {} of {} elements: parx does not reduce them",
                operation, at::toString(type));
  const bool is_bool = type == at::kBool;
  switch (static_cast<theirs::RedOpType>(op.op_)) {
    case theirs::SUM:
      return {is_bool ? reduce_op::max : reduce_op::sum};
    case theirs::PRODUCT:
      return {is_bool ? reduce_op::min : reduce_op::product};
    case theirs::AVG:
      return {reduce_op::avg};
    case theirs::MIN:
      return {reduce_op::min};
    case theirs::MAX:
      return {reduce_op::max};
    case theirs::BAND:
      return {reduce_op::band};
    case theirs::BOR:
      return {reduce_op::bor};
    case theirs::BXOR:
      return {reduce_op::bxor};
    case theirs::PREMUL_SUM: {
      const auto* by = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
#if TORCH_VERSION_MAJOR >= 2
      const bool is_number = by != nullptr && !by->tensor_factor.defined();
#else
      const bool is_number = by != nullptr && by->tensor_factors.empty();
#endif
      parx::require(is_number, "parx: PREMUL_SUM takes one number, equal on all ranks");
      return {reduce_op::premul_sum, by->double_factor};
    }
    default:
      break;
  }
  parx::throw_usage("parx: {}: this ReduceOp is not one of PyTorch's", operation);
}

}  // namespace parx_torch
