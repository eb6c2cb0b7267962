// buffer: what a collective reads or writes. Public functions take it by concept, those below them
// as a plain view.
//
// A buffer is anything with a pointer and a size: vector, span, array, C array, a contiguous
// tensor, an Eigen matrix, map or vector, or a view that was made by hand for a type known only at
// run time. A view owns nothing: its buffer must live as long as the operation runs. Pure values,
// no threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include <parx/core/check.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// `count` elements of `type` that are only read.
struct const_buffer_view {
  const void* data = nullptr;
  std::size_t count = 0;
  dtype type = dtype::uint8;
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * size_of(type); }
};

/// `count` elements of `type` that may be written.
struct buffer_view {
  void* data = nullptr;
  std::size_t count = 0;
  dtype type = dtype::uint8;
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * size_of(type); }
  constexpr operator const_buffer_view() const noexcept { return {data, count, type}; }
};

template <typename B>
concept has_pointer_and_size = requires(B& b) {
  requires std::is_pointer_v<decltype(std::data(b))>;
  { std::size(b) } -> std::convertible_to<std::size_t>;
};

/// The type of a buffer's elements, const where they may not be written.
template <typename B>
using pointed_at = std::remove_pointer_t<decltype(std::data(std::declval<B&>()))>;

template <typename B>
concept type_erased = std::same_as<std::remove_cv_t<B>, buffer_view> ||
    std::same_as<std::remove_cv_t<B>, const_buffer_view>;

// Having data() and size() does not make a type contiguous: a transposed tensor and an Eigen block
// have both. Where a type can say so, it is asked.
/// Throws usage_error for a strided tensor or matrix.
template <typename B>
void require_contiguous(const B& b) {
  if constexpr (requires { { b.is_contiguous() } -> std::convertible_to<bool>; }) {
    require(b.is_contiguous(),
            "a strided tensor cannot be a communication buffer; pass a contiguous copy of it");
  } else if constexpr (requires { b.innerStride(), b.outerStride(), b.outerSize(); }) {
    require((b.innerStride() == 1 || b.size() <= 1) &&
                (b.outerStride() == b.innerSize() || b.outerSize() <= 1),
            "an Eigen block or map with gaps between its elements cannot be a communication "
            "buffer; pass a contiguous copy of it");
  }
}

/// Readable elements of a registered dtype. B may be a reference type, as deduced for `B&&`.
template <typename B>
concept buffer = type_erased<std::remove_reference_t<B>> ||
    (has_pointer_and_size<std::remove_reference_t<B>>&&
         element<std::remove_cv_t<pointed_at<std::remove_reference_t<B>>>>);

/// A buffer whose elements can be written.
template <typename B>
concept mutable_buffer = buffer<B> &&(std::same_as<std::remove_cvref_t<B>, buffer_view> ||
                                      (!type_erased<std::remove_reference_t<B>> &&
                                       !std::is_const_v<pointed_at<std::remove_reference_t<B>>>));

/// Readable elements of any trivially copyable type: enough for operations that only move data.
template <typename B>
concept movable_buffer = buffer<B> ||
    (has_pointer_and_size<std::remove_reference_t<B>>&&
         std::is_trivially_copyable_v<pointed_at<std::remove_reference_t<B>>>);

template <typename B>
concept mutable_movable_buffer = mutable_buffer<B> ||
    (movable_buffer<B> && !buffer<B> && !std::is_const_v<pointed_at<std::remove_reference_t<B>>>);

/// The view of a buffer: const_buffer_view where its elements are const. Throws usage_error for a
/// tensor or Eigen block that is not contiguous.
template <buffer B>
[[nodiscard]] auto view_of(B&& b) {
  using plain = std::remove_reference_t<B>;
  if constexpr (type_erased<plain>) {
    return std::remove_cv_t<plain>(b);
  } else {
    require_contiguous(b);
    using pointed = pointed_at<plain>;
    using view = std::conditional_t<std::is_const_v<pointed>, const_buffer_view, buffer_view>;
    return view{std::data(b), static_cast<std::size_t>(std::size(b)),
                dtype_of<std::remove_cv_t<pointed>>};
  }
}

/// The same for reading only, whatever the elements' constness.
template <buffer B>
[[nodiscard]] const_buffer_view const_view_of(B&& b) {
  return view_of(b);
}

}  // namespace parx
