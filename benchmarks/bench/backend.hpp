// backend: a communication library under measurement.
//
// parx is one, every peer is another; sizes, clocks, checks and tables are the same program for all
// of them. A backend belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <bench/operation.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

namespace bench {

enum class placement : std::uint8_t { out_of_place, in_place };

/// One call, ready to be made again and again. In place, `input` lies in `output` or the other way
/// round, where NCCL wants it: chunk `rank` for all_gather and reduce_scatter.
struct call {
  operation op = operation::barrier;
  placement where = placement::out_of_place;
  parx::const_buffer_view input;
  parx::buffer_view output;
  parx::reduce_op reduction = parx::reduce_op::sum;
  int root = 0;
};

class backend {
 public:
  virtual ~backend() = default;

  [[nodiscard]] virtual std::string name() const = 0;     ///< "parx 0.1.0"
  [[nodiscard]] virtual std::string network() const = 0;  ///< "tcp"
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Whether the library has this operation in this form with NCCL's meaning.
  [[nodiscard]] virtual bool has(operation op, placement where) const = 0;
  /// Throws parx::usage_error, on every rank, where the library lacks the dtype or reduction.
  virtual void require_support(parx::dtype type, parx::reduce_op reduction) const = 0;
  /// Makes the call and returns when it is done.
  virtual void run(const call& given) = 0;

  /// In place, over all ranks.
  virtual void max_over_ranks(std::span<double> values) = 0;
  virtual void sum_over_ranks(std::span<double> values) = 0;
  /// all[r * mine.size() ...] = rank r's `mine`.
  virtual void gather(std::span<const char> mine, std::span<char> all) = 0;

 protected:
  backend() = default;
  backend(const backend&) = default;
  backend& operator=(const backend&) = default;
};

/// What has() answers for a library without gaps: a broadcast always works in place, a message
/// never.
[[nodiscard]] constexpr bool is_meaningful(operation op, placement where) noexcept {
  switch (op) {
    case operation::broadcast: return where == placement::in_place;
    case operation::send_recv:
    case operation::barrier: return where == placement::out_of_place;
    default: return true;
  }
}

}  // namespace bench
