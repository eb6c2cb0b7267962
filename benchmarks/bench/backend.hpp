// backend: the interface to a communication library under measurement.
//
// parx has one implementation, every peer another; sizes, clocks, checks and tables are the same
// code for all. A backend belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

#include <bench/operation.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

namespace bench {

/// The arguments of one call, which is made repeatedly. In place, `input` is inside `output` or the
/// other way round, as NCCL defines it: chunk `rank` for all_gather and reduce_scatter.
struct call {
  operation op = operation::barrier;
  placement where = placement::out_of_place;
  parx::const_buffer_view input;
  parx::buffer_view output;
  parx::reduce_op reduction = parx::reduce_op::sum;
  int root = 0;
};

/// Zeroed bytes; the last owner frees them.
using memory = std::shared_ptr<std::byte>;

/// Page-aligned private memory, as in NCCL's and MPI's benchmarks. Every page is touched, so that
/// no page fault is timed.
[[nodiscard]] inline memory ordinary_memory(std::size_t bytes) {
  static constexpr std::align_val_t alignment{4096};
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  auto* data = static_cast<std::byte*>(::operator new(size, alignment));
  std::memset(data, 0, size);
  return {data, [](std::byte* each) { ::operator delete(each, alignment); }};
}

/// Nonblocking calls of a library.
class nonblocking {
 public:
  virtual ~nonblocking() = default;
  /// Begins the call. Only one call can be pending.
  virtual void start(const call& given) = 0;
  /// Blocks until the call is done.
  virtual void finish() = 0;

 protected:
  nonblocking() = default;
  nonblocking(const nonblocking&) = default;
  nonblocking& operator=(const nonblocking&) = default;
};

class backend {
 public:
  virtual ~backend() = default;

  [[nodiscard]] virtual std::string name() const = 0;     ///< "parx 0.1.0"
  [[nodiscard]] virtual std::string network() const = 0;  ///< "tcp"
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Whether the library has this operation in this form, with NCCL's meaning, in the algorithm set
  /// by use().
  [[nodiscard]] virtual bool has(operation op, placement where) const = 0;
  /// Throws parx::usage_error, on every rank, if the library lacks the dtype or reduction.
  virtual void require_support(parx::dtype type, parx::reduce_op reduction) const = 0;
  /// Later calls use this algorithm; "automatic" is the library's own choice. Throws
  /// parx::usage_error, on every rank, for an unknown name.
  virtual void use(const std::string& algorithm) = 0;
  /// Collective: memory of the kind that is measured.
  [[nodiscard]] virtual memory allocate(std::size_t bytes) = 0;

  /// Makes the call; blocks until it is done.
  virtual void run(const call& given) = 0;
  /// Null if the library only has blocking calls.
  [[nodiscard]] virtual nonblocking* without_blocking() = 0;
  /// Sends the same bytes `count` times, as separate messages, as fast as the library can.
  virtual void send_burst(parx::const_buffer_view message, int to, int count) = 0;
  virtual void receive_burst(parx::buffer_view message, int from, int count) = 0;

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

}  // namespace bench
