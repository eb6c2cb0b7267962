// finish: what is done to the result of a product while it is still in the cache, such as applying
// an activation function.
#pragma once

#include <cstddef>
#include <memory>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// A part of a product's result c: rows row, row + 1 ... and columns column, column + 1 ... of it.
template <typename T>
struct result_tile {
  T* values;         ///< element (row, column) of c
  std::size_t step;  ///< elements from one row to the next
  std::size_t row, column, rows, columns;
};

/// A reference to a function f(const result_tile<T>&), or to none. A product calls it for parts
/// that together are its result, each element once and after its last term; it may change the
/// values. The parts are of any shape, in any order, and on any thread, several at a time. The
/// function must live until the product returns.
template <typename T>
class product_finish {
 public:
  product_finish() = default;
  template <typename Function>
  product_finish(const Function& f)
      : function_(std::addressof(f)), call_([](const void* function, const result_tile<T>& part) {
          (*static_cast<const Function*>(function))(part);
        }) {}

  void operator()(const result_tile<T>& part) const {
    if (call_ != nullptr) call_(function_, part);
  }

 private:
  const void* function_ = nullptr;
  void (*call_)(const void*, const result_tile<T>&) = nullptr;
};

}  // namespace parx
