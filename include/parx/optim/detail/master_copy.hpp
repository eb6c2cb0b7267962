// master_copy: the float32 copy of a 16-bit parameter, which an optimizer's steps update.
//
// A step smaller than half of a bfloat16's last bit (1/512 of the value) would be lost in 16 bits,
// and training would stall; the copy adds such steps up. After every step the parameter is the
// copy, rounded. Elements that differ later were written by something else (a checkpoint was
// loaded, another rank's values were received): the copy takes them over.
// Micikevicius et al.: Mixed Precision Training (arXiv 1710.03740), section 3.1.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::optim::detail {

/// convert() by the threads of the rank.
template <typename From, typename To>
void convert_by_threads(const From* from, To* to, std::size_t count) {
  parallel_for(count, parx::elements_of_a_block, [=](std::size_t first, std::size_t last) {
    convert(from + first, to + first, last - first);
  });
}

template <typename Half>
class master_copy {
 public:
  /// The copy, after taking over the elements of `value` that something else has written.
  tensor<float>& follow(std::span<const Half> value) {
    const bool is_new = !copy_.defined();
    if (is_new) copy_ = tensor<float>::empty({value.size()});
    const auto follow_piece = [&](std::size_t begin, std::size_t end) {
      const std::size_t count = end - begin;
      float* const to = copy_.data() + begin;
      if (is_new) return convert(value.data() + begin, to, count);
      std::array<Half, piece> rounded;
      convert(to, rounded.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        if (rounded[i].bits != value[begin + i].bits) to[i] = value[begin + i];
      }
    };
    parallel_for(value.size(), piece, follow_piece);
    return copy_;
  }
  [[nodiscard]] bool is_made() const noexcept { return copy_.defined(); }
  /// Sets `value` to the copy, rounded.
  void round_to(std::span<Half> value) const {
    convert_by_threads(copy_.data(), value.data(), value.size());
  }

 private:
  static constexpr std::size_t piece = 8192;
  tensor<float> copy_;
};

}  // namespace parx::optim::detail
