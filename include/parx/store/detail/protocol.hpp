// The TCPStore protocol as data: operations, opcode tables, layouts of requests, the encoder.
//
// Integers are little-endian; a string is a u64 length and its bytes; a key list is a u64 count and
// its strings. A request does not contain its own length, so a reader must know every layout. No
// I/O.
//
// Source: torch/csrc/distributed/c10d/{TCPStore,TCPStoreBackend,TCPStoreLibUvBackend}.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI::detail::store_protocol {

/// Follows opcode 0 in the first five bytes of a connection from torch 2.2 on.
inline constexpr std::uint32_t magic = 0x3C85F7CE;

// Limits of one request. The first two are those of PyTorch's libuv server. That server accepts
// 131 072 keys, but so many keep a thread busy for a tenth of a second or longer.
inline constexpr std::size_t max_key_bytes = std::size_t{8} << 10;
inline constexpr std::size_t max_value_bytes = std::size_t{8} << 20;
inline constexpr std::size_t max_keys = std::size_t{4} << 10;
inline constexpr std::size_t max_message_bytes = std::size_t{10} << 20;
/// A request with a longer answer is refused.
inline constexpr std::size_t max_answer_bytes = std::size_t{10} << 20;

// Limits for all clients of a server together: with one request and one answer, less than 64 MiB.
inline constexpr std::size_t max_stored_keys = std::size_t{128} << 10;
inline constexpr std::size_t max_stored_bytes = std::size_t{24} << 20;   ///< map nodes included
inline constexpr std::size_t max_waiting_bytes = std::size_t{8} << 20;   ///< keys waited for
inline constexpr std::size_t max_arriving_bytes = std::size_t{4} << 20;  ///< incomplete requests
inline constexpr std::size_t max_leaving_bytes = std::size_t{12} << 20;  ///< unsent answers

enum class operation : std::uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  num_keys,
  watch_key,
  delete_key,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
  queue_push,
  queue_pop,
  queue_len,
  list,
};

struct request {
  operation op = operation::num_keys;
  std::vector<std::string> keys = {};
  std::vector<std::string> values = {};  ///< compare_set: expected, desired
  std::int64_t number = 0;               ///< add: delta; validate: magic; ping: nonce
};
[[nodiscard]] inline std::size_t memory_of(const request& r) noexcept {
  std::size_t total = sizeof(std::string) * (r.keys.size() + r.values.size());
  for (const std::string& each : r.keys) total += each.size();
  for (const std::string& each : r.values) total += each.size();
  return total;
}

namespace tables {
using enum operation;
inline constexpr std::array torch_1_13 = {set,  compare_set, get,       add,       check,
                                          wait, num_keys,    watch_key, delete_key};
inline constexpr std::array torch_2_1 = {set,    compare_set, get,       add,
                                         check,  wait,        num_keys,  delete_key,
                                         append, multi_get,   multi_set, cancel_wait};
inline constexpr std::array torch_2_5 = {validate,  set,       compare_set, get,        add,
                                         check,     wait,      num_keys,    delete_key, append,
                                         multi_get, multi_set, cancel_wait, ping,       queue_push,
                                         queue_pop, queue_len, list};
}  // namespace tables

/// The opcode of each operation is its index here.
[[nodiscard]] constexpr std::span<const operation> opcodes(store_dialect dialect) noexcept {
  switch (dialect) {
    case store_dialect::torch_1_13:
      return tables::torch_1_13;
    case store_dialect::torch_2_1:
      return tables::torch_2_1;
    case store_dialect::torch_2_2:
      return std::span(tables::torch_2_5).first(13);
    case store_dialect::torch_2_5:
      return tables::torch_2_5;
  }
  return {};
}

[[nodiscard]] constexpr std::optional<std::uint8_t> opcode_of(store_dialect dialect,
                                                              operation op) noexcept {
  const auto table = opcodes(dialect);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] == op) return static_cast<std::uint8_t>(i);
  }
  return std::nullopt;
}

