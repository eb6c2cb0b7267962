// Definitions of loss_watch.hpp.
#pragma once

#include <atomic>

#include <parx/autograd/loss_watch.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void warn_of_loss(double loss, call_site site) {
  static std::atomic<bool> is_told{false};
  if (is_told.exchange(true)) return;
  log0(log_level::warn,
       "backward at {}: the loss is {}, and all gradients will be: the batch has such numbers, or "
       "an earlier step has spoiled the parameters. Lower the learning rate, clip by "
       "optim::clip_grad_norm, look for such numbers in the batch; a parx::detect_anomaly in front "
       "of the forward pass names the operation that made the first",
       site, std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf");
}

}  // namespace parx::detail
