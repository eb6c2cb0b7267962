// Definitions of idx.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/data/formats/gzip.hpp>
#include <parx/data/formats/idx.hpp>

namespace parx::inline PARX_ABI::data::detail {

inline constexpr std::uint32_t idx_image_magic = 2051;
inline constexpr std::uint32_t idx_label_magic = 2049;

PARX_INLINE std::uint32_t read_big_endian(gzip_reader& file, const char* what) {
  std::array<std::byte, 4> bytes{};
  file.read_exactly(bytes, what);
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8U | std::to_integer<std::uint32_t>(byte);
  return value;
}

PARX_INLINE void expect_idx_magic(gzip_reader& file, std::uint32_t expected, std::string_view kind,
                                  std::string_view other_kind, std::uint32_t other) {
  const std::uint32_t found = read_big_endian(file, "the magic number");
  if (found == expected) return;
  if (file.misnamed()) {
    throw_error(
        errc::bad_data,
        "\"{}\" is named .gz, but it is neither a gzip file nor an IDX file of {}. An error page "
        "saved instead of the file? Look at its first lines, and download it again.",
        file.path(), kind);
  }
  throw_error(errc::bad_data,
              "\"{}\" is not an IDX file of {}: it starts with the number {}, expected {}. {}",
              file.path(), kind, found, expected,
              found == other
                  ? formatted("That is the number of {}; were the two paths swapped?", other_kind)
                  : std::string("Give the path of an MNIST-like IDX file, plain or gzip."));
}

PARX_INLINE void expect_end(gzip_reader& file, std::string_view what) {
  std::array<std::byte, 1> extra{};
  if (file.read(extra) == 0) return;
  throw_error(errc::bad_data,
              "\"{}\" goes on after byte {}, where its header says that {} end. The header and the "
              "contents do not belong together; copy or download the file again.",
              file.path(), file.offset() - 1, what);
}

}  // namespace parx::data::detail

namespace parx::inline PARX_ABI::data {

PARX_INLINE image_bytes read_idx_images(const std::string& path) {
  gzip_reader file(path);
  detail::expect_idx_magic(file, detail::idx_image_magic, "images", "labels",
                           detail::idx_label_magic);
  image_bytes images;
  images.count = detail::read_big_endian(file, "the number of images");
  images.rows = detail::read_big_endian(file, "the number of rows");
  images.columns = detail::read_big_endian(file, "the number of columns");
  // Beyond this the product of three 32-bit extents could overflow; no image is that large.
  constexpr std::size_t largest_side = 1U << 14U;
  if (images.rows == 0 || images.columns == 0 || images.rows > largest_side ||
      images.columns > largest_side) {
    throw_error(errc::bad_data,
                "\"{}\" says that its images have {} x {} pixels; each side must be 1 to {}.", path,
                images.rows, images.columns, largest_side);
  }
  images.pixels =
      file.read_bytes(std::uint64_t{images.count} * images.rows * images.columns, "the pixels");
  detail::expect_end(file, "the pixels");
  return images;
}

PARX_INLINE std::vector<std::uint8_t> read_idx_labels(const std::string& path) {
  gzip_reader file(path);
  detail::expect_idx_magic(file, detail::idx_label_magic, "labels", "images",
                           detail::idx_image_magic);
  const std::uint32_t count = detail::read_big_endian(file, "the number of labels");
  auto labels = file.read_bytes(count, "the labels");
  detail::expect_end(file, "the labels");
  return labels;
}

}  // namespace parx::data
