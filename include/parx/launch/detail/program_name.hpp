// program_name: the name of the file that this process runs, without its folder.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline std::string program_name() {
  char path[4096];
  const auto length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string name(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return name.substr(name.find_last_of('/') + 1);
}

}  // namespace parx::detail
