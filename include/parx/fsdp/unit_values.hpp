// unit_values: where the values of units are, while they compute and otherwise. A seam: storages
// differ in memory and traffic, never in bits.
//
// Of each flat of the plan there is the whole, at one address for good, and this rank's part, which
// the optimizer writes. A storage makes the whole readable from the parts of all ranks. What it
// must keep to:
//   whole() and part() stay the same. A part may lie inside of the whole.
//   Between wait(unit) and release(unit), or written(), the whole has the values of all parts as
//   they were when start(unit) was called.
//   Every rank makes the same calls in the same order, so any of them but release() may be
//   collective. A unit that was started may be released without wait(), and started again.
//   written() is called before parts are written, by every rank: when it returns this rank writes,
//   so no rank may read the old values of this rank's part any more. The first start() after it
//   must not let a rank read before all have written.
//   start() is only called where has_room(); a storage that has room for everything says true.
// Threads: that of forward and backward.
#pragma once

#include <cstddef>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

class unit_values {
 public:
  unit_values(const unit_values&) = delete;
  unit_values& operator=(const unit_values&) = delete;
  virtual ~unit_values() = default;

  /// Where the parameters of a flat lie, unit_flat::whole() elements.
  [[nodiscard]] virtual std::byte* whole(std::size_t flat) const = 0;
  /// Where this rank's part of it lies, unit_flat::part elements.
  [[nodiscard]] virtual std::byte* part(std::size_t flat) const = 0;

  /// Whether start(unit) would find memory; true for a unit that was started.
  [[nodiscard]] virtual bool has_room(std::size_t unit) const = 0;
  /// Collective, asynchronous: begins to make a unit readable. Nothing where that has begun.
  virtual void start(std::size_t unit) = 0;
  /// Blocks until it is readable; starts it where nobody has.
  virtual void wait(std::size_t unit) = 0;
  /// Nobody reads it until it is started again. Local.
  virtual void release(std::size_t unit) noexcept = 0;
  /// Parts are about to be written: what has been gathered is out of date from now on.
  virtual void written() = 0;

 protected:
  unit_values() = default;
};

}  // namespace parx
