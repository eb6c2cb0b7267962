// function_ref: a reference to something that can be called, for parameters that are only called
// during the call that they are given to.
//
// Two words, no allocation: the caller's object must outlive it. Source: P0792, std::function_ref
// of C++26.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

template <typename Signature>
class function_ref;

template <typename Result, typename... Args>
class function_ref<Result(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, function_ref> &&
             std::is_invocable_r_v<Result, F&, Args...>)
  function_ref(F&& f) noexcept  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace parx
