// instruction_level: which vector instructions a program needs and a node's features promise. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Each has the instructions of those before it.
enum class instruction_level { baseline, avx, avx2, avx512 };

[[nodiscard]] inline std::string to_string(instruction_level level) {
  switch (level) {
    case instruction_level::baseline:
      return "x86-64";
    case instruction_level::avx:
      return "AVX";
    case instruction_level::avx2:
      return "AVX2";
    case instruction_level::avx512:
      return "AVX-512";
  }
  return "unknown";
}

/// What a program needs, of whose instructions these are the names (/proc/cpuinfo's).
[[nodiscard]] inline instruction_level level_of_program(std::span<const std::string> names) {
  instruction_level level = instruction_level::baseline;
  for (const std::string& each : names) {
    if (each.starts_with("avx512")) level = std::max(level, instruction_level::avx512);
    if (each == "avx2" || each == "fma" || each == "bmi2" || each == "f16c") {
      level = std::max(level, instruction_level::avx2);
    }
    if (each == "avx") level = std::max(level, instruction_level::avx);
  }
  return level;
}

/// What the features of a node promise, by names of instructions or processors that sites give:
/// "avx512", "zen3", "milan", "skylake_gold". nullopt where none of them tells.
[[nodiscard]] inline std::optional<instruction_level> level_of_features(
    std::span<const std::string> features) {
  struct row {
    std::string_view word;
    instruction_level level;
  };
  using enum instruction_level;
  static constexpr std::array<row, 33> table{{
      {"avx512", avx512},     {"avx2", avx2},        {"avx", avx},
      {"sse4", baseline},     {"skylake", avx512},   {"cascade", avx512},
      {"cooperlake", avx512}, {"icelake", avx512},   {"sapphire", avx512},
      {"emerald", avx512},    {"granite", avx512},   {"zen4", avx512},
      {"zen5", avx512},       {"genoa", avx512},     {"bergamo", avx512},
      {"turin", avx512},      {"haswell", avx2},     {"broadwell", avx2},
      {"zen3", avx2},         {"zen2", avx2},        {"zen1", avx2},
      {"zen", avx2},          {"naples", avx2},      {"rome", avx2},
      {"milan", avx2},        {"sandybridge", avx},  {"sandy", avx},
      {"ivybridge", avx},     {"ivy", avx},          {"westmere", baseline},
      {"nehalem", baseline},  {"opteron", baseline}, {"x86_64_v1", baseline},
  }};
  std::optional<instruction_level> level;
  for (const std::string& feature : features) {
    std::string name = feature;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    for (const row& each : table) {  // longer words come before those that they begin with
      if (!name.starts_with(each.word)) continue;
      level = std::max(level.value_or(each.level), each.level);
      break;
    }
  }
  return level;
}

}  // namespace parx::slurm
