// The IDX format of MNIST and Fashion-MNIST, plain or gzip.
//
// A big-endian header (0, 0, type, number of dimensions, then each extent as 32 bits), then the
// values in row-major order. Only type 8, unsigned bytes, is read: images are magic 0x00000803
// (2051: count, rows, columns), labels magic 0x00000801 (2049: count).
// Source: yann.lecun.com/exdb/mnist, "The IDX file format".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <parx/data/formats/image_bytes.hpp>

namespace parx::inline PARX_ABI::data {

/// Reads a file of images. Throws errc::io when it cannot be read, errc::bad_data when it is not
/// such a file, is cut short, or holds more than its header says.
[[nodiscard]] image_bytes read_idx_images(const std::string& path);

/// Reads a file of labels, one byte each. Throws like read_idx_images.
[[nodiscard]] std::vector<std::uint8_t> read_idx_labels(const std::string& path);

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/idx_impl.hpp>
#endif
