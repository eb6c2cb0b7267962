// misuse: sentences for what a reduction does not take. A failed constraint would list every
// concept that was tried, and none of them names the way out.
#pragma once

#include <type_traits>

#include <parx/comm/options.hpp>
#include <parx/comm/user_op.hpp>
#include <parx/types/buffer.hpp>

namespace parx::detail {

/// Does not compile, and says why reducing `Data` in place with `Options` does not. To be called
/// where the arguments do not fit.
template <typename Data, typename Options, typename Plain>
constexpr void explain_misuse() {
  // As values: of a concept the compilers would tell everything again.
  constexpr bool readable = movable_buffer<Data>, writable = mutable_movable_buffer<Data>;
  constexpr bool numbers = buffer<Data>, own = is_user_operation<Options>;
  constexpr bool known = own || std::is_same_v<Options, Plain>;
  static_assert(readable, "this is no buffer of plain values: pass a vector, an array, a span or a "
                          "tensor; a single value k goes as std::span(&k, 1)");
  static_assert(!readable || writable,
                "the result would be written to const elements: pass a buffer for it as well");
  static_assert(!writable || known, "an operation of your own goes as parx::user_op(function)");
  static_assert(!writable || !known || own || numbers,
                "sum and the other operations are for numbers: say how two structs combine into "
                "one, with parx::user_op(function)");
  static_assert(!writable || !own,
                "the function of this parx::user_op does not take two elements of the buffer and "
                "return one");
}

}  // namespace parx::detail
