// The binary format of CIFAR-10 and CIFAR-100, plain or gzip.
//
// Records without a header: one label byte (CIFAR-100: two, the coarse and the fine class), then
// 3 x 32 x 32 bytes: the red plane row by row, then green, then blue. Without a magic number, only
// its size shows that a file is complete, and only its labels that it has this format.
// Source: www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/data/formats/image_bytes.hpp>

namespace parx::inline PARX_ABI::data {

/// Which file of CIFAR this is, and which of its labels are read.
enum class cifar_labels {
  cifar10,
  cifar100,         ///< the 100 fine classes
  cifar100_coarse,  ///< the 20 superclasses
};

/// How many classes there are.
[[nodiscard]] constexpr std::size_t classes_of(cifar_labels kind) noexcept {
  return kind == cifar_labels::cifar10 ? 10 : kind == cifar_labels::cifar100 ? 100 : 20;
}

/// Images of 32 x 32 pixels in three colours, and their classes.
struct cifar_images {
  image_bytes images{.channels = 3, .rows = 32, .columns = 32, .pixels = {}};
  std::vector<std::uint8_t> labels;
};

/// Adds the records of the file `path` to `all`. Throws errc::io when it cannot be read,
/// errc::bad_data naming file and record when it is empty, does not end with a record, or has a
/// label that does not exist.
void read_cifar(const std::string& path, cifar_labels kind, cifar_images& all);

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/cifar_impl.hpp>
#endif
