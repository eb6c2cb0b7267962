// Definitions of finite.hpp.
#pragma once

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/detail/finite.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE std::string run_position::text() const {
  return formatted("in step {} (epoch {:.2f}, learning rate {:.3g})", step, epoch, learning_rate);
}

PARX_INLINE double without_sign_of_nan(double value) noexcept {
  return std::isnan(value) ? std::fabs(value) : value;
}

PARX_INLINE void require_finite(const nn::tally& loss, const run_position& here) {
  if (std::isfinite(loss.sum)) return;
  throw_error(errc::bad_data,
              "the loss of rank {} is {} {}; earlier checkpoints are as they were. Look at that "
              "batch, lower the rate, or set detect_anomaly",
              here.rank, without_sign_of_nan(loss.sum), here.text());
}

PARX_INLINE void throw_norm(double norm, const std::string& first, const run_position& here) {
  throw_error(errc::bad_data,
              "the norm of the gradients is {} {}, though the loss is a number; {} is the first "
              "parameter with such a gradient. The step was not made, and earlier checkpoints are "
              "as they were. Lower the rate, or set detect_anomaly",
              without_sign_of_nan(norm), here.text(), first.empty() ? "none" : first);
}

PARX_INLINE void require_scale(std::optional<double> loss_scale, const run_position& here) {
  if (!loss_scale || *loss_scale >= least_loss_scale) return;
  throw_error(errc::bad_data,
              "the loss scale has fallen to {:.3g} {}: step after step was left out, since its "
              "gradients were Inf or NaN at any scale, though the loss is a number. Earlier "
              "checkpoints are as they were. Lower the rate, take bf16, or set detect_anomaly",
              *loss_scale, here.text());
}

}  // namespace parx::train::detail
