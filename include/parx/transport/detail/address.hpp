// Memory addresses as numbers, for another process to use with process_vm_readv or
// process_vm_writev.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline std::uint64_t address_of(const void* memory) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory);
}
[[nodiscard]] inline iovec memory_at(std::uint64_t address, std::size_t size) noexcept {
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), size};
}

}  // namespace parx::detail
