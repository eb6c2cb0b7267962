// Definitions of cifar.hpp.
#pragma once

#include <array>
#include <span>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/data/formats/cifar.hpp>
#include <parx/data/formats/gzip.hpp>

namespace parx::inline PARX_ABI::data::detail {

inline constexpr std::size_t cifar_pixels = std::size_t{3} * 32 * 32;

/// The file ended `extra` bytes into its record number `count`.
[[noreturn]] PARX_INLINE void refuse_cifar_size(const gzip_reader& file, std::size_t count,
                                                std::size_t extra, cifar_labels kind) {
  const bool ten = kind == cifar_labels::cifar10;
  const std::size_t labels = ten ? 1 : 2;
  const std::size_t other = cifar_pixels + 3 - labels;
  throw_error(errc::bad_data,
              "\"{}\" holds {} bytes, which are {} records of {} ({} label byte{} and 3 x 32 x 32 "
              "pixels, {} bytes) and {} bytes more. {}",
              file.path(), file.offset(), count, ten ? "CIFAR-10" : "CIFAR-100", labels,
              ten ? "" : "s", cifar_pixels + labels, extra,
              file.offset() % other == 0
                  ? formatted("They are exactly {} records of {}; is it such a file?",
                              file.offset() / other, ten ? "CIFAR-100" : "CIFAR-10")
                  : std::string("Was it cut short? Copy or download it again."));
}

}  // namespace parx::data::detail

namespace parx::inline PARX_ABI::data {

PARX_INLINE void read_cifar(const std::string& path, cifar_labels kind, cifar_images& all) {
  gzip_reader file(path);
  const std::size_t label_bytes = kind == cifar_labels::cifar10 ? 1 : 2;
  const std::size_t chosen = kind == cifar_labels::cifar100 ? 1 : 0;
  std::array<std::byte, detail::cifar_pixels + 2> buffer{};
  const std::span<std::byte> record(buffer.data(), detail::cifar_pixels + label_bytes);
  std::size_t count = 0;
  for (std::size_t got = file.read(record); got > 0; got = file.read(record), ++count) {
    if (got < record.size()) detail::refuse_cifar_size(file, count, got, kind);
    for (std::size_t i = 0; i < label_bytes; ++i) {
      const auto label = std::to_integer<std::size_t>(record[i]);
      const std::size_t classes = i == 1 ? 100 : kind == cifar_labels::cifar10 ? 10 : 20;
      if (label < classes) continue;
      throw_error(errc::bad_data,
                  "\"{}\": record {} (at byte {}) has the {} {}, but there are {} classes, 0 to "
                  "{}. Is it a {} file in the binary version, unpacked from its .tar.gz?",
                  path, count, count * record.size(),
                  label_bytes == 1 ? "label"
                  : i == 0         ? "coarse label"
                                   : "fine label",
                  label, classes, classes - 1, label_bytes == 1 ? "CIFAR-10" : "CIFAR-100");
    }
    all.labels.push_back(std::to_integer<std::uint8_t>(record[chosen]));
    for (const std::byte pixel : record.subspan(label_bytes))
      all.images.pixels.push_back(std::to_integer<std::uint8_t>(pixel));
  }
  if (count == 0) throw_error(errc::bad_data, "\"{}\" is empty. Copy or download it again.", path);
  all.images.count += count;
}

}  // namespace parx::data
