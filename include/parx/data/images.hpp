// image_dataset: grey images with class labels, kept as bytes and made into floats batch by batch.
//
// Bytes take a quarter of the memory, and the conversion is a multiplication and an addition that
// runs at memory speed. Immutable; fetch() from any number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/find_file.hpp>
#include <parx/data/formats/idx.hpp>

namespace parx::data {

/// How a batch of images is laid out: [n, 1, rows, columns] for convolutions, [n, rows * columns]
/// for linear layers.
enum class image_shape { planes, flat };

/// Pixels become (value - mean) / deviation, where value runs from 0 (background) to 1.
struct image_options {
  image_shape shape = image_shape::planes;
  float mean = 0;
  float deviation = 1;
};

/// The shape of a batch of `count` images.
[[nodiscard]] inline parx::shape batch_shape(image_shape wanted, std::size_t count,
                                             std::size_t rows, std::size_t columns) {
  if (wanted == image_shape::flat) return {count, rows * columns};
  return {count, 1, rows, columns};
}

class image_dataset {
 public:
  /// Throws errc::bad_data, with the names in the message, when there are not as many labels as
  /// images or a label is not below `classes`.
  image_dataset(idx_images images, std::vector<std::uint8_t> labels, image_options options = {},
                std::size_t classes = 10, std::string_view images_name = "images",
                std::string_view labels_name = "labels")
      : images_(std::move(images)),
        labels_(std::move(labels)),
        options_(options),
        classes_(classes) {
    require(options.deviation > 0, "image_dataset: the deviation must be positive, not {}",
            options.deviation);
    if (images_.count != labels_.size()) {
      throw_error(errc::bad_data,
                  "\"{}\" has {} images, but \"{}\" has {} labels. The two do not belong together; "
                  "take both "
                  "from the same set.",
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

  /// Reads a pair of IDX files, plain or gzip. Throws errc::io or errc::bad_data.
  [[nodiscard]] static image_dataset from_idx(const std::string& images, const std::string& labels,
                                              image_options options = {},
                                              std::size_t classes = 10) {
    return {read_idx_images(images), read_idx_labels(labels), options, classes, images, labels};
  }

  /// Reads the pair of files in `folder` whose names begin with `part` ("train", "t10k") and hold
  /// "images" and "labels", as MNIST and its relatives name them. Throws errc::io when there is no
  /// such file or more than one, errc::bad_data for wrong contents.
  [[nodiscard]] static image_dataset from_folder(const std::string& folder, std::string_view part,
                                                 image_options options = {},
                                                 std::size_t classes = 10) {
    const std::string images = find_file(folder, part, "images", "the IDX files");
    return from_idx(images, find_file(folder, part, "labels", "the IDX files"), options, classes);
  }

  [[nodiscard]] std::size_t size() const noexcept { return labels_.size(); }
  [[nodiscard]] std::size_t rows() const noexcept { return images_.rows; }
  [[nodiscard]] std::size_t columns() const noexcept { return images_.columns; }
  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }

  [[nodiscard]] batch fetch(std::span<const std::size_t> indices) const {
    const std::size_t pixels = rows() * columns();
    batch result{
        tensor<float>::empty(batch_shape(options_.shape, indices.size(), rows(), columns())),
        tensor<std::int64_t>::empty({indices.size()}),
        {}};
    const float scale = 1.0F / (255.0F * options_.deviation);
    const float shift = -options_.mean / options_.deviation;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      require(indices[i] < size(), "image {} does not exist in a data set of {}", indices[i],
              size());
      const std::uint8_t* from = images_.pixels.data() + indices[i] * pixels;
      float* to = result.x.data() + i * pixels;
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        to[pixel] = static_cast<float>(from[pixel]) * scale + shift;
      }
      result.y.data()[i] = labels_[indices[i]];
    }
    return result;
  }

  /// The pixels' mean and standard deviation, as image_options takes them. Those of the training
  /// images belong to the test images, too.
  [[nodiscard]] image_options statistics() const {
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

  /// The same images with other options.
  [[nodiscard]] image_dataset with(image_options options) && {
    options_ = options;
    return std::move(*this);
  }

 private:
  idx_images images_;
  std::vector<std::uint8_t> labels_;
  image_options options_;
  std::size_t classes_;
};

}  // namespace parx::data
