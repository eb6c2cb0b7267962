// Definitions of mapped.hpp.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include <parx/checkpoint/mapped.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE mapped_safetensors::mapped_safetensors(std::string path)
    : file_(std::make_shared<const safetensors_file>(std::move(path))) {
  const auto size = static_cast<std::size_t>(file_->input().size());
  const detail::input_file::reading open(file_->input());
  void* const begin =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, open.number(), 0);
  if (begin == MAP_FAILED) {
    throw_error(errc::io, "cannot map \"{}\": {}. Read it with safetensors_file instead.",
                file_->path(), errno_text(errno));
  }
  memory_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(begin),
                                       [size](std::byte* mapped) { ::munmap(mapped, size); });
}

}  // namespace parx
