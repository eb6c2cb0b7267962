// shared_memory: a memfd mapped by several processes.
//
// A memfd is in no file system: nothing is left behind however its processes end, and it is not
// limited by the size of /dev/shm.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>

namespace parx::inline PARX_ABI::detail {

class shared_memory {
 public:
  shared_memory() = default;
  /// Maps the first `bytes` of `file`. Throws errc::io where that fails or the file is shorter.
  shared_memory(const descriptor& file, std::size_t bytes) : size_(bytes) {
    if (const std::size_t length = size_of(file); length < bytes) {
      throw_error(errc::io, "shared memory has {} bytes instead of {}", length, bytes);
    }
    map(file.get(), MAP_SHARED);
  }
  /// Zeroed private memory.
  explicit shared_memory(std::size_t bytes) : size_(bytes) { map(-1, MAP_PRIVATE | MAP_ANONYMOUS); }
  shared_memory(shared_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  shared_memory& operator=(shared_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~shared_memory() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  [[nodiscard]] static std::size_t size_of(const descriptor& file) noexcept {
    const auto length = ::lseek(file.get(), 0, SEEK_END);
    return length < 0 ? 0 : static_cast<std::size_t>(length);
  }

  /// False where a sandbox forbids memfd_create.
  [[nodiscard]] static bool can_be_had() noexcept {
    const descriptor probe(::memfd_create("parx", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    return probe.valid() || (errno != ENOSYS && errno != EPERM && errno != EACCES);
  }

  /// Zeroed memory, not mapped yet. Throws errc::io. Its size is sealed, because a peer that shrank
  /// it would kill this process with SIGBUS.
  [[nodiscard]] static descriptor create(std::size_t bytes) {
    descriptor file(::memfd_create("parx", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const auto grow = [&] { return ::ftruncate(file.get(), static_cast<off_t>(bytes)); };
    if (!file.valid() || within_file_limit(grow) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      const int why = errno;
      const char* const hint =
          why == EFBIG ? ". Raise the limit on file sizes (ulimit -f), which holds for it too" : "";
      throw_error(errc::io, "{} bytes of shared memory cannot be had: {}{}", bytes,
                  shortage_text(why), hint);
    }
    return file;
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void map(int file, int flags) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, file, 0);
    if (mapped == MAP_FAILED) {
      throw_error(errc::io, "{} bytes of shared memory cannot be mapped: {}", size_,
                  errno_text(errno));
    }
    data_ = static_cast<std::byte*>(mapped);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Sends bytes and a descriptor over a Unix socket. The kernel keeps the file open until the
/// receiver has it.
[[nodiscard]] inline bool send_with_descriptor(int socket, const void* bytes, std::size_t size,
                                               int passed) noexcept {
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &passed, sizeof passed);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

}  // namespace parx::detail
