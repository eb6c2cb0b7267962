// master_copy: the float32 copy of a 16-bit parameter, on which an optimizer's steps are taken.
//
// A step that is smaller than half of a bfloat16's last bit (1/512 of the value) would be lost in
// 16 bits, and training would stand still; the copy adds such steps up. After every step the
// parameter is the copy, rounded. Where it is not (a checkpoint was loaded, another rank's values
// were taken), somebody else has written it since: the copy starts there from what was written.
// Micikevicius et al.: Mixed Precision Training (arXiv 1710.03740), section 3.1.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::optim::detail {

template <typename Half>
class master_copy {
 public:
  /// The copy, brought to what is in `value`.
  tensor<float>& follow(std::span<const Half> value) {
    const bool is_new = !copy_.defined();
    if (is_new) copy_ = tensor<float>::empty({value.size()});
    std::array<Half, piece> rounded;
    for (std::size_t begin = 0; begin < value.size(); begin += piece) {
      const std::size_t count = std::min(piece, value.size() - begin);
      float* const to = copy_.data() + begin;
      if (is_new) {
        convert(value.data() + begin, to, count);
        continue;
      }
      convert(to, rounded.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        if (rounded[i].bits != value[begin + i].bits) to[i] = value[begin + i];
      }
    }
    return copy_;
  }
  /// `value` becomes the copy, rounded.
  void round_to(std::span<Half> value) const noexcept {
    convert(copy_.data(), value.data(), value.size());
  }

 private:
  static constexpr std::size_t piece = 1024;
  tensor<float> copy_;
};

}  // namespace parx::optim::detail
