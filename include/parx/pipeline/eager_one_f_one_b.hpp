// Eager 1F1B: 1F1B with additional forwards in the warm-up, enough to hide the time of messages.
//
// The way of a micro-batch to the last stage and back takes 2c longer at each hop, where c is
// shape.hop. With ceil(2c) additional forwards for each hop no rank waits for that; rank r then has
// min(m, (p-r) + (p-1-r) ceil(2c)) in flight, and the idle time is GPipe's with the same hop.
// Rounding up must be done for each hop; rounding up once for the whole way leaves gaps.
#pragma once

#include <cmath>

#include <parx/pipeline/one_f_one_b.hpp>

namespace parx::inline PARX_ABI::schedules {

[[nodiscard]] inline pipeline_table eager_one_f_one_b(const pipeline_shape& shape) {
  // There are no more than m forwards.
  const double extra = std::min(std::ceil(2 * shape.hop), static_cast<double>(shape.microbatches));
  return detail::alternating("eager_1f1b", shape, 1 + static_cast<int>(std::max(extra, 0.0)));
}

}  // namespace parx::schedules
