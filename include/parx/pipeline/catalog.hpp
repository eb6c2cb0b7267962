// The schedules of parx by name, for flags and configurations.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include <parx/core/check.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/pipeline/eager_one_f_one_b.hpp>
#include <parx/pipeline/gpipe.hpp>
#include <parx/pipeline/interleaved.hpp>
#include <parx/pipeline/looped_bfs.hpp>
#include <parx/pipeline/one_f_one_b.hpp>
#include <parx/pipeline/zb1p.hpp>
#include <parx/pipeline/zbv.hpp>
#include <parx/plan/layout.hpp>

namespace parx::inline PARX_ABI {

/// A schedule under the name by which a layout chooses it.
struct named_schedule {
  std::string_view name;
  pipeline_schedule make;
};

/// All schedules of parx.
inline constexpr std::array<named_schedule, pipeline_schedule_names.size()> pipeline_schedules{{
    {"gpipe", schedules::gpipe},
    {"1f1b", schedules::one_f_one_b},
    {"eager_1f1b", schedules::eager_one_f_one_b},
    {"interleaved", schedules::interleaved},
    {"looped_bfs", schedules::looped_bfs},
    {"zb1p", schedules::zb1p},
    {"zbv", schedules::zbv},
}};
static_assert(std::equal(pipeline_schedules.begin(), pipeline_schedules.end(),
                         pipeline_schedule_names.begin(),
                         [](const auto& each, std::string_view name) { return each.name == name; }),
              "plan/layout.hpp names the schedules that a layout can have");

/// Null where there is no schedule of this name.
[[nodiscard]] constexpr const named_schedule* find_schedule(std::string_view name) noexcept {
  for (const named_schedule& each : pipeline_schedules) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

/// Throws usage_error that lists the names.
[[nodiscard]] inline pipeline_schedule schedule_named(std::string_view name) {
  const named_schedule* const found = find_schedule(name);
  if (found != nullptr) return found->make;
  throw_usage("there is no pipeline schedule \"{}\", but {}", name,
              joined_text(pipeline_schedule_names));
}

}  // namespace parx
