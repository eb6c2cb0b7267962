// The checks of stop_at_nan: the loss of every batch, and the norm of the gradients before a step.
// With a loss scale, which skips steps with overflows, its value is checked instead of the norm.
//
// The checks come before any change, so the parameters and all checkpoints are those of the last
// good step. Under data parallelism the gradients are equal on all ranks, so all throw. Local.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/nn/loss.hpp>
#include <parx/optim/target.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// A place in a run, for error messages.
struct run_position {
  int rank = 0;
  std::uint64_t step = 0;  ///< the current one, counted from 1
  double epoch = 0;
  double learning_rate = 0;

  [[nodiscard]] std::string text() const {
    return formatted("in step {} (epoch {:.2f}, learning rate {:.3g})", step, epoch, learning_rate);
  }
};

/// 0 / 0 gives a NaN with the sign bit set, which would print as "-nan".
[[nodiscard]] inline double without_sign_of_nan(double value) noexcept {
  return std::isnan(value) ? std::fabs(value) : value;
}

inline void require_finite(const nn::tally& loss, const run_position& here) {
  if (std::isfinite(loss.sum)) return;
  throw_error(errc::bad_data,
              "the loss of rank {} is {} {}; earlier checkpoints are as they were. Look at that "
              "batch, lower the rate, or set detect_anomaly",
              here.rank, without_sign_of_nan(loss.sum), here.text());
}

/// `first` is the first parameter with an Inf or NaN in its gradient, if any.
[[noreturn]] inline void throw_norm(double norm, const std::string& first,
                                    const run_position& here) {
  throw_error(errc::bad_data,
              "the norm of the gradients is {} {}, though the loss is a number; {} is the first "
              "parameter with such a gradient. The step was not made, and earlier checkpoints are "
              "as they were. Lower the rate, or set detect_anomaly",
              without_sign_of_nan(norm), here.text(), first.empty() ? "none" : first);
}

/// `norm` is that of the gradients of `targets` before clipping.
template <typename T>
void require_finite(double norm, const std::vector<optim::target<T>>& targets,
                    const run_position& here) {
  if (std::isfinite(norm)) return;
  std::string first;
  for (const optim::target<T>& each : targets) {
    each.for_each_grad([&](std::span<const T> part) {
      for (const T value : part) {
        if (first.empty() && !std::isfinite(value)) first = each.name();
      }
    });
  }
  throw_norm(norm, first, here);
}

/// A scale that has fallen from 65536 to below this was halved 30 times: gradients are Inf or NaN
/// at any scale, and every later step would be skipped. Source: fairseq's min_loss_scale.
inline constexpr double least_loss_scale = 1e-4;

inline void require_scale(std::optional<double> loss_scale, const run_position& here) {
  if (!loss_scale || *loss_scale >= least_loss_scale) return;
  throw_error(errc::bad_data,
              "the loss scale has fallen to {:.3g} {}: step after step was left out, since its "
              "gradients were Inf or NaN at any scale, though the loss is a number. Earlier "
              "checkpoints are as they were. Lower the rate, take bf16, or set detect_anomaly",
              *loss_scale, here.text());
}

}  // namespace parx::train::detail
