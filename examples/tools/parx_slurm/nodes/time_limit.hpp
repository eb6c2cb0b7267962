// time_limit: Slurm's spelling of a length of time, both ways. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

/// What a partition without a limit has.
inline constexpr std::chrono::seconds no_time_limit = std::chrono::seconds::max();

namespace detail {

using parx::detail::parse_number;

using parx::detail::split_at;

}  // namespace detail

/// "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes",
/// "days-hours:minutes:seconds", as in `sbatch --time`; "infinite" and "UNLIMITED" are
/// no_time_limit. Also "90s", "30m", "2h" and "1d", which Slurm does not know. nullopt for anything
/// else, "n/a" among it. Source: https://slurm.schedmd.com/sbatch.html#OPT_time.
[[nodiscard]] std::optional<std::chrono::seconds> parse_time_limit(std::string_view text);

/// As Slurm prints it: "30:00", "1:00:00", "2-00:00:00", "infinite".
[[nodiscard]] std::string to_time_limit(std::chrono::seconds time);

}  // namespace parx::slurm
