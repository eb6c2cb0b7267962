// pinnable: the base of a model that wrappers borrow (nn::module). A wrapper knows the model by its
// address, so while it lives a move throws, as where a vector of models grows: otherwise the
// wrapper would go on with memory that is gone.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

class pinnable {
 public:
  /// The model must not move while the result lives. `borrower` is in the error: "ddp at x.cpp:12".
  /// Where it is lent already, the result is the earlier pin: the second wrapper will fail.
  [[nodiscard]] std::shared_ptr<const std::string> pin(std::string borrower) {
    if (auto earlier = borrower_.lock()) return earlier;
    auto pinned = std::make_shared<const std::string>(std::move(borrower));
    borrower_ = pinned;
    return pinned;
  }

 protected:
  pinnable() = default;
  pinnable(pinnable&& other) { other.require_unpinned(); }  // NOLINT: throws
  pinnable& operator=(pinnable&& other) {                   // NOLINT: throws
    require_unpinned();
    other.require_unpinned();
    return *this;
  }
  ~pinnable() = default;

 private:
  void require_unpinned() const {
    if (const auto borrower = borrower_.lock()) {
      throw_usage(
          "the model of {} is moved, and the wrapper would go on with the old address. Wrap a "
          "model where it stays: reserve() the vector that it is in, or hold it by std::unique_ptr",
          *borrower);
    }
  }

  std::weak_ptr<const std::string> borrower_;
};

/// A pinnable, or a handle of one. Of another class, null: it may move.
template <typename Model>
[[nodiscard]] std::shared_ptr<const std::string> pin(Model& model, std::string borrower) {
  if constexpr (requires { model.pin(std::move(borrower)); }) {
    return model.pin(std::move(borrower));
  } else {
    return nullptr;
  }
}

}  // namespace parx
