// safetensors: tensors with names in one file, as Hugging Face's libraries read and write them.
//
// The file: a 64-bit little-endian number N, N bytes of JSON header, the data. Writing is atomic.
// Reading verifies everything (see detail/header.hpp) and never allocates more than the file's
// size. A file object may be read from several threads.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/detail/header.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

/// A tensor to be written: `data` has size_of(type) * product of `shape` bytes, row-major.
struct tensor_to_store {
  std::string name;
  dtype type = dtype::float32;
  std::vector<std::uint64_t> shape = {};
  std::span<const std::byte> data = {};
};

namespace detail {

/// Throws usage_error for more than max_rank axes.
[[nodiscard]] parx::shape shape_of(const stored_tensor& tensor);
/// The same as a shard_spec.
[[nodiscard]] inline shard_spec whole_spec(const stored_tensor& tensor) {
  return shard_spec::whole(shape_of(tensor));
}

/// Orders the tensors of a file and sets their begin and end. In the arguments, `end` is the size
/// in bytes.
[[nodiscard]] safetensors_header lay_out(std::vector<stored_tensor> tensors,
                                         checkpoint_metadata metadata);

/// The bytes of a file before the data.
[[nodiscard]] std::string head_of(const safetensors_header& header);

/// Calls write(bytes) with the pieces of a safetensors file, from front to back.
template <typename Write>
void put_safetensors(std::span<const tensor_to_store> tensors, const checkpoint_metadata& metadata,
                     Write&& write) {
  std::vector<stored_tensor> stored;
  std::map<std::string_view, std::span<const std::byte>> data;
  for (const tensor_to_store& tensor : tensors) {
    stored.push_back(described(tensor.name, tensor.type, tensor.shape, tensor.data.size()));
    data[tensor.name] = tensor.data;
  }
  const safetensors_header header = lay_out(std::move(stored), metadata);
  const std::string head = head_of(header);
  write(std::as_bytes(std::span(head)));
  for (const stored_tensor& each : header.tensors) write(data.at(each.name));
}

}  // namespace detail

/// Writes `path` atomically: if it fails, an existing file is unchanged. Throws errc::io, and
/// usage_error if two tensors have the same name or a size is wrong. Blocks until the data are on
/// the disk.
void write_safetensors(const std::string& path, std::span<const tensor_to_store> tensors,
                       const checkpoint_metadata& metadata = {});

/// A file that is open for reading; its header has been verified.
class safetensors_file {
 public:
  /// Throws errc::io if the file cannot be read, errc::bad_data if it is not a safetensors file, is
  /// damaged or truncated.
  explicit safetensors_file(std::string path);

  /// All tensors, in the order of their data.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept {
    return header_.tensors;
  }
  [[nodiscard]] const checkpoint_metadata& metadata() const noexcept { return header_.metadata; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  /// The tensor of this name, or nullptr.
  [[nodiscard]] const stored_tensor* find(std::string_view name) const noexcept;

  /// The offset in the file of the first byte of `tensor`.
  [[nodiscard]] std::uint64_t offset(const stored_tensor& tensor) const noexcept {
    return data_ + tensor.begin;
  }
  [[nodiscard]] const detail::input_file& input() const noexcept { return file_; }
  /// See input_file.
  void share_descriptors() { file_.share_descriptors(); }

  /// Fills `target` with the bytes of `tensor` from its byte number `first` on. Throws errc::io if
  /// the disk fails.
  void read(const stored_tensor& tensor, std::span<std::byte> target, std::uint64_t first) const;
  /// Reads all bytes of `tensor`; `target` must have exactly that size.
  void read(const stored_tensor& tensor, std::span<std::byte> target) const;

  /// Finds the elements of `part` of a tensor of tensors(). For each contiguous run calls use(file,
  /// tensor in that file, index of the run's first element in the tensor, index in the part,
  /// number of elements).
  template <typename Use>
  void for_each_source(const stored_tensor& tensor, const shard_spec& part, Use&& use) const {
    part.for_each_run([&](const shard_run& run) {
      use(*this, tensor, run.global, run.local, run.length);
    });
  }

 private:
  static constexpr std::uint64_t largest_header =
      100'000'000;  // as in the reference implementation

  [[noreturn]] void reject(const std::string& reason) const;

  detail::input_file file_;
  detail::safetensors_header header_;
  std::vector<std::size_t> by_name_;  // indices of tensors(), in the order of their names
  std::uint64_t data_ = 0;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/safetensors_impl.hpp>
#endif
