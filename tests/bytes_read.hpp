#pragma once

#include <cstdint>
#include <fstream>
#include <string>

/// Bytes that this thread has asked the kernel to read, by the kernel's own count.
inline std::uint64_t bytes_read() {
  std::ifstream counts("/proc/thread-self/io");
  std::string word;
  std::uint64_t count = 0;
  counts >> word >> count;
  return count;
}
