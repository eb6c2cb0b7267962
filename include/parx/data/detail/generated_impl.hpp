// Definitions of generated.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include <parx/core/check.hpp>
#include <parx/data/generated.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE generated_digits::generated_digits(std::size_t count, generated_options options)
    : count_(count), options_(options) {
  require(options.side >= 8,
          "generated_digits: images of {} pixels are too small for digits; need 8", options.side);
  require(options.images.deviation > 0, "generated_digits: the deviation must be positive");
}

PARX_INLINE batch generated_digits::fetch(std::span<const std::size_t> indices) const {
  const std::size_t pixels = side() * side();
  batch result{
      tensor<float>::empty(batch_shape(options_.images.shape, indices.size(), 1, side(), side())),
      tensor<std::int64_t>::empty({indices.size()}),
      {}};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    require(indices[i] < size(), "sample {} does not exist in a data set of {}", indices[i],
            size());
    const std::span image(result.x.data() + i * pixels, pixels);
    draw(indices[i], image);
    for (float& value : image) value = (value - options_.images.mean) / options_.images.deviation;
    result.y.data()[i] = label(indices[i]);
  }
  return result;
}

PARX_INLINE void generated_digits::draw(std::size_t index, std::span<float> image) const {
  detail::draws random(options_.seed, options_.first + index, "generated_digits");
  std::fill(image.begin(), image.end(), 0.0F);
  const float side_length = static_cast<float>(side());
  const float pixel = side_length / 28.0F;
  const affine map = random_affine(random, side_length);
  const float thickness = random.between(0.7F, 1.7F) * pixel;
  const float brightness = random.between(0.65F, 1.0F);

  const auto jitter = [&](detail::point p) {
    return detail::point{p.x + random.between(-0.04F, 0.04F), p.y + random.between(-0.04F, 0.04F)};
  };
  for (detail::stroke stroke : detail::digit_strokes[static_cast<std::size_t>(label(index))]) {
    if (detail::is_empty(stroke)) continue;
    stroke.center = jitter(stroke.center);
    stroke.end = jitter(stroke.end);
    stroke.radius.x *= random.between(0.8F, 1.2F);
    stroke.radius.y *= random.between(0.8F, 1.2F);
    const auto corners = detail::trace(stroke);
    for (std::size_t i = 0; i + 1 < corners.size(); ++i) {
      detail::paint(image, side(), map(corners[i]), map(corners[i + 1]), thickness, brightness);
    }
  }
  if (random.between(0, 1) < 0.5F) draw_stray_stroke(random, image, pixel);
  if (random.between(0, 1) < 0.4F) cover_a_strip(random, image, pixel);
  add_noise(random, image);
}

PARX_INLINE detail::point generated_digits::affine::operator()(detail::point p) const noexcept {
  const float u = p.x - 0.5F;
  const float v = p.y - 0.5F;
  return {xx * u + xy * v + x, yx * u + yy * v + y};
}

PARX_INLINE generated_digits::affine generated_digits::random_affine(detail::draws& random,
                                                                     float side) {
  const float angle = random.between(-0.35F, 0.35F);
  const float slant = random.between(-0.3F, 0.3F);
  const float width = side * random.between(0.6F, 0.9F);
  const float height = side * random.between(0.6F, 0.9F);
  const float c = std::cos(angle);
  const float s = std::sin(angle);
  const float shift = side * 0.09F;
  return {c * width,
          (c * slant - s) * height,
          s * width,
          (s * slant + c) * height,
          side / 2 + random.between(-shift, shift),
          side / 2 + random.between(-shift, shift)};
}

PARX_INLINE void generated_digits::draw_stray_stroke(detail::draws& random,
                                                     std::span<float> image, float pixel) const {
  const float limit = static_cast<float>(side());
  const detail::point a{random.between(0, limit), random.between(0, limit)};
  const detail::point b{a.x + random.between(-9, 9) * pixel, a.y + random.between(-9, 9) * pixel};
  detail::paint(image, side(), a, b, 0.6F * pixel, random.between(0.3F, 0.8F));
}

PARX_INLINE void generated_digits::cover_a_strip(detail::draws& random, std::span<float> image,
                                                 float pixel) const {
  const bool is_row = random.word() % 2 == 0;
  const auto width = static_cast<std::size_t>(std::lround(random.between(1.5F, 4.0F) * pixel));
  const std::size_t begin = random.word() % side();
  for (std::size_t i = begin; i < std::min(begin + width, side()); ++i) {
    for (std::size_t j = 0; j < side(); ++j) image[is_row ? i * side() + j : j * side() + i] = 0;
  }
}

PARX_INLINE void generated_digits::add_noise(detail::draws& random, std::span<float> image) {
  const float amount = random.between(0.05F, 0.25F);
  for (float& value : image) {
    // The sum of a word's four bytes is nearly normal, with mean 510 and deviation 148.
    const std::uint32_t word = random.word();
    const auto sum = static_cast<float>((word & 255U) + (word >> 8U & 255U) + (word >> 16U & 255U) +
                                        (word >> 24U));
    value = std::clamp(value + amount * (sum - 510.0F) / 148.0F, 0.0F, 1.0F);
  }
}

}  // namespace parx::data
