// Definitions of safetensors.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE parx::shape shape_of(const stored_tensor& tensor) {
  parx::shape extents;
  for (const std::uint64_t extent : tensor.shape)
    extents.push_back(static_cast<std::size_t>(extent));
  return extents;
}

PARX_INLINE safetensors_header lay_out(std::vector<stored_tensor> tensors,
                                       checkpoint_metadata metadata) {
  // Wide types first, so that each tensor is aligned for its type, as in the reference
  // implementation.
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

PARX_INLINE std::string head_of(const safetensors_header& header) {
  const std::string text = encode_header(header);
  const std::uint64_t length = text.size();
  std::string head(sizeof length, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  return head + text;
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE void write_safetensors(const std::string& path,
                                   std::span<const tensor_to_store> tensors,
                                   const checkpoint_metadata& metadata) {
  detail::atomic_file file(path);
  detail::put_safetensors(tensors, metadata, [&](auto bytes) { file.write(bytes); });
  file.commit();
}

PARX_INLINE safetensors_file::safetensors_file(std::string path) : file_(std::move(path)) {
  const std::uint64_t size = file_.size();
  std::uint64_t length = 0;
  if (size < sizeof length) reject(formatted("it has only {} bytes", size));
  file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > largest_header || length > size - sizeof length) {
    reject(formatted("its header would take {} bytes, but the file has {}", length, size));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file_.read(sizeof length, std::as_writable_bytes(std::span(text)));
  data_ = sizeof length + length;
  try {
    header_ = detail::parse_header(text, size - data_);
  } catch (const json::error& failure) {
    reject(formatted("its header is damaged: {}", failure.what()));
  }
  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return tensors()[a].name < tensors()[b].name; });
}

PARX_INLINE const stored_tensor* safetensors_file::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::size_t i, std::string_view wanted) { return tensors()[i].name < wanted; });
  const bool there = found != by_name_.end() && tensors()[*found].name == name;
  return there ? &tensors()[*found] : nullptr;
}

PARX_INLINE void safetensors_file::read(const stored_tensor& tensor, std::span<std::byte> target,
                                        std::uint64_t first) const {
  const std::uint64_t bytes = tensor.end - tensor.begin;
  require(first <= bytes && target.size() <= bytes - first,
          "the tensor \"{}\" has {} bytes, not {}", tensor.name, bytes, first + target.size());
  file_.read(offset(tensor) + first, target);
}

PARX_INLINE void safetensors_file::read(const stored_tensor& tensor,
                                        std::span<std::byte> target) const {
  require(target.size() == tensor.end - tensor.begin, "the tensor \"{}\" has {} bytes, not {}",
          tensor.name, tensor.end - tensor.begin, target.size());
  file_.read(offset(tensor), target);
}

PARX_INLINE void safetensors_file::reject(const std::string& reason) const {
  throw_error(
      errc::bad_data,
      "\"{}\" is not a whole safetensors file: {}. Give another file, or copy this one again.",
      path(), reason);
}

}  // namespace parx
