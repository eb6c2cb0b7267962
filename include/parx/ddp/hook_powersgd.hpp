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

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/tensor/matmul.hpp>
#include <parx/tensor/random.hpp>
#include <parx/types/reduce.hpp>

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
  explicit powersgd_hook(powersgd_options options = {}) : options_(options) {
    require(options.rank >= 1, "powersgd_hook: the rank is at least 1, not {}", options.rank);
    require(options.min_compression_rate > 0,
            "powersgd_hook: min_compression_rate is above 0, not {}", options.min_compression_rate);
  }
  /// Copies only the options: state and operations in flight stay with the original.
  powersgd_hook(const powersgd_hook& other) : options_(other.options_) {}
  powersgd_hook(powersgd_hook&&) noexcept = default;
  powersgd_hook& operator=(const powersgd_hook& other) { return *this = powersgd_hook(other); }
  powersgd_hook& operator=(powersgd_hook&&) noexcept = default;
  ~powersgd_hook() = default;

  void start(hook_bucket& bucket) {
    if (states_.size() <= bucket.index) states_.resize(bucket.index + 1);
    state& s = states_[bucket.index];
    s.is_plain = s.steps < options_.start_step || !compresses(bucket);
    if (s.is_plain) {
      s.sum =
          async_all_reduce(bucket.group, bucket.gradients, {.order = bucket.order}, bucket.site);
      return;
    }
    lay_out(s, bucket);
    float* const gradients = static_cast<float*>(bucket.gradients.data);
    for (const matrix& each : s.matrices) {
      // m becomes M = scale * gradient + e. The stored e has the last step's scale.
      const auto scale = static_cast<float>(bucket.scale);
      const auto rescale = static_cast<float>(s.scale > 0 ? bucket.scale / s.scale : 1);
      float* const m = gradients + each.at.offset;
      float* const left_out = s.left_out.data() + each.at.offset;
      for (std::size_t i = 0; i < each.at.rows * each.at.columns; ++i) {
        left_out[i] *= rescale;
        m[i] = m[i] * scale + left_out[i];
      }
      const thin p = columns_of(s.p.data() + each.p_begin, each.at.rows);
      const thin q = columns_of(s.q.data() + each.q_begin, each.at.columns);
      if (!options_.warm_start_from_last_q) std::ranges::fill(q.all(), 0.0F);
      renew_lost_columns(q, random_stream(options_.seed, "powersgd")
                                .substream(bucket.index)
                                .substream(s.steps)
                                .substream(each.q_begin));
      // The columns of P are the rows of P^T = Q^T M^T, and so below.
      gemm(op::plain, op::transposed, p.columns, p.length, q.length, 1.0F, q.data, q.length, m,
           q.length, 0.0F, p.data, p.length);
    }
    s.scale = bucket.scale;
    for (const uncompressed_values& each : s.plain) {
      std::copy_n(gradients + each.offset, each.count, s.p.data() + each.p_begin);
    }
    s.sum = async_all_reduce(bucket.group, s.p, {.order = bucket.order}, bucket.site);
  }

  void proceed(hook_bucket& bucket, int round) {
    state& s = states_[bucket.index];
    s.sum.wait();
    if (s.is_plain) {
      if (round == 0) {
        scale_kernel(bucket.gradients.type)(bucket.gradients.data, bucket.gradients.count,
                                            bucket.count == 0 ? 0 : 1 / bucket.count);
      }
    } else if (round == 0) {
      project(s, bucket);
    } else {
      decompress(s, bucket);
    }
    if (round == 1) ++s.steps;
  }

  /// The step count of each bucket and, if it is compressed, its Q, its e and the scale of e.
  [[nodiscard]] std::vector<hook_memory> memory(std::span<const hook_bucket> buckets) {
    for (const hook_bucket& each : buckets) {
      if (states_.size() <= each.index) states_.resize(each.index + 1);
    }
    std::vector<hook_memory> all;
    for (const hook_bucket& each : buckets) {
      state& s = states_[each.index];
      const auto add = [&]<typename T>(const char* name, std::span<T> values,
                                       hook_memory_kind kind) {
        all.push_back({formatted("bucket.{}.{}", each.index, name),
                       {values.data(), values.size(), dtype_of<T>},
                       kind});
      };
      add("steps", std::span(&s.steps, 1), hook_memory_kind::equal);
      if (!compresses(each)) continue;
      lay_out(s, each);
      add("scale", std::span(&s.scale, 1), hook_memory_kind::equal);
      add("q", std::span(s.q), hook_memory_kind::equal);
      add("left_out", std::span(s.left_out), hook_memory_kind::addend);
    }
    return all;
  }

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
  void lay_out(state& s, const hook_bucket& bucket) const {
    if (std::exchange(s.is_laid_out, true)) return;
    const auto r = static_cast<std::size_t>(options_.rank);
    std::size_t p_size = 0, q_size = 0;
    const auto shrinks = [&](const hook_tensor& t) {
      return static_cast<double>((t.rows + t.columns) * r) * options_.min_compression_rate <
             static_cast<double>(t.rows * t.columns);
    };
    for (const hook_tensor& each : bucket.tensors) {
      if (!shrinks(each)) continue;
      s.matrices.push_back({each, p_size, q_size});
      p_size += each.rows * r;
      q_size += each.columns * r;
    }
    for (const hook_tensor& each : bucket.tensors) {
      if (shrinks(each)) continue;
      s.plain.push_back({each.offset, each.rows * each.columns, p_size});
      p_size += each.rows * each.columns;
    }
    s.p.resize(p_size);
    s.q.resize(q_size);
    s.left_out.resize(bucket.gradients.count);
  }

  void project(state& s, const hook_bucket& bucket) {
    float* const gradients = static_cast<float*>(bucket.gradients.data);
    for (const matrix& each : s.matrices) {
      const thin p = columns_of(s.p.data() + each.p_begin, each.at.rows);
      const thin q = columns_of(s.q.data() + each.q_begin, each.at.columns);
      orthogonalize(p);
      gemm(op::plain, op::plain, q.columns, q.length, p.length, 1.0F, p.data, p.length,
           gradients + each.at.offset, q.length, 0.0F, q.data, q.length);
    }
    const auto factor = static_cast<float>(bucket.count == 0 ? 0 : 1 / bucket.count);
    for (const uncompressed_values& each : s.plain) {
      const float* const sum = s.p.data() + each.p_begin;
      for (std::size_t i = 0; i < each.count; ++i) gradients[each.offset + i] = sum[i] * factor;
    }
    // A bucket that holds only vectors has nothing to send, on all ranks alike.
    if (s.q.empty()) return;
    s.sum = async_all_reduce(bucket.group, s.q, {.order = bucket.order}, bucket.site);
  }

  void decompress(state& s, const hook_bucket& bucket) {
    float* const gradients = static_cast<float*>(bucket.gradients.data);
    const auto unscale = static_cast<float>(bucket.unscale());
    const float share = 1 / static_cast<float>(bucket.group.size());
    for (const matrix& each : s.matrices) {
      const std::span<float> m(gradients + each.at.offset, each.at.rows * each.at.columns);
      float* const error = s.left_out.data() + each.at.offset;
      const thin p = columns_of(s.p.data() + each.p_begin, each.at.rows);
      const thin q = columns_of(s.q.data() + each.q_begin, each.at.columns);
      const auto is_finite = [](float x) { return std::isfinite(x); };
      // p and q have the same bits on all ranks, so all decide alike.
      const bool keeps_error = options_.feedback == error_feedback::on &&
                               std::ranges::all_of(p.all(), is_finite) &&
                               std::ranges::all_of(q.all(), is_finite);
      if (keeps_error) std::ranges::copy(m, error);
      gemm(op::transposed, op::plain, p.length, q.length, p.columns, 1.0F, p.data, p.length, q.data,
           q.length, 0.0F, m.data(), q.length);
      for (std::size_t i = 0; i < m.size(); ++i) {
        if (keeps_error) error[i] -= m[i] * share;
        m[i] *= unscale;
      }
    }
  }

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

