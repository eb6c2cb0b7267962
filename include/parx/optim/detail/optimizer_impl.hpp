// Definitions of optimizer.hpp.
#pragma once

#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/optim/optimizer.hpp>

namespace parx::inline PARX_ABI::optim {

PARX_INLINE void detail::warn_of_no_gradient(call_site site) {
  logger::instance().write(
      log_level::warn,
      formatted("step at {}: no parameter has a gradient, so nothing changes: call backward() of "
                "the loss, or forward_backward() of the model, before each step; zero_grad() comes "
                "before them, or not at all",
                site));
}

}  // namespace parx::optim
