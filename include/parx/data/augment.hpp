// augmented: training images, each shifted by some pixels and perhaps mirrored, so that a network
// cannot memorise them.
//
//   model(data::augmented(batch.x, {.shift = 2, .mirror = data::mirror::allowed}, seed_of_step))
//
// A pure function of the seed: a resumed run sees the same images again. Pixels from outside an
// image are those of its border. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <parx/core/check.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::data {

/// Whether images are mirrored.
enum class mirror {
  never,
  allowed,  ///< half of the images are mirrored, left to right
};

/// How images are changed at random.
struct augmentation {
  std::size_t shift = 2;  ///< largest shift in pixels, in each of the four directions
  data::mirror mirror = mirror::never;
  /// The number of the first image among those of all ranks: how an image is changed depends on its
  /// number, not on the rank that has it.
  std::size_t first_image = 0;
};

/// Changed copies of `images`, [n, channels, rows, columns]; `images` itself where the options
/// change nothing. Throws usage_error for another shape.
[[nodiscard]] inline tensor<float> augmented(const tensor<float>& images,
                                             const augmentation& options, std::uint64_t seed) {
  require(images.rank() == 4, "augmented: images are [n, channels, rows, columns], not {}",
          to_string(images.shape()));
  if (options.shift == 0 && options.mirror == mirror::never) return images;
  const tensor<float> from = images.contiguous();
  auto result = tensor<float>::empty(from.shape());
  const std::size_t planes = from.extent(1);
  const auto rows = static_cast<std::ptrdiff_t>(from.extent(2));
  const auto columns = static_cast<std::ptrdiff_t>(from.extent(3));
  const std::size_t steps = 2 * options.shift + 1;
  const auto shift = [&](std::uint32_t word) {
    return static_cast<std::ptrdiff_t>(std::uint64_t{word} * steps >> 32U) -
           static_cast<std::ptrdiff_t>(options.shift);
  };
  const random_stream random(seed, "augmented");
  for (std::size_t image = 0; image < from.extent(0); ++image) {
    std::ptrdiff_t down = 0, right = 0;
    bool mirrored = false;
    random.words(4 * (options.first_image + image), 3,
                 [&](const std::uint32_t* word, std::uint64_t, std::size_t) {
                   down = shift(word[0]);
                   right = shift(word[1]);
                   mirrored = options.mirror == mirror::allowed && word[2] >> 31U != 0;
                 });
    for (std::size_t plane = image * planes; plane < (image + 1) * planes; ++plane) {
      const float* const source = from.data() + plane * static_cast<std::size_t>(rows * columns);
      float* target = result.data() + plane * static_cast<std::size_t>(rows * columns);
      for (std::ptrdiff_t r = 0; r < rows; ++r) {
        const auto from_row = std::clamp<std::ptrdiff_t>(r - down, 0, rows - 1);
        const float* const row = source + from_row * columns;
        for (std::ptrdiff_t c = 0; c < columns; ++c) {
          const auto at = std::clamp<std::ptrdiff_t>(c - right, 0, columns - 1);
          *target++ = row[mirrored ? columns - 1 - at : at];
        }
      }
    }
  }
  return result;
}

}  // namespace parx::data
