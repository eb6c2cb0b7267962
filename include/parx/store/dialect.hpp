// The dialects of PyTorch's TCPStore protocol, by the first release that spoke them.
//
// The protocol has no version number. Opcodes were inserted in the middle twice, a hello was added
// in 2.2 and a ping in 2.5; later releases only append opcodes. A tcp_store_server recognizes the
// dialect of a client by its first bytes; a tcp_store probes the server.
//
// Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp of the releases.
#pragma once

#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class store_dialect : std::uint8_t {
  torch_1_13,  ///< up to 2.0: no append, multi_get, multi_set, cancel_wait; has watch_key
  torch_2_1,   ///< 2.1: those four; no watch_key
  torch_2_2,   ///< 2.2 to 2.4: every connection starts with a magic number
  torch_2_5,   ///< 2.5 and later: the magic number is followed by a ping that the server echoes
};

}  // namespace parx
