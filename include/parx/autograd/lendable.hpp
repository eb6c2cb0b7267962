// lendable: the base of a model that wrappers borrow (nn::module). A wrapper knows the model by its
// address, so while it lives a move throws, as where a vector of models grows: otherwise the
// wrapper would go on with memory that is gone.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

class lendable {
 public:
  /// The model must not move while the result lives. `borrower` is in the error: "ddp at x.cpp:12".
  /// Where it is lent already, the result is the earlier loan: the second wrapper will fail.
  [[nodiscard]] std::shared_ptr<const std::string> lend(std::string borrower) {
    if (auto earlier = borrower_.lock()) return earlier;
    auto loan = std::make_shared<const std::string>(std::move(borrower));
    borrower_ = loan;
    return loan;
  }

 protected:
  lendable() = default;
  lendable(lendable&& other) { other.require_unlent(); }  // NOLINT: throws
  lendable& operator=(lendable&& other) {                 // NOLINT: throws
    require_unlent();
    other.require_unlent();
    return *this;
  }
  ~lendable() = default;

 private:
  void require_unlent() const {
    if (const auto borrower = borrower_.lock()) {
      throw_usage(
          "the model of {} is moved, and the wrapper would go on with the old address. Wrap a "
          "model where it stays: reserve() the vector that it is in, or hold it by std::unique_ptr",
          *borrower);
    }
  }

  std::weak_ptr<const std::string> borrower_;
};

/// A lendable, or a handle of one. Of another class, null: it may move.
template <typename Model>
[[nodiscard]] std::shared_ptr<const std::string> lend(Model& model, std::string borrower) {
  if constexpr (requires { model.lend(std::move(borrower)); }) {
    return model.lend(std::move(borrower));
  } else {
    return nullptr;
  }
}

}  // namespace parx
