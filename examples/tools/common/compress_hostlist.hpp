// compress_hostlist: names of nodes as Slurm writes them, "n[07-08,11]". hostlist.hpp of the
// library has the inverse. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Host names as Slurm writes them, in order: n1, n2, n3, x -> "n[1-3],x". The inverse of
/// expand_hostlist() up to order and repetition.
[[nodiscard]] inline std::string compress_hostlist(std::vector<std::string> names) {
  struct numbered {
    std::string stem;
    std::int64_t number;
    std::size_t width;  ///< of the number with its leading zeros
    auto operator<=>(const numbered&) const = default;
    [[nodiscard]] bool is_padded() const { return std::to_string(number).size() < width; }
    [[nodiscard]] std::string digits() const {
      const std::string plain = std::to_string(number);
      return std::string(width - plain.size(), '0') + plain;
    }
  };
  std::set<numbered> all;
  std::set<std::string> plain;
  for (const std::string& each : names) {
    const auto end = each.find_last_not_of("0123456789");
    const std::string digits = end == each.npos ? each : each.substr(end + 1);
    if (digits.empty() || digits.size() > 18) {
      plain.insert(each);
    } else {
      all.insert({each.substr(0, each.size() - digits.size()), std::stoll(digits), digits.size()});
    }
  }
  std::map<std::string, std::vector<std::string>> runs;  // by their stems
  for (auto first = all.begin(); first != all.end();) {
    auto last = first;
    for (auto next = std::next(first); next != all.end() && next->stem == first->stem; ++next) {
      const bool as_wide = next->width == last->width || (!last->is_padded() && !next->is_padded());
      if (next->number != last->number + 1 || !as_wide) break;
      last = next;
    }
    runs[first->stem].push_back(first == last ? first->digits()
                                              : first->digits() + "-" + last->digits());
    first = std::next(last);
  }
  std::vector<std::string> lists(plain.begin(), plain.end());
  for (const auto& [stem, parts] : runs) {
    const bool alone = parts.size() == 1 && parts[0].find('-') == std::string::npos;
    lists.push_back(alone ? stem + parts[0] : stem + "[" + joined_text(parts, ",") + "]");
  }
  return joined_text(lists, ",");
}

}  // namespace parx::slurm
