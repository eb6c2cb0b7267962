// model_buffer: a tensor that belongs to a model but is not trained, such as the running statistics
// of a batch norm. It is saved, loaded and broadcast to all ranks with the parameters; no gradient
// reaches it and no optimizer sees it. A handle: copies share the memory.
#pragma once

#include <utility>

#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class model_buffer {
 public:
  using value_type = T;

  model_buffer() noexcept = default;
  explicit model_buffer(tensor<T> value) : value_(std::move(value)) {}

  /// False for a buffer that its layer does not use.
  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  [[nodiscard]] const tensor<T>& value() const noexcept { return value_; }
  [[nodiscard]] const parx::shape& shape() const noexcept { return value_.shape(); }

 private:
  tensor<T> value_;
};

}  // namespace parx
