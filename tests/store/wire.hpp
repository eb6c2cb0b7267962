// The bytes of PyTorch's store protocol, for clients and servers that know their part by heart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <parx/store/detail/protocol.hpp>

namespace store_wire {

inline std::string u64(std::uint64_t value) {
  std::string result;
  parx::detail::store_protocol::put(result, value);
  return result;
}
inline std::string text(std::string_view value) { return u64(value.size()) + std::string(value); }

}  // namespace store_wire
