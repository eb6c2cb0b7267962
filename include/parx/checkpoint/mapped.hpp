// mapped_safetensors: the tensors of a file by mmap, without a copy.
//
//   mapped_safetensors file("model.safetensors");
//   tensor<float> weight = file.view<float>("fc.weight");   // keeps the mapping alive
//
// Opening takes the same time for a megabyte and for a terabyte: pages are read when they are
// touched, and all processes of a host share the pages that they only read. Writing to a view
// changes only this process's memory. As with every mapping, truncating the file while it is mapped
// kills its readers (SIGBUS): replace files by rename, as write_safetensors does. Any number of
// threads.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

class mapped_safetensors {
 public:
  /// Throws as safetensors_file does, and errc::io if the file system does not support mmap.
  explicit mapped_safetensors(std::string path)
      : file_(std::make_shared<const safetensors_file>(std::move(path))) {
    const auto size = static_cast<std::size_t>(file_->input().size());
    const detail::input_file::reading open(file_->input());
    void* const begin = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                               open.number(), 0);
    if (begin == MAP_FAILED) {
      throw_error(errc::io, "cannot map \"{}\": {}. Read it with safetensors_file instead.",
                  file_->path(), errno_text(errno));
    }
    memory_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(begin),
                                         [size](std::byte* mapped) { ::munmap(mapped, size); });
  }

  [[nodiscard]] const safetensors_file& file() const noexcept { return *file_; }

  /// The bytes of a tensor of file(), of any type; valid while this object or a view lives.
  [[nodiscard]] std::span<std::byte> bytes(const stored_tensor& tensor) const noexcept {
    return {memory_.get() + file_->offset(tensor),
            static_cast<std::size_t>(tensor.end - tensor.begin)};
  }

  /// The tensor `name`; a copy if it is not aligned for T in the file. Throws errc::bad_data if
  /// there is none of this name, or it has another type or more than max_rank axes.
  template <element T>
  [[nodiscard]] tensor<T> view(std::string_view name) const {
    const stored_tensor* const stored = file_->find(name);
    if (stored == nullptr)
      throw_error(errc::bad_data, "\"{}\" has no tensor \"{}\".", file_->path(), name);
    if (stored->type != dtype_of<T> || stored->shape.size() > max_rank) {
      throw_error(errc::bad_data, "\"{}\" in \"{}\" is [{}] {}, not a tensor of {}.", name,
                  file_->path(), joined_text(stored->shape), stored->dtype_name,
                  name_of(dtype_of<T>));
    }
    const shape extents = detail::shape_of(*stored);
    const std::span<std::byte> memory = bytes(*stored);
    if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(T) != 0) {
      tensor<T> copy = tensor<T>::empty(extents);
      std::memcpy(copy.data(), memory.data(), memory.size());
      return copy;
    }
    auto* const elements = reinterpret_cast<T*>(memory.data());
    return tensor<T>::wrap({elements, memory.size() / sizeof(T)}, extents, memory_);
  }

 private:
  std::shared_ptr<const safetensors_file> file_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace parx
