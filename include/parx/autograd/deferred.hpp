// deferred_updates: an optimizer's updates of a parameter's rows that are postponed until a read.
//
// A batch uses few rows of an embedding, but an optimizer changes all the others a little at every
// step. It may postpone that: it registers with the parameter (parameter::defer), and before each
// read the parameter has it apply the updates of the rows to be read, all for value(), some for
// value_at_rows(). So no reader sees an outdated row. Where others than the parameter can reach the
// value's memory (bind_value, a tensor that somebody kept), no update may be left when a step ends:
// parameter::may_defer().
// A wrapper that keeps the values elsewhere uses the same interface: it fetches rows, or throws.
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
};

}  // namespace parx
