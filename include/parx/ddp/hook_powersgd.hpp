// powersgd_hook: for each gradient matrix M (n x m), two thin matrices of r columns are sent.
//
//   M += e                         the error of earlier steps (error feedback)
//   P = sum over ranks of M Q;     P = orthonormal basis of its columns
//   Q = sum over ranks of M^T P;   M' = P Q^T;   e = M - M' / ranks
//
// That is r (n + m) elements instead of n m. Q starts from the last step's Q, which makes the
// iteration a power method on matrices that change slowly. If the gradients of a step were zero, of
// lower rank or not finite, the lost columns of Q restart from random numbers. Gradients that are
// not finite stay so, for the checks that follow, and are not added to e. Checkpoints keep e and Q.
// Everything is linear in M + e, so only the sum of the ranks' e matters, up to rounding
// (hook_state.hpp). Vogels, Karimireddy, Jaggi (arXiv 1905.13727). Source: PyTorch's
// powerSGD_hook.py: matrices that would not shrink by min_compression_rate are sent uncompressed,
// and so are all matrices in the first steps, whose gradients change fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <parx/comm/work.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI {

enum class error_feedback {
  on,   ///< a step's error is added to the next step's gradient
  off,  ///< the error is dropped
};

struct powersgd_options {
  int rank = 1;                     ///< r, 1 to 4 in practice
  std::uint64_t start_step = 10;    ///< the first step, counted from 0, that is compressed
  double min_compression_rate = 2;  ///< compress where n m is more than this times r (n + m)
  error_feedback feedback = error_feedback::on;
  bool warm_start_from_last_q = true;
  std::uint64_t seed = 0;  ///< of the first Q; equal on all ranks
};

class powersgd_hook {
 public:
  static constexpr int rounds = 2;

  /// Throws usage_error for options outside their range.
  explicit powersgd_hook(powersgd_options options = {});
  /// Copies only the options: state and operations in flight stay with the original.
  powersgd_hook(const powersgd_hook& other) : options_(other.options_) {}
  powersgd_hook(powersgd_hook&&) noexcept = default;
  powersgd_hook& operator=(const powersgd_hook& other) { return *this = powersgd_hook(other); }
  powersgd_hook& operator=(powersgd_hook&&) noexcept = default;
  ~powersgd_hook() = default;

  void start(hook_bucket& bucket);

  void proceed(hook_bucket& bucket, int round);

  /// The step count of each bucket and, if it is compressed, its Q, its e and the scale of e.
  [[nodiscard]] std::vector<hook_memory> memory(std::span<const hook_bucket> buckets);

  /// e of this rank, times hook_bucket::scale, laid out as the bucket; empty before the first
  /// compressed step.
  [[nodiscard]] std::span<const float> left_out(std::size_t bucket) const noexcept {
    return bucket < states_.size() ? std::span<const float>(states_[bucket].left_out)
                                   : std::span<const float>();
  }

 private:
  /// The r columns of P or Q, one after the other.
  struct thin {
    float* data;
    std::size_t length, columns;
    [[nodiscard]] std::span<float> column(std::size_t k) const {
      return {data + k * length, length};
    }
    [[nodiscard]] std::span<float> all() const { return {data, length * columns}; }
  };

  struct matrix {
    hook_tensor at;
    std::size_t p_begin, q_begin;
  };
  struct uncompressed_values {
    std::size_t offset, count, p_begin;
  };
  struct state {
    bool is_laid_out = false;
    bool is_plain = true;  ///< this step sends the gradients uncompressed
    std::uint64_t steps = 0;
    double scale = 0;  ///< of left_out
    std::vector<matrix> matrices;
    std::vector<uncompressed_values> plain;
    std::vector<float> p;  ///< P of all matrices, then the uncompressed parts
    std::vector<float> q;
    std::vector<float> left_out;  ///< e
    work sum;  // destroyed, and so waited for, before the memory it uses
  };

  [[nodiscard]] static bool compresses(const hook_bucket& bucket) noexcept {
    return bucket.gradients.type == dtype::float32;
  }

  /// Decides which matrices are compressed. Does nothing after the first call for a bucket.
  void lay_out(state& s, const hook_bucket& bucket) const;

  void project(state& s, const hook_bucket& bucket);

  void decompress(state& s, const hook_bucket& bucket);

  [[nodiscard]] thin columns_of(float* data, std::size_t length) const {
    return {data, length, static_cast<std::size_t>(options_.rank)};
  }

  /// Makes q orthonormal; columns that are zero or not finite become random. The result is the same
  /// on all ranks, since their q are equal.
  static void renew_lost_columns(thin q, const random_stream& random);

  /// Gram-Schmidt, two passes per column: after one pass over a column that nearly depends on
  /// earlier ones, the rounding errors are as large as the remainder. A column that does depend on
  /// earlier ones becomes zero. One that is not finite becomes NaN, and so do those after it.
  static void orthogonalize(thin columns);

  powersgd_options options_;
  std::vector<state> states_;  // by bucket
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/ddp/detail/hook_powersgd_impl.hpp>
#endif