namespace detail {

[[nodiscard]] inline double inner_product(std::span<const float> x, std::span<const float> y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0, std::plus<>(),
                            [](double a, double b) { return a * b; });
}

}  // namespace detail

inline void powersgd_hook::renew_lost_columns(thin q, const random_stream& random) {
  orthogonalize(q);
  bool lost = false;
  for (std::size_t k = 0; k < q.columns; ++k) {
    const std::span<float> column = q.column(k);
    if (detail::inner_product(column, column) > 0.5) continue;  // it is 0 or, up to rounding, 1
    lost = true;
    random.substream(k).normal(tensor<float>::wrap(column, {q.length}), 0.0F, 1.0F);
  }
  if (lost) orthogonalize(q);
}

inline void powersgd_hook::orthogonalize(thin columns) {
  for (std::size_t k = 0; k < columns.columns; ++k) {
    const std::span<float> column = columns.column(k);
    const double before = detail::inner_product(column, column);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::span<const float> earlier = columns.column(i);
        const auto part = static_cast<float>(detail::inner_product(earlier, column));
        for (std::size_t j = 0; j < column.size(); ++j) column[j] -= part * earlier[j];
      }
    }
    const double left = detail::inner_product(column, column);
    // A length whose square is beyond float's range counts as not finite, as in the norms of
    // clipping.
    if (!(left <= std::numeric_limits<float>::max())) {
      std::ranges::fill(column, std::numeric_limits<float>::quiet_NaN());
    } else if (left > 1e-10 * before) {
      const auto length = static_cast<float>(std::sqrt(left));
      for (float& each : column) each /= length;
    } else {
      std::ranges::fill(column, 0.0F);
    }
  }
}

}  // namespace parx
