// image_bytes: all images of a file as bytes, the result of the image format readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data {

struct image_bytes {
  std::size_t count = 0;
  std::size_t channels = 1;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::uint8_t> pixels;  ///< [count, channels, rows, columns]; 0 is black or background
};

}  // namespace parx::data
