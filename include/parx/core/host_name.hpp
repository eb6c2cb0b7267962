// host_name: the name of this host, for messages and file names. It may not be unique.
#pragma once

#include <unistd.h>

#include <string>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline std::string host_name() {
  char text[256] = "";
  if (::gethostname(text, sizeof text - 1) != 0) return "unknown-host";
  return text;
}

}  // namespace parx::detail
