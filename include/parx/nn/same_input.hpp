// same_input: ranks over which layers are cut need the same samples. A sampler over the wrong group
// gives them different ones, and the gradients belong to no batch. The first input of a sharded
// layer is therefore compared between the ranks, and the seed of its values with it.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <parx/core/error.hpp>
#include <parx/tensor/rank_axis.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI::nn {

/// Collective at the first call for an axis in training, and at the first in evaluation; other
/// calls do nothing. Throws parx::error (errc::mismatch), on all ranks, where their inputs differ
/// by more than rounding: activations may differ in their last bits between hosts. `layer` is the
/// name of the cut layer.
template <typename T>
void require_same_input(rank_axis& axis, const tensor<T>& input, std::string_view layer) {
  using enum rank_axis::input;
  if (!axis.is_first(is_grad_enabled() ? recorded : unrecorded)) return;
  // Sums with pseudo-random signs: different inputs practically never agree in all four.
  constexpr std::size_t sums = 4;
  std::array<double, sums> sum{};
  double squares = 0;
  const tensor<T> values = input.contiguous();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values.data()[i]);
    const std::uint64_t signs = (i + 1) * 0x9e3779b97f4a7c15U >> 32;
    for (std::size_t s = 0; s < sums; ++s) sum[s] += (signs >> 8 * s & 1) != 0 ? value : -value;
    squares += value * value;
  }
  // The largest of a value and of its negative show whether it is the same on all ranks.
  std::array<double, 2 * sums + 7> most{};
  for (std::size_t s = 0; s < sums; ++s) most[2 * s] = sum[s], most[2 * s + 1] = -sum[s];
  most[2 * sums] = static_cast<double>(values.size());
  most[2 * sums + 1] = -most[2 * sums];
  most[2 * sums + 2] = std::sqrt(squares);
  // So do the halves of the seed, each of which a double holds exactly.
  const std::uint64_t halves[] = {axis.seed() >> 32, axis.seed() & 0xffffffffU};
  for (std::size_t half = 0; half < 2; ++half) {
    most[2 * sums + 3 + 2 * half] = static_cast<double>(halves[half]);
    most[2 * sums + 4 + 2 * half] = -static_cast<double>(halves[half]);
  }
  axis.all_reduce(const_view_of(most), view_of(most), rank_axis::reduction::max);
  const double tolerance = std::is_integral_v<T> ? 0 : 1e-3 * most[2 * sums + 2];
  bool differ = most[2 * sums] + most[2 * sums + 1] > 0;
  for (std::size_t s = 0; s < sums; ++s) differ |= most[2 * s] + most[2 * s + 1] > tolerance;
  for (std::size_t half = 0; half < 2; ++half) {
    if (most[2 * sums + 3 + 2 * half] + most[2 * sums + 4 + 2 * half] == 0) continue;
    throw_error(errc::mismatch,
                "the ranks over which layers are cut have initialized them from different seeds "
                "(rank {} of {} from {}), so their parts are of different matrices: call "
                "initialize(seed) with the same seed on all of them",
                axis.rank(), axis.size(), axis.seed());
  }
  if (differ) {
    throw_error(
        errc::mismatch,
        "the ranks over which layers are cut{} got different inputs of a cut layer, \"{}\" (rank "
        "{} of {}): other samples, whose sampler then has the group of all ranks instead of "
        "data_group() of the model, or of the axis for samples of your own mesh; or other values "
        "of the layers before it, which initialize() makes from one seed on all ranks",
        axis.cut_at(), layer, axis.rank(), axis.size());
  }
}

}  // namespace parx::nn
