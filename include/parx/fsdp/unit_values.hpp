// unit_values: the interface of the storages for the values of units. Storages differ in memory and
// traffic, never in results.
//
// A storage has, for each flat of the plan, the whole, at a fixed address, and this rank's part,
// which the optimizer writes. It makes the whole readable from the parts of all ranks. The rules:
//   whole() and part() never change. A part may lie inside the whole.
//   Between wait(unit) and release(unit), or about_to_write(), the whole has the values of all
//   parts as they were when start(unit) was called.
//   Every rank makes the same calls in the same order, so any of them but release() may be
//   collective. A unit that was started may be released without wait(), and started again.
//   Every rank calls about_to_write() before it writes its part: when it returns, no rank reads the
//   old values of that part any more. The first start() after it must not let a rank read before
//   all ranks have written.
//   start() of a unit without room takes more memory than the storage was made with.
// Threads: the one that runs forward and backward.
#pragma once

#include <cstddef>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

class unit_values {
 public:
  unit_values(const unit_values&) = delete;
  unit_values& operator=(const unit_values&) = delete;
  virtual ~unit_values() = default;

  /// Where the parameters of a flat lie, flat_parameter::whole() elements.
  [[nodiscard]] virtual std::byte* whole(std::size_t flat) const = 0;
  /// Where this rank's part of it lies, flat_parameter::part elements.
  [[nodiscard]] virtual std::byte* part(std::size_t flat) const = 0;

  /// Whether start(unit) would find memory among what the storage has; true for a unit that was
  /// started, and in a storage that has memory for everything.
  [[nodiscard]] virtual bool has_room(std::size_t unit) const = 0;
  /// Collective, asynchronous: begins to make a unit readable. Does nothing if that has begun.
  /// Returns whether it began something in which all ranks must take part.
  virtual bool start(std::size_t unit) = 0;
  /// Blocks until the unit is readable; starts it if necessary.
  virtual void wait(std::size_t unit) = 0;
  /// Local. The unit is not read until it is started again.
  virtual void release(std::size_t unit) noexcept = 0;
  /// Parts are about to be written: gathered values are out of date from now on.
  virtual void about_to_write() = 0;
  /// Collective. This rank has written its part of the flat, and so have the others.
  virtual void part_written(std::size_t /*flat*/) {}

 protected:
  unit_values() = default;
};

}  // namespace parx
