// deferred_updates: what an optimizer still owes to rows of a parameter's value.
//
// A batch uses few rows of an embedding, and an optimizer would move all the others by a little at
// every step. It may put that off: it registers with the parameter (parameter::defer), and the
// parameter lets it catch up whatever is about to be read, all rows for value(), some for
// value_at_rows(). So nobody sees a row that is behind. Where the memory of the value is known to
// others than the parameter (bind_value, a tensor that somebody kept), nothing may be owed when a
// step ends: parameter::may_defer().
// A wrapper that keeps the values elsewhere is asked in the same way: it fetches rows, or throws.
// Threads: as the parameter, one at a time; the first read after a step writes.
#pragma once

#include <cstddef>
#include <span>

#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class deferred_updates {
 public:
  virtual ~deferred_updates() = default;

  /// Brings all of `value` up to date, or the `rows` of it, in any order and with repetitions.
  virtual void settle(const tensor<T>& value) = 0;
  virtual void settle(const tensor<T>& value, std::span<const std::size_t> rows) = 0;

 protected:
  deferred_updates() = default;
  deferred_updates(const deferred_updates&) = default;
  deferred_updates& operator=(const deferred_updates&) = default;
};

}  // namespace parx
