// mapped_file: a file's bytes as memory, shared by all processes of the host that map it.
//
// Copies share the mapping; the last one unmaps it. Read-only; any thread. Truncating a file while
// it is mapped kills the process (SIGBUS), so writers must rename a new file over the old one.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::data::detail {

class mapped_file {
 public:
  mapped_file() = default;

  /// Throws errc::io when it cannot be opened or is not a regular file.
  explicit mapped_file(const std::string& path) {
    const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file.valid() || ::fstat(file.get(), &status) != 0)
      throw_error(errc::io, "cannot open \"{}\": {}.", path, errno_text(errno));
    if (!S_ISREG(status.st_mode)) throw_error(errc::io, "\"{}\" is not a file.", path);
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) return;
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
      throw_error(errc::io, "cannot map \"{}\": {}.", path, errno_text(errno));
    bytes_ = std::shared_ptr<const std::byte>(
        static_cast<const std::byte*>(memory),
        [size](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); });
    size_ = size;
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.get(), size_}; }

 private:
  std::shared_ptr<const std::byte> bytes_;
  std::size_t size_ = 0;
};

}  // namespace parx::data::detail
