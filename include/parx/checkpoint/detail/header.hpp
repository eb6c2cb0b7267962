// The header of a safetensors file, as a codec without I/O.
//
// JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}, offsets in
// bytes from the end of the header, "__metadata__" an object of strings. Tensors cover the data
// without holes or overlaps. parse_header verifies everything that a file says. Source:
// github.com/huggingface/safetensors, README.md ("Format").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A tensor in a safetensors file.
struct stored_tensor {
  std::string name;
  std::string dtype_name;                ///< as written in the file: "F32", "BF16", "BOOL", ...
  std::optional<parx::dtype> type = {};  ///< nullopt if parx does not support it (BOOL, F8_E4M3)
  std::vector<std::uint64_t> shape = {};
  std::uint64_t begin = 0;  ///< first byte in the data section
  std::uint64_t end = 0;    ///< one past its last byte
};

using checkpoint_metadata = std::map<std::string, std::string>;

namespace detail {

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

[[nodiscard]] std::string_view safetensors_name(dtype type);
/// nullptr if the format has no type of this name.
[[nodiscard]] const safetensors_type* find_type(std::string_view name);

/// The description of a tensor of `bytes` bytes, to be placed by lay_out.
[[nodiscard]] stored_tensor described(std::string name, dtype type,
                                      std::vector<std::uint64_t> shape, std::uint64_t bytes);

struct safetensors_header {
  std::vector<stored_tensor> tensors;  ///< in the order of their data
  checkpoint_metadata metadata;
};

/// The JSON text, padded with spaces so that the data, which follow its length and the text, begin
/// at a multiple of 64 bytes, enough for every type and vector register. The format asks for 8.
[[nodiscard]] std::string encode_header(const safetensors_header& header);

/// Compares shape and type with the number of bytes. Returns a message if they do not agree.
[[nodiscard]] std::optional<std::string> check_extent(const stored_tensor& tensor);

/// Reads and checks a header in front of `data_bytes` of data. Throws json::error, whose text
/// follows "the header is damaged: ".
[[nodiscard]] safetensors_header parse_header(std::string_view text, std::uint64_t data_bytes);

}  // namespace detail

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/header_impl.hpp>
#endif
