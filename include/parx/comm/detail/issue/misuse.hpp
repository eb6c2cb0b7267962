// misuse: sentences for calls that no collective takes. A failed constraint would list every
// concept that was tried, and none of them names the way out. So the operations take any types, and
// takes() says in one place what is wrong with them.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>

#include <parx/comm/options.hpp>
#include <parx/comm/user_op.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI {

class process_group;

namespace detail {

template <typename B>
using element_of = std::remove_cv_t<pointed_at<std::remove_reference_t<B>>>;

template <typename Options>
concept names_operation = requires(Options options) { options.op; };
template <typename Options>
concept names_root = requires(Options options) { options.root; };

/// Whether what follows the first buffer is meant as another one: an array has become a pointer to
/// its elements where it stands for options.
template <typename Second>
concept second_buffer = movable_buffer<Second> ||
    (std::is_pointer_v<std::remove_reference_t<Second>> &&
     std::is_object_v<std::remove_pointer_t<std::remove_reference_t<Second>>>);
template <typename Options>
concept no_buffer = !second_buffer<Options>;

/// Stands for the `Out` of an operation that writes nothing here.
using nothing_written = std::span<std::byte>;

/// What stands for the options of a reduction: `Plain`, or a user's operation on B's elements.
template <typename Options, typename Plain, typename B>
concept reduction_options_for = (std::same_as<Options, Plain> && buffer<B>) ||
                                (!type_erased<std::remove_cvref_t<B>> &&
                                 combines<Options, element_of<B>>);

/// Does not compile, and says why an operation with `Plain` options does not take what stands where
/// they should. Compilers tell it once for the same types: `Buffers` make them more.
template <typename Options, typename Plain, typename... Buffers>
constexpr void explain_options() {
  constexpr bool has_tag = requires(Plain plain) { plain.tag; };
  constexpr bool number = std::is_integral_v<Options> && !std::is_same_v<Options, bool>;
  constexpr bool bare_operation = names_operation<Plain> && std::is_same_v<Options, reduce_op>;
  constexpr bool bare_root = names_root<Plain> && number, bare_tag = has_tag && number;
  constexpr bool function =
      names_operation<Plain> && !std::is_aggregate_v<Options> &&
      (std::is_class_v<Options> || std::is_function_v<std::remove_pointer_t<Options>>);
  constexpr bool known = bare_operation || bare_root || bare_tag || function ||
                         is_user_operation<Options> || std::is_same_v<Options, Plain>;
  static_assert(!bare_operation,
                "the operation is one of the options: {.op = parx::reduce_op::max}");
  static_assert(!bare_root, "a root is one of the options: {.root = 0}");
  static_assert(!bare_tag, "a tag is one of the options: {.tag = 0}");
  static_assert(!function || is_user_operation<Options>,
                "an operation of your own goes as parx::user_op(function)");
  static_assert(known,
                "options go in braces, by their names: {.timeout = std::chrono::seconds(5)}; "
                "async_op=True is async_ before the operation's name");
}

/// Does not compile, and says why an operation with `Plain` options does not take these.
template <typename Plain, typename In, typename Out, typename Options>
constexpr void explain_misuse() {
  // As values: of a concept the compilers would tell everything again.
  constexpr bool readable = movable_buffer<In> && movable_buffer<Out>;
  constexpr bool writable = readable && mutable_movable_buffer<Out>;
  constexpr bool numbers = buffer<In> || !names_operation<Plain>;
  constexpr bool own = is_user_operation<Options>;
  constexpr bool is_missing = movable_buffer<In> && std::is_integral_v<Out>;
  static_assert(!is_missing,
                "the buffer for the result is missing: gather(group, mine, all, {.root = 0}); a "
                "single value k goes as std::span(&k, 1)");
  static_assert(readable || is_missing,
                "this is no buffer of plain values: pass a vector (not of bool, which has "
                "bits), an array, a span or a tensor; a single value k goes as "
                "std::span(&k, 1), a pointer as std::span(pointer, count)");
  static_assert(!readable || writable,
                "the result would be written to const elements: pass a buffer for it as well");
  if constexpr (writable) explain_options<Options, Plain, In, Out>();
  static_assert(!writable || !std::is_same_v<Options, Plain> || numbers,
                "sum and the other operations are for numbers: say how two structs combine into "
                "one, with parx::user_op(function)");
  static_assert(!writable || !own,
                "the function of this parx::user_op does not take two elements of the buffer and "
                "return one");
}

/// Whether an operation with `Plain` options takes these; where not, an error says what to do.
template <typename Plain, typename In, typename Out, typename Options>
[[nodiscard]] constexpr bool takes() {
  constexpr bool right_options = names_operation<Plain> ? reduction_options_for<Options, Plain, In>
                                                        : std::same_as<Options, Plain>;
  constexpr bool right = movable_buffer<In> && mutable_movable_buffer<Out> && right_options;
  if constexpr (!right) explain_misuse<Plain, In, Out, Options>();
  return right;
}

/// A container, a std::array or an Eigen matrix, not a view of one.
template <typename Data>
concept owns_elements =
    requires { typename std::remove_cvref_t<Data>::allocator_type; } ||
    requires { std::tuple_size<std::remove_cvref_t<Data>>::value; } ||
    std::same_as<std::remove_cvref_t<Data>, typename std::remove_cvref_t<Data>::PlainObject>;

/// Does not compile for a temporary container, whose elements would be gone before an asynchronous
/// operation is over. `Data` are forwarding references'; views may be temporary.
template <typename... Data>
constexpr void explain_temporary() {
  static_assert((... && (std::is_lvalue_reference_v<Data> || !owns_elements<Data>)),
                "this buffer is a temporary, gone before the operation is over: give it a name, "
                "and keep it until wait() has returned");
}

/// Does not compile for a temporary container that the operation's result would be gone with.
template <typename Data>
constexpr void explain_lost_result() {
  static_assert(std::is_lvalue_reference_v<Data> || !owns_elements<Data>,
                "the result would be gone with this temporary: give the buffer a name");
}

/// What stands where an operation's group should.
template <typename First>
concept no_group = !std::is_convertible_v<First, const process_group&>;

/// Does not compile for what is no group, and says where that stands.
template <typename First>
constexpr void explain_no_group() {
  static_assert(!no_group<First>,
                "an operation begins with its group: all_reduce(world, x), or all_reduce(*half, x) "
                "where split() gave half");
}

}  // namespace detail
}  // namespace parx
