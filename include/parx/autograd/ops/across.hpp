// across: operations on tensors that are distributed over the ranks of an axis, with gradients.
//
// What an operation must communicate in backward depends on the gradients that the ranks have of a
// tensor that is on all of them: the same gradient, or each a summand of it (whole_gradient). These
// functions take that as an argument and check only shapes; examples/first/placements makes it part
// of the type. The axis is borrowed: it must outlive the graph. In recomputed parts
// of a model (autograd/checkpoint.hpp) nothing is sent a second time.
// Shoeybi et al.: Megatron-LM (arXiv 1909.08053); Korthikanti et al. (arXiv 2205.05198).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/tensor/rank_axis.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI::across {

/// The gradient that each rank has of a tensor that is on all ranks.
enum class whole_gradient {
  same,     ///< the gradient itself, on all ranks
  partial,  ///< a summand of it: the ranks use the tensor differently
};

namespace detail {

/// The number of elements in each rank's chunk of axis `at` of `whole`.
[[nodiscard]] inline std::vector<std::size_t> block_sizes(const shape& whole, std::size_t at,
                                                          int ranks) {
  const std::size_t extent = whole[at], others = extent == 0 ? 0 : whole.size() / extent;
  std::vector<std::size_t> sizes;
  for (int r = 0; r < ranks; ++r) {
    const std::size_t begin = chunk_begin(extent, ranks, r);
    sizes.push_back(others * (chunk_begin(extent, ranks, r + 1) - begin));
  }
  return sizes;
}

/// Calls use(block, slice) with each rank's block of `blocks` and its slice of `whole`.
template <typename T, typename Use>
void for_each_block(const tensor<T>& blocks, const tensor<T>& whole, std::size_t at, int ranks,
                    Use use) {
  std::size_t offset = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::size_t extent = whole.shape()[at];
    const tensor<T> slice = whole.slice(static_cast<int>(at), chunk_begin(extent, ranks, r),
                                        chunk_begin(extent, ranks, r + 1));
    const std::size_t end = offset + slice.size();
    use(blocks.slice(0, offset, end).reshape(slice.shape()), slice);
    offset = end;
  }
}
/// Whether each chunk of axis `at` is contiguous in memory.
[[nodiscard]] inline bool is_outermost(const shape& s, std::size_t at) {
  std::size_t before = 1;
  for (std::size_t i = 0; i < at; ++i) before *= s[i];
  return before == 1;
}
template <typename T>
[[nodiscard]] tensor<T> to_blocks(const tensor<T>& whole, std::size_t at, int ranks) {
  if (is_outermost(whole.shape(), at)) return whole.contiguous();
  const tensor<T> blocks = tensor<T>::empty({whole.size()});
  for_each_block(blocks, whole, at, ranks,
                 [](const tensor<T>& block, const tensor<T>& slice) { block.copy_from(slice); });
  return blocks;
}
template <typename T>
[[nodiscard]] tensor<T> from_blocks(const tensor<T>& blocks, const shape& s, std::size_t at,
                                    int ranks) {
  if (is_outermost(s, at)) return blocks.reshape(s);
  const tensor<T> whole = tensor<T>::empty(s);
  for_each_block(blocks, whole, at, ranks,
                 [](const tensor<T>& block, const tensor<T>& slice) { slice.copy_from(block); });
  return whole;
}

/// The part of a whole of which this rank has `here`; `whole` as in axis_chunk.
template <typename T>
[[nodiscard]] shard_spec own_part(const rank_axis& axis, const tensor<T>& here, int dim,
                                  std::size_t whole) {
  return axis_chunk{dim, axis.rank(), axis.size(), whole}.of(here.shape());
}

template <typename T>
[[nodiscard]] tensor<T> summed(rank_axis& axis, const tensor<T>& x) {
  const tensor<T> from = x.contiguous(), to = tensor<T>::empty(x.shape());
  axis.all_reduce(const_view_of(from), view_of(to), rank_axis::reduction::sum);
  return to;
}
template <typename T>
[[nodiscard]] tensor<T> gathered(rank_axis& axis, const tensor<T>& own, int dim,
                                 std::size_t whole) {
  const shape all = own_part(axis, own, dim, whole).global_shape();
  const std::size_t at = resolve_axis(dim, all);
  const tensor<T> from = own.contiguous(), blocks = tensor<T>::empty({all.size()});
  axis.all_gather(const_view_of(from), view_of(blocks), block_sizes(all, at, axis.size()));
  return from_blocks(blocks, all, at, axis.size());
}
template <typename T>
[[nodiscard]] tensor<T> own_chunk(const rank_axis& axis, const tensor<T>& whole, int dim) {
  const std::size_t extent = whole.extent(dim);
  return whole.slice(dim, chunk_begin(extent, axis.size(), axis.rank()),
                     chunk_begin(extent, axis.size(), axis.rank() + 1));
}
template <typename T>
[[nodiscard]] tensor<T> summed_chunk(rank_axis& axis, const tensor<T>& whole, int dim) {
  const std::size_t at = resolve_axis(dim, whole.shape());
  const tensor<T> blocks = to_blocks(whole, at, axis.size());
  const tensor<T> own = tensor<T>::empty(own_chunk(axis, whole, dim).shape());
  axis.reduce_scatter(const_view_of(blocks), view_of(own),
                      block_sizes(whole.shape(), at, axis.size()));
  return own;
}
/// From chunks of axis `from`, which has `whole` indices in all, to chunks of axis `to`.
template <typename T>
[[nodiscard]] tensor<T> exchanged(rank_axis& axis, const tensor<T>& x, int from, int to,
                                  std::size_t whole) {
  shape result = own_part(axis, x, from, whole).global_shape();
  const std::size_t source = resolve_axis(from, result), target = resolve_axis(to, result);
  require(source != target, "all_to_all from axis {} to itself", from);
  const tensor<T> sent = to_blocks(x, target, axis.size());
  const auto sizes = block_sizes(x.shape(), target, axis.size());
  result[target] = own_chunk(axis, x, to).extent(to);
  const tensor<T> received = tensor<T>::empty({result.size()});
  axis.all_to_all(const_view_of(sent), sizes, view_of(received),
                  block_sizes(result, source, axis.size()));
  return from_blocks(received, result, source, axis.size());
}

