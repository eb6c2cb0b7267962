// safetensors: tensors with names in one file, as Hugging Face's libraries read and write them.
//
// The file: a 64-bit little-endian number N, N bytes of JSON header, the data. Writing is all or
// nothing; reading trusts nothing (see detail/header.hpp) and allocates nothing that the file does
// not really hold. A file object may be read from several threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/detail/header.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

/// A tensor to be written: row-major elements of `type`, size_of(type) * product of `shape` bytes.
struct tensor_to_store {
  std::string name;
  dtype type = dtype::float32;
  std::vector<std::uint64_t> shape = {};
  std::span<const std::byte> data = {};
};

namespace detail {

/// Where tensors come in a file: in order, with begin and end. Of each, `end` is its size in bytes.
[[nodiscard]] inline safetensors_header lay_out(std::vector<stored_tensor> tensors,
                                                checkpoint_metadata metadata) {
  // Wide types first: then each tensor is aligned for its type, as in the reference implementation.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const auto width = [](const stored_tensor& tensor) {
      return tensor.type ? size_of(*tensor.type) : 0;  // 0: check_extent refuses it
    };
    return width(a) > width(b);
  });
  std::set<std::string_view> names{"__metadata__"};
  std::uint64_t offset = 0;
  for (stored_tensor& tensor : tensors) {
    require(names.insert(tensor.name).second, "write_safetensors: two tensors are called \"{}\"",
            tensor.name);
    tensor.begin = offset;
    tensor.end += offset;
    if (const auto wrong = check_extent(tensor))
      throw_usage("write_safetensors: the tensor \"{}\" {}", tensor.name, *wrong);
    offset = tensor.end;
  }
  return {std::move(tensors), std::move(metadata)};
}

/// What comes before the data.
[[nodiscard]] inline std::string head_of(const safetensors_header& header) {
  const std::string text = encode_header(header);
  const std::uint64_t length = text.size();
  std::string head(sizeof length, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  return head + text;
}

/// Calls write(bytes) with the pieces of a safetensors file, from front to back.
template <typename Write>
void put_safetensors(std::span<const tensor_to_store> tensors, const checkpoint_metadata& metadata,
                     Write&& write) {
  std::vector<stored_tensor> described;
  std::map<std::string_view, std::span<const std::byte>> data;
  for (const tensor_to_store& tensor : tensors) {
    described.push_back({.name = tensor.name,
                         .dtype_name = std::string(safetensors_name(tensor.type)),
                         .type = tensor.type,
                         .shape = tensor.shape,
                         .begin = 0,
                         .end = tensor.data.size()});
    data[tensor.name] = tensor.data;
  }
  const safetensors_header header = lay_out(std::move(described), metadata);
  const std::string head = head_of(header);
  write(std::as_bytes(std::span(head)));
  for (const stored_tensor& tensor : header.tensors) write(data.at(tensor.name));
}

}  // namespace detail

/// Writes `path` in one stroke: it holds all tensors, or what it held before. Throws errc::io;
/// usage_error when two tensors have one name or a size is wrong. Blocks until the data are on the
/// disk.
inline void write_safetensors(const std::string& path, std::span<const tensor_to_store> tensors,
                              const checkpoint_metadata& metadata = {}) {
  detail::atomic_file file(path);
  detail::put_safetensors(tensors, metadata, [&](auto bytes) { file.write(bytes); });
  file.commit();
}

/// A file that is open for reading; its header has been checked.
class safetensors_file {
 public:
  /// Throws errc::io when the file cannot be read, errc::bad_data when it is not a safetensors
  /// file, is damaged or cut short.
  explicit safetensors_file(std::string path) : file_(std::move(path)) {
    const std::uint64_t size = file_.size();
    std::uint64_t length = 0;
    if (size < sizeof length) reject(fmt::format("it has only {} bytes", size));
    file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > largest_header || length > size - sizeof length) {
      reject(fmt::format("its header would take {} bytes, but the file has {}", length, size));
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read(sizeof length, std::as_writable_bytes(std::span(text)));
    data_ = sizeof length + length;
    try {
      header_ = detail::parse_header(text, size - data_);
    } catch (const json::error& failure) {
      reject(fmt::format("its header is damaged: {}", failure.what()));
    }
    by_name_.resize(header_.tensors.size());
    std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
    std::sort(by_name_.begin(), by_name_.end(), [&](std::size_t a, std::size_t b) {
      return tensors()[a].name < tensors()[b].name;
    });
  }

  /// All tensors, in the order of their data.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept {
    return header_.tensors;
  }
  [[nodiscard]] const checkpoint_metadata& metadata() const noexcept { return header_.metadata; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  /// The tensor of this name, or nullptr.
  [[nodiscard]] const stored_tensor* find(std::string_view name) const noexcept {
    const auto found = std::lower_bound(
        by_name_.begin(), by_name_.end(), name,
        [&](std::size_t i, std::string_view wanted) { return tensors()[i].name < wanted; });
    const bool there = found != by_name_.end() && tensors()[*found].name == name;
    return there ? &tensors()[*found] : nullptr;
  }

  /// The byte of the file at which those of `tensor` begin.
  [[nodiscard]] std::uint64_t offset(const stored_tensor& tensor) const noexcept {
    return data_ + tensor.begin;
  }
  [[nodiscard]] const detail::input_file& input() const noexcept { return file_; }
  /// See input_file.
  void share_descriptors() { file_.share_descriptors(); }

  /// The bytes of `tensor` from its byte number `first` on, as they are in the file. Throws
  /// errc::io when the disk fails.
  void read(const stored_tensor& tensor, std::span<std::byte> target, std::uint64_t first) const {
    const std::uint64_t bytes = tensor.end - tensor.begin;
    require(first <= bytes && target.size() <= bytes - first,
            "the tensor \"{}\" has {} bytes, not {}", tensor.name, bytes, first + target.size());
    file_.read(offset(tensor) + first, target);
  }
  /// All bytes of `tensor`; `target` must have exactly their number.
  void read(const stored_tensor& tensor, std::span<std::byte> target) const {
    require(target.size() == tensor.end - tensor.begin, "the tensor \"{}\" has {} bytes, not {}",
            tensor.name, tensor.end - tensor.begin, target.size());
    file_.read(offset(tensor), target);
  }

  /// Where the elements of `part` of a tensor of tensors() are: calls use(file, tensor of that
  /// file, its first element, the first element of the part, how many) run by run.
  template <typename Use>
  void for_each_source(const stored_tensor& tensor, const shard_spec& part, Use&& use) const {
    part.for_each_run([&](const shard_run& run) {
      use(*this, tensor, run.global, run.local, run.length);
    });
  }

 private:
  static constexpr std::uint64_t largest_header =
      100'000'000;  // as in the reference implementation

  [[noreturn]] void reject(const std::string& reason) const {
    throw_error(
        errc::bad_data,
        "\"{}\" is not a whole safetensors file: {}. Give another file, or copy this one again.",
        path(), reason);
  }

  detail::input_file file_;
  detail::safetensors_header header_;
  std::vector<std::size_t> by_name_;  // indices of tensors(), in the order of their names
  std::uint64_t data_ = 0;
};

}  // namespace parx
