// Definitions of header.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include <parx/checkpoint/detail/header.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/json_quote.hpp>
#include <parx/core/json_reader.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::string_view safetensors_name(dtype type) {
  return std::find_if(safetensors_types.begin(), safetensors_types.end(),
                      [=](const safetensors_type& known) { return known.type == type; })
      ->name;
}

PARX_INLINE const safetensors_type* find_type(std::string_view name) {
  const auto found =
      std::find_if(safetensors_types.begin(), safetensors_types.end(),
                   [=](const safetensors_type& known) { return known.name == name; });
  return found == safetensors_types.end() ? nullptr : &*found;
}

PARX_INLINE stored_tensor described(std::string name, dtype type, std::vector<std::uint64_t> shape,
                                    std::uint64_t bytes) {
  return {.name = std::move(name),
          .dtype_name = std::string(safetensors_name(type)),
          .type = type,
          .shape = std::move(shape),
          .begin = 0,
          .end = bytes};
}

PARX_INLINE std::string encode_header(const safetensors_header& header) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      if (text.back() != '{') text += ',';
      text += json::quote(key) + ":" + json::quote(value);
    }
    text += "}";
  }
  for (const stored_tensor& tensor : header.tensors) {
    if (text.size() > 1) text += ',';
    text += formatted("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json::quote(tensor.name), tensor.dtype_name,
                        joined_text(tensor.shape, ","), tensor.begin, tensor.end);
  }
  text += "}";
  constexpr std::size_t alignment = 64;
  constexpr std::size_t length = sizeof(std::uint64_t);
  text.resize((text.size() + length + alignment - 1) / alignment * alignment - length, ' ');
  return text;
}

PARX_INLINE std::optional<std::string> check_extent(const stored_tensor& tensor) {
  const safetensors_type* const known = find_type(tensor.dtype_name);
  if (known == nullptr) return formatted("has the unknown type \"{}\"", tensor.dtype_name);
  std::uint64_t bits = known->bits;
  for (const std::uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bits, extent, &bits)) return "has a shape of more than 2^64 bits";
  }
  if (bits % 8 != 0) return "does not end with a whole byte";
  const std::uint64_t bytes = bits / 8;
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
    return formatted("has the offsets {} to {}, but its type {} and shape [{}] need {} bytes",
                       tensor.begin, tensor.end, tensor.dtype_name, joined_text(tensor.shape),
                       bytes);
  }
  return std::nullopt;
}

[[nodiscard]] PARX_INLINE stored_tensor parse_tensor(json::reader& json, std::string name) {
  stored_tensor tensor{.name = std::move(name), .dtype_name = {}};
  unsigned seen = 0;
  const auto once = [&](unsigned bit) {
    if ((seen & bit) != 0) json.fail("each of \"dtype\", \"shape\" and \"data_offsets\" once");
    seen |= bit;
  };
  json.object([&](const std::string& key) {
    if (key == "dtype") {
      once(1);
      tensor.dtype_name = json.string();
    } else if (key == "shape") {
      once(2);
      tensor.shape = json.numbers();
    } else if (key == "data_offsets") {
      once(4);
      const auto offsets = json.numbers();
      if (offsets.size() != 2) json.fail("two offsets");
      tensor.begin = offsets[0];
      tensor.end = offsets[1];
    } else {
      json.fail("\"dtype\", \"shape\" or \"data_offsets\"");
    }
  });
  if (seen != 7) json.fail(formatted("dtype, shape and data_offsets of \"{}\"", tensor.name));
  if (const auto* const known = find_type(tensor.dtype_name)) tensor.type = known->type;
  return tensor;
}

PARX_INLINE safetensors_header parse_header(std::string_view text, std::uint64_t data_bytes) {
  safetensors_header header;
  json::reader json(text);
  json.object([&](std::string name) {
    if (name == "__metadata__") {
      json.object([&](std::string key) { header.metadata[std::move(key)] = json.string(); });
    } else {
      header.tensors.push_back(parse_tensor(json, std::move(name)));
    }
  });
  json.end();
  auto& tensors = header.tensors;
  std::set<std::string_view> names;
  for (const stored_tensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw json::error(formatted("the tensor \"{}\" appears twice", tensor.name));
    }
  }
  // Also by end, so that empty tensors come before the one that begins at the same byte.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  for (const stored_tensor& tensor : tensors) {
    if (const auto wrong = check_extent(tensor)) {
      throw json::error(formatted("the tensor \"{}\" {}", tensor.name, *wrong));
    }
    if (tensor.begin != covered) {
      throw json::error(
          formatted("the tensor \"{}\" begins at byte {} of the data, expected {}: tensors must "
                    "follow each other without holes or overlaps",
                    tensor.name, tensor.begin, covered));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw json::error(formatted("its tensors take {} bytes, but the file has {} bytes of data{}",
                                covered, data_bytes,
                                covered > data_bytes ? "; it was cut short" : ""));
  }
  return header;
}

}  // namespace parx::detail
