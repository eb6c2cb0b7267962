// The dialects of PyTorch's TCPStore protocol, by the first release that spoke them.
//
// The protocol has no version number. Opcodes were inserted in the middle twice, a hello was added
// in 2.2 and a ping in 2.5; later releases only append opcodes. A tcp_store_server tells clients
// apart by their first bytes, a tcp_store finds out by probing.
//
// Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp of the releases.
#pragma once

#include <cstdint>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class store_dialect : std::uint8_t {
  torch_1_13,  ///< up to 2.0: no append, multi_get, multi_set, cancel_wait; has watch_key
  torch_2_1,   ///< 2.1: those four; no watch_key
  torch_2_2,   ///< 2.2 to 2.4: every connection starts with a magic number
  torch_2_5,   ///< 2.5 and later: the magic number is followed by a ping that the server echoes
};

[[nodiscard]] constexpr std::string_view to_string(store_dialect dialect) noexcept {
  switch (dialect) {
    case store_dialect::torch_1_13:
      return "torch 1.13";
    case store_dialect::torch_2_1:
      return "torch 2.1";
    case store_dialect::torch_2_2:
      return "torch 2.2";
    case store_dialect::torch_2_5:
      return "torch 2.5";
  }
  return "unknown";
}

}  // namespace parx
