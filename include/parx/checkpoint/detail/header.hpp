// The header of a safetensors file, as a codec without I/O.
//
// JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}, offsets in
// bytes from the end of the header, "__metadata__" an object of strings. Tensors cover the data
// without holes or overlaps. Everything a file says is checked before anything is believed. Source:
// github.com/huggingface/safetensors, README.md ("Format").
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <parx/core/json_quote.hpp>
#include <parx/core/json_reader.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A tensor in a safetensors file.
struct stored_tensor {
  std::string name;
  std::string dtype_name;                ///< as written in the file: "F32", "BF16", "BOOL", ...
  std::optional<parx::dtype> type = {};  ///< nullopt for a type that parx has not (BOOL, F8_E4M3)
  std::vector<std::uint64_t> shape = {};
  std::uint64_t begin = 0;  ///< first byte in the data section
  std::uint64_t end = 0;    ///< one past its last byte
};

using checkpoint_metadata = std::map<std::string, std::string>;

namespace detail {

/// "2, 3". Not by fmt::join, whose formatters of numbers are compiled anew in every program.
[[nodiscard]] inline std::string extents_text(std::span<const std::uint64_t> shape,
                                              std::string_view between = ", ") {
  std::string text;
  for (const std::uint64_t extent : shape) {
    if (!text.empty()) text += between;
    text += std::to_string(extent);
  }
  return text;
}

struct safetensors_type {
  std::string_view name;
  std::uint64_t bits;
  std::optional<dtype> type;
};

// As of version 0.7 of the reference implementation.
inline constexpr std::array<safetensors_type, 24> safetensors_types{{
    {"F32", 32, dtype::float32},     {"F64", 64, dtype::float64},
    {"F16", 16, dtype::float16},     {"BF16", 16, dtype::bfloat16},
    {"I8", 8, dtype::int8},          {"I16", 16, dtype::int16},
    {"I32", 32, dtype::int32},       {"I64", 64, dtype::int64},
    {"U8", 8, dtype::uint8},         {"U16", 16, dtype::uint16},
    {"U32", 32, dtype::uint32},      {"U64", 64, dtype::uint64},
    {"BOOL", 8, std::nullopt},       {"C64", 64, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},    {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},    {"F8_E4M3FN", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},    {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},         {"F4_E2M1", 4, std::nullopt},
}};

[[nodiscard]] inline std::string_view safetensors_name(dtype type) {
  return std::find_if(safetensors_types.begin(), safetensors_types.end(),
                      [=](const safetensors_type& known) { return known.type == type; })
      ->name;
}

struct safetensors_header {
  std::vector<stored_tensor> tensors;  ///< in the order of their data
  checkpoint_metadata metadata;
};

/// The JSON text, padded with spaces so that the data, which come after it and its length, begin at
/// a multiple of 64 bytes: of whatever a type or a vector register wants. The format asks for 8.
[[nodiscard]] inline std::string encode_header(const safetensors_header& header) {
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
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json::quote(tensor.name), tensor.dtype_name,
                        extents_text(tensor.shape, ","), tensor.begin, tensor.end);
  }
  text += "}";
  constexpr std::size_t alignment = 64;
  constexpr std::size_t length = sizeof(std::uint64_t);
  text.resize((text.size() + length + alignment - 1) / alignment * alignment - length, ' ');
  return text;
}

/// shape and type against the number of bytes; a message, or nothing when they agree.
[[nodiscard]] inline std::optional<std::string> check_extent(const stored_tensor& tensor) {
  const auto known =
      std::find_if(safetensors_types.begin(), safetensors_types.end(),
                   [&](const safetensors_type& type) { return type.name == tensor.dtype_name; });
  if (known == safetensors_types.end())
    return fmt::format("has the unknown type \"{}\"", tensor.dtype_name);
  std::uint64_t bits = known->bits;
  for (const std::uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bits, extent, &bits)) return "has a shape of more than 2^64 bits";
  }
  if (bits % 8 != 0) return "does not end with a whole byte";
  const std::uint64_t bytes = bits / 8;
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
    return fmt::format("has the offsets {} to {}, but its type {} and shape [{}] need {} bytes",
                       tensor.begin, tensor.end, tensor.dtype_name, extents_text(tensor.shape),
                       bytes);
  }
  return std::nullopt;
}

[[nodiscard]] inline stored_tensor parse_tensor(json::reader& json, std::string name) {
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
  if (seen != 7) json.fail(fmt::format("dtype, shape and data_offsets of \"{}\"", tensor.name));
  for (const safetensors_type& known : safetensors_types) {
    if (known.name == tensor.dtype_name) tensor.type = known.type;
  }
  return tensor;
}

/// Reads and checks a header in front of `data_bytes` of data. Throws json::error, whose text
/// follows "the header is damaged: ".
[[nodiscard]] inline safetensors_header parse_header(std::string_view text,
                                                     std::uint64_t data_bytes) {
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
      throw json::error(fmt::format("the tensor \"{}\" appears twice", tensor.name));
    }
  }
  // By end, too, so that empty tensors come before the one that begins at the same byte.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  for (const stored_tensor& tensor : tensors) {
    if (const auto wrong = check_extent(tensor)) {
      throw json::error(fmt::format("the tensor \"{}\" {}", tensor.name, *wrong));
    }
    if (tensor.begin != covered) {
      throw json::error(
          fmt::format("the tensor \"{}\" begins at byte {} of the data, expected {}: tensors must "
                      "follow each other without holes or overlaps",
                      tensor.name, tensor.begin, covered));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw json::error(fmt::format("its tensors take {} bytes, but the file has {} bytes of data{}",
                                 covered, data_bytes,
                                 covered > data_bytes ? "; it was cut short" : ""));
  }
  return header;
}

}  // namespace detail

}  // namespace parx
