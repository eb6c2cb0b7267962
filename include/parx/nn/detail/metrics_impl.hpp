// Definitions of metrics.hpp.
#pragma once

#include <parx/core/check.hpp>
#include <parx/nn/metrics.hpp>

namespace parx::inline PARX_ABI::nn {

PARX_INLINE void add(metrics& total, const metrics& more) {
  if (total.empty()) {
    total = more;
    return;
  }
  require(total.size() == more.size(),
          "an evaluation measured {} figures of one batch and {} of another", total.size(),
          more.size());
  for (std::size_t i = 0; i < total.size(); ++i) {
    require(total[i].name == more[i].name,
            "an evaluation measured \"{}\" of one batch and \"{}\" of another in its place",
            total[i].name, more[i].name);
    total[i].value += more[i].value;
  }
}

}  // namespace parx::nn
