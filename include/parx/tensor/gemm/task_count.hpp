// task_count: into how many pieces a product is divided for threads. No bit depends on it.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/parallel_for.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Multiply-adds that take a core about 20 us, where they or the memory limit it: less work is not
/// given to another thread.
enum class work : std::size_t { by_arithmetic = std::size_t{1} << 20U, by_memory = 1U << 17U };

/// One for a single thread or little work, else several a thread, because a thread may get its core
/// late.
[[nodiscard]] inline std::size_t wanted_tasks(std::size_t multiply_adds, work limited) {
  const auto least = static_cast<std::size_t>(limited);
  if (multiply_adds < 2 * least || thread_pool::is_inside()) return 1;
  const auto threads = static_cast<std::size_t>(get_num_threads());
  return threads == 1 ? 1 : std::min(4 * threads, multiply_adds / least);
}

}  // namespace parx::detail::product
