// rank_axis: the ranks over which layers of a model are cut, as operations and layers see them.
//
// An abstract interface, because tensor, autograd and nn know no process groups. parx::tp::axis
// implements it over one; autograd/ops/across.hpp and the layers of nn that may be cut use it.
// Collective: all ranks of the axis call the same functions in the same order. Buffers are
// contiguous; counts are elements by rank, equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <parx/core/abi.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI {

namespace detail {
inline bool& cutting_positions() noexcept {
  thread_local bool on = true;
  return on;
}
}  // namespace detail

class rank_axis {
 public:
  enum class reduction { sum, max };

  /// A collective in progress; its buffer is borrowed until wait() or this object's destruction.
  class pending {
   public:
    virtual ~pending() = default;
    virtual void wait() = 0;
  };

  virtual ~rank_axis() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// " at train.cpp:88", a call of parallelize, for errors; empty if that is not known.
  [[nodiscard]] virtual std::string cut_at() const { return {}; }

  /// Whether layers may cut activations along the sequence: not within a whole_positions scope.
  [[nodiscard]] static bool cuts_positions() noexcept { return detail::cutting_positions(); }

  enum class input { recorded, unrecorded };  ///< for backward
  /// True at the first call for each kind of input: see nn/same_input.hpp.
  [[nodiscard]] bool is_first(input kind) noexcept {
    return std::exchange(kind == input::recorded ? is_first_recorded_ : is_first_unrecorded_,
                         false);
  }

  /// The seed from which the values of the layers come. 0 if that is not known.
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_ ? *seed_ : 0; }
  void watch_seed(std::shared_ptr<const std::uint64_t> seed) noexcept { seed_ = std::move(seed); }

  // Blocking, on the calling thread. They throw parx::error where communication fails.

  /// `to` is the reduction of all ranks' `from`, which may be the same memory.
  virtual void all_reduce(const_buffer_view from, buffer_view to, reduction how) = 0;
  /// `to` is all ranks' `from`, in their order.
  virtual void all_gather(const_buffer_view from, buffer_view to,
                          std::span<const std::size_t> counts) = 0;
  /// `to` is this rank's block of the sum of all ranks' `from`.
  virtual void reduce_scatter(const_buffer_view from, buffer_view to,
                              std::span<const std::size_t> counts) = 0;
  /// Block r of `from` goes to rank r, and block r of `to` comes from rank r.
  virtual void all_to_all(const_buffer_view from, std::span<const std::size_t> sent, buffer_view to,
                          std::span<const std::size_t> received) = 0;

  /// Starts an in-place sum of all ranks' `data`.
  [[nodiscard]] virtual std::unique_ptr<pending> start_sum(buffer_view data) = 0;

 private:
  bool is_first_recorded_ = true, is_first_unrecorded_ = true;
  std::shared_ptr<const std::uint64_t> seed_;
};

/// A scope in which operations on this thread cut no activations along the sequence: token-by-token
/// generation has one position at a time, which cannot be cut. Scopes nest.
class [[nodiscard]] whole_positions {
 public:
  whole_positions() noexcept : before_(std::exchange(detail::cutting_positions(), false)) {}
  ~whole_positions() { detail::cutting_positions() = before_; }
  whole_positions(const whole_positions&) = delete;
  whole_positions& operator=(const whole_positions&) = delete;

 private:
  bool before_;
};

}  // namespace parx