using parx::detail::once;  // for forward collectives

}  // namespace detail

/// x, which all ranks have and use differently: its gradient is the sum of theirs. One all-reduce
/// in backward (Megatron's f).
template <typename T>
[[nodiscard]] variable<T> copy(rank_axis& axis, const variable<T>& x) {
  return differentiable(
      x.value(),
      [&axis](const tensor<T>& upstream, grad_sink<T> dx) {
        if (dx.needed()) dx.add(detail::summed(axis, upstream));
      },
      x);
}

/// The sum of all ranks' x. One all-reduce (Megatron's g); with a `partial` gradient of the result
/// another in backward.
template <typename T>
[[nodiscard]] variable<T> sum(rank_axis& axis, const variable<T>& x, whole_gradient of_result) {
  return differentiable(
      detail::once([&] { return detail::summed(axis, x.value()); }),
      [&axis, of_result](const tensor<T>& upstream, grad_sink<T> dx) {
        if (!dx.needed()) return;
        dx.add(of_result == whole_gradient::same ? upstream : detail::summed(axis, upstream));
      },
      x);
}

/// The whole of which x is this rank's chunk of axis `dim`. `whole` is the whole extent of the axis
/// where ranks have different ones, else 0. One all-gather; in backward nothing, or with a
/// `partial` gradient of the result one reduce-scatter.
template <typename T>
[[nodiscard]] variable<T> gather(rank_axis& axis, const variable<T>& x, int dim,
                                 whole_gradient of_result, std::size_t whole = 0) {
  return differentiable(
      detail::once([&] { return detail::gathered(axis, x.value(), dim, whole); }),
      [&axis, dim, of_result](const tensor<T>& upstream, grad_sink<T> dx) {
        if (!dx.needed()) return;
        dx.add(of_result == whole_gradient::same ? detail::own_chunk(axis, upstream, dim)
                                                 : detail::summed_chunk(axis, upstream, dim));
      },
      x);
}

/// This rank's chunk of axis `dim` of x, which all ranks have. Nothing is sent; in backward one
/// all-gather, or where the gradient of x is `partial` nothing.
template <typename T>
[[nodiscard]] variable<T> chunk(rank_axis& axis, const variable<T>& x, int dim,
                                whole_gradient of_input) {
  return differentiable(
      detail::own_chunk(axis, x.value(), dim),
      [&axis, dim, of_input, whole = x.extent(dim)](const tensor<T>& upstream, grad_sink<T> dx) {
        if (!dx.needed()) return;
        if (of_input == whole_gradient::same) {
          dx.add(detail::gathered(axis, upstream, dim, whole));
        } else {
          parx::detail::add_elements(detail::own_chunk(axis, dx.zeroed(), dim), upstream);
        }
      },
      x);
}

/// This rank's chunk of axis `dim` of the sum of all ranks' x. One reduce-scatter, in backward one
/// all-gather.
template <typename T>
[[nodiscard]] variable<T> sum_chunk(rank_axis& axis, const variable<T>& x, int dim) {
  return differentiable(
      detail::once([&] { return detail::summed_chunk(axis, x.value(), dim); }),
      [&axis, dim, whole = x.extent(dim)](const tensor<T>& upstream, grad_sink<T> dx) {
        if (dx.needed()) dx.add(detail::gathered(axis, upstream, dim, whole));
      },
      x);
}

/// This rank's chunk of axis `to` of the whole of which x is its chunk of axis `from`. `whole` as
/// in gather, for axis `from`. One all-to-all, in backward another.
template <typename T>
[[nodiscard]] variable<T> exchange(rank_axis& axis, const variable<T>& x, int from, int to,
                                   std::size_t whole = 0) {
  return differentiable(
      detail::once([&] { return detail::exchanged(axis, x.value(), from, to, whole); }),
      [&axis, from, to, back = x.extent(to)](const tensor<T>& upstream, grad_sink<T> dx) {
        if (dx.needed()) dx.add(detail::exchanged(axis, upstream, to, from, back));
      },
      x);
}

/// For linear(): sums the gradient of its input over the ranks, while it computes that of its
/// weight.
template <typename T>
class sum_behind_weight final : public input_gradient_reduction<T> {
 public:
  explicit sum_behind_weight(rank_axis& axis) noexcept : axis_(axis) {}

  void start(const tensor<T>& gradient) override {
    gradient_ = gradient;
    pending_ = axis_.start_sum(view_of(gradient));
  }
  void finish() override {
    pending_->wait();
    pending_.reset();
    gradient_ = {};
  }

 private:
  rank_axis& axis_;
  tensor<T> gradient_;  // declared before pending_, which writes to it and is destroyed first
  std::unique_ptr<rank_axis::pending> pending_;
};

}  // namespace parx::across
