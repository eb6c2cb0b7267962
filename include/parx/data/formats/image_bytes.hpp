// image_bytes: what the readers of image formats return: all images of a file as bytes.
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
