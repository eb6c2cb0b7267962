// read_problem: why a path cannot be read here, and how much there is of it.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include <parx/core/error.hpp>

namespace examples::detail {

/// Why a path cannot be read; empty: it can. `size`: of a file in bytes, of a folder its entries.
inline std::string read_problem(const std::string& path, std::uint64_t& size) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return parx::errno_text(errno);
  if (::access(path.c_str(), S_ISDIR(status.st_mode) ? R_OK | X_OK : R_OK) != 0) {
    return parx::errno_text(errno);
  }
  if (S_ISREG(status.st_mode)) size = static_cast<std::uint64_t>(status.st_size);
  if (S_ISDIR(status.st_mode)) {
    std::error_code unreadable;
    for (std::filesystem::directory_iterator each(path, unreadable), end; each != end;
         each.increment(unreadable)) {
      if (unreadable) break;
      ++size;
    }
  }
  return {};
}

}  // namespace examples::detail
