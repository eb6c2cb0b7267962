// instructions: which instructions a program's file was compiled for, and which this processor has.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <parx/core/compiled_for.hpp>

namespace parx::inline PARX_ABI {

/// What core/compiled_for.hpp has put into a program's file; empty where there is nothing.
[[nodiscard]] inline std::vector<std::string> instructions_of(std::string_view file) {
  constexpr std::string_view own = detail::compiled_for, mark = own.substr(0, own.find(':') + 1);
  std::vector<std::string> names;
  for (auto at = file.find(mark); at != file.npos; at = file.find(mark, at)) {
    at += mark.size();
    while (at < file.size() && file[at] == ' ') {
      const auto end = std::min(
          file.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at + 1), file.size());
      std::string name(file.substr(at + 1, end - at - 1));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      at = end;
    }
  }
  return names;
}

/// Whether this processor has instructions of the names above. True for unknown names.
[[nodiscard]] inline bool has_instructions(std::string_view name) {
#if defined(__x86_64__)
  enum part { leaf_1_c, leaf_7_b, leaf_7_c, leaf_7_1_a };
  struct feature {
    std::string_view name;
    part where;
    int bit;
  };
  static constexpr std::array<feature, 15> features{{{"sse4_2", leaf_1_c, 20},
                                                     {"popcnt", leaf_1_c, 23},
                                                     {"movbe", leaf_1_c, 22},
                                                     {"avx", leaf_1_c, 28},
                                                     {"f16c", leaf_1_c, 29},
                                                     {"fma", leaf_1_c, 12},
                                                     {"bmi1", leaf_7_b, 3},
                                                     {"bmi2", leaf_7_b, 8},
                                                     {"avx2", leaf_7_b, 5},
                                                     {"avx512f", leaf_7_b, 16},
                                                     {"avx512bw", leaf_7_b, 30},
                                                     {"avx512dq", leaf_7_b, 17},
                                                     {"avx512vl", leaf_7_b, 31},
                                                     {"avx512_vnni", leaf_7_c, 11},
                                                     {"avx512_bf16", leaf_7_1_a, 5}}};
  for (const feature& each : features) {
    if (each.name != name) continue;
    unsigned a = 0, b = 0, c = 0, d = 0;
    const unsigned leaf = each.where == leaf_1_c ? 1 : 7;
    const unsigned subleaf = each.where == leaf_7_1_a ? 1 : 0;
    if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) == 0) return false;
    const unsigned bits = each.where == leaf_7_b ? b : each.where == leaf_7_1_a ? a : c;
    return (bits >> each.bit & 1) != 0;
  }
#endif
  static_cast<void>(name);
  return true;
}

}  // namespace parx
