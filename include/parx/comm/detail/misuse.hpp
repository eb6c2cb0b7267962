// misuse: sentences for calls that no collective takes. A failed constraint would list every
// concept that was tried, and none of them names the way out. So beside each operation stands one
// of its name for what it does not take, whose body says what to do.
#pragma once

#include <type_traits>

#include <parx/comm/detail/issue.hpp>

namespace parx::detail {

/// What an operation that moves elements does not take.
template <typename In, typename Out>
concept no_buffers = !(movable_buffer<In> && mutable_movable_buffer<Out>);

/// What a reduction with `Plain` options does not take.
template <typename In, typename Out, typename Options, typename Plain>
concept no_reduction = no_buffers<In, Out> || !reduction_options_for<Options, Plain, In>;
/// In place: not the out-of-place form, whose second buffer (an array has become a pointer to its
/// elements) stands where the options would.
template <typename Data, typename Options, typename Plain>
concept no_reduction_in_place =
    !movable_buffer<Options> &&
    !(std::is_pointer_v<Options> && std::is_object_v<std::remove_pointer_t<Options>>) &&
    no_reduction<Data, Data, Options, Plain>;

/// Does not compile, and says why an operation does not take `In`, `Out` and `Options`. Without
/// options it is one that moves elements.
template <typename In, typename Out, typename Options = void, typename Plain = Options>
constexpr void explain_misuse() {
  // As values: of a concept the compilers would tell everything again.
  constexpr bool readable = movable_buffer<In> && movable_buffer<Out>;
  constexpr bool writable = readable && mutable_movable_buffer<Out>;
  constexpr bool numbers = buffer<In> || std::is_void_v<Plain>;
  constexpr bool own = is_user_operation<Options>;
  constexpr bool bare_operation = std::is_same_v<Options, reduce_op>;
  constexpr bool bare_root = std::is_integral_v<Options>;
  constexpr bool known = own || bare_operation || bare_root || std::is_same_v<Options, Plain>;
  static_assert(readable,
                "this is no buffer of plain values: pass a vector (not of bool, which has "
                "bits), an array, a span or a tensor; a single value k goes as "
                "std::span(&k, 1)");
  static_assert(!readable || writable,
                "the result would be written to const elements: pass a buffer for it as well");
  static_assert(!writable || !bare_operation,
                "the operation is one of the options: {.op = parx::reduce_op::max}");
  static_assert(!writable || !bare_root, "a root is one of the options: {.root = 0}");
  static_assert(!writable || known, "an operation of your own goes as parx::user_op(function)");
  static_assert(!writable || !known || own || bare_operation || bare_root || numbers,
                "sum and the other operations are for numbers: say how two structs combine into "
                "one, with parx::user_op(function)");
  static_assert(!writable || !own,
                "the function of this parx::user_op does not take two elements of the buffer and "
                "return one");
}

template <typename Data>
concept owns_elements = requires { typename std::remove_cvref_t<Data>::allocator_type; };

/// Does not compile for a temporary container, whose elements would be gone before an asynchronous
/// operation in place is over. `Data` is a forwarding reference's; views may be temporary.
template <typename Data>
constexpr void explain_temporary() {
  static_assert(std::is_lvalue_reference_v<Data> || !owns_elements<Data>,
                "this buffer is a temporary, gone before the operation is over: give it a name, "
                "and keep it until wait() has returned");
}

}  // namespace parx::detail
