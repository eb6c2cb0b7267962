// Definitions of images.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/data/images.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE parx::shape batch_shape(image_shape wanted, std::size_t count, std::size_t channels,
                                    std::size_t rows, std::size_t columns) {
  if (wanted == image_shape::flat) return {count, channels * rows * columns};
  return {count, channels, rows, columns};
}

PARX_INLINE image_dataset::image_dataset(image_bytes images, std::vector<std::uint8_t> labels,
                                         image_options options, std::size_t classes,
                                         std::string_view images_name, std::string_view labels_name)
    : images_(std::move(images)), labels_(std::move(labels)), options_(options), classes_(classes) {
  require(options.deviation > 0, "image_dataset: the deviation must be positive, not {}",
          options.deviation);
  if (images_.count != labels_.size()) {
    throw_error(errc::bad_data,
                "\"{}\" has {} images, but \"{}\" has {} labels. The two do not belong together; "
                "take both from the same set.",
                images_name, images_.count, labels_name, labels_.size());
  }
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i] >= classes_) {
      throw_error(
          errc::bad_data,
          "\"{}\": the label of image {} is {}, but with {} classes labels run from 0 to {}. "
          "Give the right number of classes, or mend the file.",
          labels_name, i, labels_[i], classes_, classes_ - 1);
    }
  }
}

PARX_INLINE image_dataset image_dataset::from_idx(const std::string& images,
                                                  const std::string& labels, image_options options,
                                                  std::size_t classes, call_site) {
  return {read_idx_images(images), read_idx_labels(labels), options, classes, images, labels};
}

PARX_INLINE image_dataset image_dataset::from_folder(const std::string& folder, split part,
                                                     image_options options, std::size_t classes,
                                                     call_site) {
  image_dataset images = of_folder(folder, part, options, classes);
  if (part == split::train) images.warn_of_empty_classes(folder);
  return images;
}

PARX_INLINE image_dataset image_dataset::from_cifar(const std::vector<std::string>& files,
                                                    cifar_labels kind, image_options options) {
  cifar_images all;
  for (const std::string& file : files) read_cifar(file, kind, all);
  return {std::move(all.images), std::move(all.labels), options, classes_of(kind)};
}

PARX_INLINE batch image_dataset::fetch(std::span<const std::size_t> indices) const {
  const std::size_t pixels = channels() * rows() * columns();
  batch result{tensor<float>::empty(
                   batch_shape(options_.shape, indices.size(), channels(), rows(), columns())),
               tensor<std::int64_t>::empty({indices.size()}),
               {}};
  const float scale = 1.0F / (255.0F * options_.deviation);
  const float shift = -options_.mean / options_.deviation;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    require(indices[i] < size(), "image {} does not exist in a data set of {}", indices[i], size());
    const std::uint8_t* from = images_.pixels.data() + indices[i] * pixels;
    float* to = result.x.data() + i * pixels;
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      to[pixel] = static_cast<float>(from[pixel]) * scale + shift;
    }
    result.y.data()[i] = labels_[indices[i]];
  }
  return result;
}

PARX_INLINE image_options image_dataset::statistics() const {
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
  for (const std::uint64_t pixel : images_.pixels) {
    sum += pixel;
    squares += pixel * pixel;
  }
  const double count = std::max(1.0, static_cast<double>(images_.pixels.size()));
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  return {.shape = options_.shape,
          .mean = static_cast<float>(mean / 255),
          .deviation = static_cast<float>(std::sqrt(std::max(variance, 1.0)) / 255)};
}

PARX_INLINE image_dataset image_dataset::of_folder(const std::string& folder, split part,
                                                   image_options options, std::size_t classes) {
  constexpr std::string_view wanted = "IDX files, or the .bin files of CIFAR";
  const bool train = part == split::train;
  const auto batches = find_files(folder, train ? "data_batch" : "test_batch", ".bin", wanted);
  if (!batches.empty()) return from_cifar(batches, cifar_labels::cifar10, options);
  const auto whole = find_files(folder, train ? "train" : "test", ".bin", wanted);
  if (!whole.empty()) return from_cifar(whole, cifar_labels::cifar100, options);
  const std::string_view prefix = train ? "train" : "t10k";
  const std::string images = find_file(folder, prefix, "images", wanted);
  return from_idx(images, find_file(folder, prefix, "labels", wanted), options, classes);
}

PARX_INLINE void image_dataset::warn_of_empty_classes(const std::string& folder) const {
  std::vector<bool> seen(classes_);
  for (const std::uint8_t label : labels_) seen[label] = true;
  std::vector<std::size_t> empty;
  for (std::size_t i = 0; i < classes_; ++i) {
    if (!seen[i]) empty.push_back(i);
  }
  if (empty.empty()) return;
  const std::span<const std::size_t> first(empty.data(), std::min<std::size_t>(empty.size(), 10));
  log0(log_level::warn, "\"{}\": of {} classes {} have no image to train with: {}{}", folder,
       classes_, empty.size(), joined_text(first), first.size() < empty.size() ? ", ..." : "");
}

}  // namespace parx::data
