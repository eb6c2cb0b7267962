// What stop_at_nan looks at: the loss of every batch, and the norm of the gradients before a step,
// or with a loss scale, which leaves such steps out, how far it fell.
//
// They are looked at before anything is changed, so that the parameters and all checkpoints are
// those of the last good step. Under data parallelism the gradients are equal on all ranks, and all
// throw alike. Local.
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

/// Where in a run something happened.
struct whereabouts {
  int rank = 0;
  std::uint64_t step = 0;  ///< the one that is being made, counted from 1
  double epoch = 0;
  double learning_rate = 0;

  [[nodiscard]] std::string text() const {
    return formatted("in step {} (epoch {:.2f}, learning rate {:.3g})", step, epoch,
                       learning_rate);
  }
};

/// What came out of 0 / 0 has a sign bit, and "-nan" says no more than "nan".
[[nodiscard]] inline double without_sign_of_nan(double value) noexcept {
  return std::isnan(value) ? std::fabs(value) : value;
}

inline void require_finite(const nn::tally& loss, const whereabouts& here) {
  if (std::isfinite(loss.sum)) return;
  throw_error(errc::bad_data,
              "the loss of rank {} is {} {}; earlier checkpoints are as they were. Look at that "
              "batch, lower the rate, or set detect_anomaly",
              here.rank, without_sign_of_nan(loss.sum), here.text());
}

/// `norm` is that of the gradients of `targets`, before they were scaled by it.
template <typename T>
void require_finite(double norm, const std::vector<optim::target<T>>& targets,
                    const whereabouts& here) {
  if (std::isfinite(norm)) return;
  std::string first;
  for (const optim::target<T>& each : targets) {
    each.for_each_grad([&](std::span<const T> part) {
      for (const T value : part) {
        if (first.empty() && !std::isfinite(value)) first = each.name();
      }
    });
  }
  throw_error(errc::bad_data,
              "the norm of the gradients is {} {}, though the loss is a number; {} is the first "
              "parameter with such a gradient. The step was not made, and earlier checkpoints are "
              "as they were. Lower the rate, or set detect_anomaly",
              without_sign_of_nan(norm), here.text(), first.empty() ? "none" : first);
}

/// A scale that falls from 65536 to below this was halved 30 times: gradients are Inf or NaN at any
/// scale, and training would leave out every step to come. Source: fairseq's min_loss_scale.
inline constexpr double least_loss_scale = 1e-4;

inline void require_scale(std::optional<double> loss_scale, const whereabouts& here) {
  if (!loss_scale || *loss_scale >= least_loss_scale) return;
  throw_error(errc::bad_data,
              "the loss scale has fallen to {:.3g} {}: step after step was left out, since its "
              "gradients were Inf or NaN at any scale, though the loss is a number. Earlier "
              "checkpoints are as they were. Lower the rate, take bf16, or set detect_anomaly",
              *loss_scale, here.text());
}

}  // namespace parx::train::detail
