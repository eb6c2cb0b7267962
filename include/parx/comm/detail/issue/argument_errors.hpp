// argument_errors: compile-time errors for wrong arguments of collectives.
//
// A failed constraint lists every concept that was tried, and none of them says what to write
// instead. So the operations accept buffers of any type, and takes() checks them in one place by
// static_assert.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>

#include <parx/comm/user_op.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI::detail {

/// A single number, which is a buffer of one element: all_reduce(world, k).
template <typename B>
concept one_number = element<std::remove_cvref_t<B>>;
template <typename B>
concept readable_operand = movable_buffer<B> || one_number<B>;
template <typename B>
concept writable_operand = mutable_movable_buffer<B> ||
    (one_number<B> && !std::is_const_v<std::remove_reference_t<B>>);

template <typename B>
struct operand_element {};  // no buffer: takes() says so
template <typename B>
  requires has_pointer_and_size<std::remove_reference_t<B>>
struct operand_element<B> {
  using type = std::remove_cv_t<pointed_at<std::remove_reference_t<B>>>;
};
template <one_number B>
struct operand_element<B> {
  using type = std::remove_cvref_t<B>;
};
template <typename B>
using element_of = typename operand_element<B>::type;

template <typename Options>
concept names_operation = requires(Options options) { options.op; };
template <typename Options>
concept names_root = requires(Options options) { options.root; };

/// Whether the argument after the first buffer is meant as a second buffer. Options are taken by
/// value, so an array that is passed there has decayed to a pointer.
template <typename Second>
concept second_buffer = movable_buffer<Second> ||
    (std::is_pointer_v<std::remove_reference_t<Second>> &&
     std::is_object_v<std::remove_pointer_t<std::remove_reference_t<Second>>>);
template <typename Options>
concept no_buffer = !second_buffer<Options>;

/// The `Out` of an operation that writes no buffer: a send.
using nothing_written = std::span<std::byte>;

/// The options of a reduction of B's elements: `Plain`, or a user_op on such elements.
template <typename Options, typename Plain, typename B>
concept reduction_options_for = (std::same_as<Options, Plain> && (buffer<B> || one_number<B>)) ||
                                (!type_erased<std::remove_cvref_t<B>> &&
                                 combines<Options, element_of<B>>);

/// Does not compile, and says why an operation with `Plain` options does not take these arguments.
template <typename Plain, typename In, typename Out, typename Options>
constexpr void explain_misuse() {
  // Evaluated to bools first: where a static_assert names a concept, compilers list its parts too.
  constexpr bool readable = readable_operand<In> && readable_operand<Out>;
  constexpr bool writable = readable && writable_operand<Out>;
  constexpr bool user = is_user_operation<Options>;
  constexpr bool plain = std::is_same_v<Options, Plain>;
  constexpr bool as_number =
      names_root<Plain> && (std::is_integral_v<Options> || !names_operation<Plain>);
  static_assert(readable,
                "this is no buffer of plain values: pass a vector (not of bool, which has "
                "bits), an array, a span, a tensor or a variable that is a number; a single "
                "struct k goes as std::span(&k, 1), a pointer as std::span(pointer, count)");
  static_assert(!readable || writable,
                "the result would be written to const elements: pass a buffer for it as well");
  static_assert(!writable || plain || !as_number,
                "options go in braces, by their names: {.root = 1}");
  static_assert(!writable || plain || user || as_number,
                "options go in braces, by their names: {.op = parx::reduce_op::max}; a function of "
                "your own goes as parx::user_op(function)");
  static_assert(!writable || !plain,
                "sum and the other operations are for numbers: say how two structs combine into "
                "one, with parx::user_op(function)");
  static_assert(!writable || !user || as_number,
                "the function of this parx::user_op does not take two elements of the buffer and "
                "return one");
}

/// Whether an operation with `Plain` options takes these arguments. If not, a compile-time error
/// says what to do.
template <typename Plain, typename In, typename Out, typename Options>
[[nodiscard]] constexpr bool takes() {
  constexpr bool right = readable_operand<In> && writable_operand<Out> &&
                         (names_operation<Plain> ? reduction_options_for<Options, Plain, In>
                                                 : std::same_as<Options, Plain>);
  if constexpr (!right) explain_misuse<Plain, In, Out, Options>();
  return right;
}

/// A container, a std::array or an Eigen matrix, not a view of one.
template <typename Data>
concept owns_elements =
    requires { typename std::remove_cvref_t<Data>::allocator_type; } ||
    requires { std::tuple_size<std::remove_cvref_t<Data>>::value; } ||
    std::same_as<std::remove_cvref_t<Data>, typename std::remove_cvref_t<Data>::PlainObject>;

template <typename Data>
concept holds_elements = owns_elements<Data> || one_number<Data>;

/// Does not compile for a temporary container or number: its elements, and the result in them,
/// would be gone before they can be used. `Data` is a forwarding reference's parameter; views may
/// be temporary.
template <typename... Data>
constexpr void explain_temporary() {
  static_assert((... && (std::is_lvalue_reference_v<Data> || !holds_elements<Data>)),
                "this buffer is a temporary, gone before the operation is over or its result can "
                "be read: give it a name, and keep an async_ one until wait() has returned");
}

}  // namespace parx::detail
