// image_dataset: images with class labels, stored as bytes and converted to floats batch by batch.
//
// Bytes take a quarter of the memory, and the conversion is a multiplication and an addition that
// runs at memory speed. Immutable; fetch() from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/source.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/find_file.hpp>
#include <parx/data/formats/cifar.hpp>
#include <parx/data/formats/idx.hpp>
#include <parx/data/formats/image_bytes.hpp>

namespace parx::inline PARX_ABI::data {

/// How a batch of images is laid out: [n, channels, rows, columns] for convolutions, [n, channels *
/// rows * columns] for linear layers.
enum class image_shape { planes, flat };

/// Pixels become (value - mean) / deviation, where value runs from 0 (background) to 1.
struct image_options {
  image_shape shape = image_shape::planes;
  float mean = 0;
  float deviation = 1;
};

/// The shape of a batch of `count` images.
[[nodiscard]] parx::shape batch_shape(image_shape wanted, std::size_t count, std::size_t channels,
                                      std::size_t rows, std::size_t columns);

/// The training images or the test images of a folder.
enum class split { train, test };

class image_dataset {
 public:
  /// Throws errc::bad_data, with the names in the message, when there are not as many labels as
  /// images or a label is not below `classes`.
  image_dataset(image_bytes images, std::vector<std::uint8_t> labels, image_options options = {},
                std::size_t classes = 10, std::string_view images_name = "images",
                std::string_view labels_name = "labels");

  /// Reads a pair of IDX files, plain or gzip. Throws errc::io or errc::bad_data.
  [[nodiscard]] static image_dataset from_idx(const std::string& images, const std::string& labels,
                                              image_options options = {}, std::size_t classes = 10,
                                              call_site = call_site::current());

  /// Reads the files of CIFAR-10 (data_batch*.bin, test_batch*.bin) or CIFAR-100 (train.bin,
  /// test.bin; fine labels) in `folder`; without any of them, the pair of IDX files whose names
  /// begin with "train" or "t10k" and hold "images" and "labels", as MNIST and its relatives name
  /// them. An IDX file has labels below `classes`; a class without an image to train with is a
  /// warning. Throws errc::io when a file is missing or there is more than one, errc::bad_data for
  /// wrong contents.
  [[nodiscard]] static image_dataset from_folder(const std::string& folder, split part,
                                                 image_options options = {},
                                                 std::size_t classes = 10,
                                                 call_site = call_site::current());

  /// Reads files of CIFAR-10 or CIFAR-100 in their binary version, one after another. Throws as
  /// read_cifar.
  [[nodiscard]] static image_dataset from_cifar(const std::vector<std::string>& files,
                                                cifar_labels kind, image_options options = {});

  [[nodiscard]] std::size_t size() const noexcept { return labels_.size(); }
  [[nodiscard]] std::size_t channels() const noexcept { return images_.channels; }
  [[nodiscard]] std::size_t rows() const noexcept { return images_.rows; }
  [[nodiscard]] std::size_t columns() const noexcept { return images_.columns; }
  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }

  [[nodiscard]] batch fetch(std::span<const std::size_t> indices) const;

  /// Mean and standard deviation of the pixels of all channels, as image_options takes them. Use
  /// those of the training images for the test images, too.
  [[nodiscard]] image_options statistics() const;

  /// The same images with other options.
  [[nodiscard]] image_dataset with(image_options options) && {
    options_ = options;
    return std::move(*this);
  }

 private:
  [[nodiscard]] static image_dataset of_folder(const std::string& folder, split part,
                                               image_options options, std::size_t classes);
  void warn_of_empty_classes(const std::string& folder) const;

  image_bytes images_;
  std::vector<std::uint8_t> labels_;
  image_options options_;
  std::size_t classes_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/detail/images_impl.hpp>
#endif