enum class field : std::uint8_t { u32, i64, key, value };

/// What follows an opcode: `fields` once or, if `counted`, a u64 and that many times `fields`.
struct layout {
  std::array<field, 3> fields{};
  std::size_t size = 0;
  bool counted = false;
};

[[nodiscard]] constexpr layout layout_of(operation op) noexcept {
  switch (op) {
    case operation::validate:
    case operation::ping:
      return {{field::u32}, 1, false};
    case operation::set:
    case operation::append:
    case operation::queue_push:
      return {{field::key, field::value}, 2, false};
    case operation::compare_set:
      return {{field::key, field::value, field::value}, 3, false};
    case operation::add:
      return {{field::key, field::i64}, 2, false};
    case operation::get:
    case operation::watch_key:
    case operation::delete_key:
    case operation::queue_pop:
    case operation::queue_len:
      return {{field::key}, 1, false};
    case operation::check:
    case operation::wait:
    case operation::multi_get:
      return {{field::key}, 1, true};
    case operation::multi_set:
      return {{field::key, field::value}, 2, true};
    case operation::num_keys:
    case operation::cancel_wait:
    case operation::list:
      return {};
  }
  return {};
}

// The loops below compile to plain moves on little-endian machines.

template <typename Unsigned>
void put(std::string& out, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof(Unsigned); ++byte) {
    out.push_back(static_cast<char>((value >> (8 * byte)) & 0xff));
  }
}

/// Reads from the first sizeof(Unsigned) bytes of `bytes`, which must be there.
template <typename Unsigned>
[[nodiscard]] Unsigned take(std::string_view bytes) noexcept {
  Unsigned value = 0;
  for (std::size_t byte = 0; byte < sizeof(Unsigned); ++byte) {
    value |= static_cast<Unsigned>(static_cast<Unsigned>(static_cast<unsigned char>(bytes[byte]))
                                   << (8 * byte));
  }
  return value;
}

inline void put_string(std::string& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  out.append(text);
}

/// Appends a request to `out`. The operation must exist in the dialect, and the numbers of keys and
/// values must match its layout.
inline void encode(std::string& out, store_dialect dialect, const request& r) {
  out.push_back(static_cast<char>(opcode_of(dialect, r.op).value()));
  const layout form = layout_of(r.op);
  if (form.counted) put(out, std::uint64_t{r.keys.size()});
  const std::size_t repeats = form.counted ? r.keys.size() : 1;
  std::size_t key = 0;
  std::size_t value = 0;
  for (std::size_t i = 0; i < repeats; ++i) {
    for (std::size_t f = 0; f < form.size; ++f) {
      switch (form.fields[f]) {
        case field::u32:
          put(out, static_cast<std::uint32_t>(r.number));
          break;
        case field::i64:
          put(out, static_cast<std::uint64_t>(r.number));
          break;
        case field::key:
          put_string(out, r.keys.at(key++));
          break;
        case field::value:
          put_string(out, r.values.at(value++));
          break;
      }
    }
  }
}

/// Throws usage_error for a request so large that a server would close the connection.
inline void require_within_limits(const request& r) {
  std::size_t total = 0;
  require(r.keys.size() <= max_keys, "a store request lists {} keys; at most {} go into one",
          r.keys.size(), max_keys);
  for (const std::string& key : r.keys) {
    require(key.size() <= max_key_bytes,
            "a store key of {} bytes is too long; at most {} are allowed", key.size(),
            max_key_bytes);
    total += key.size();
  }
  for (const std::string& value : r.values) {
    require(value.size() <= max_value_bytes,
            "a store value of {} bytes is too long; at most {} are allowed: a store is for "
            "addresses and settings, send bulk data by a collective",
            value.size(), max_value_bytes);
    total += value.size();
  }
  require(total <= max_message_bytes,
          "a store request of {} bytes is too long; at most {} go into one", total,
          max_message_bytes);
}

}  // namespace parx::detail::store_protocol
