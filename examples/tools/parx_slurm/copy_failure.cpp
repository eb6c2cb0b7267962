#include "tools/parx_slurm/copy_failure.hpp"

#include <array>

#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

std::vector<copy_failure> copy_failures(std::string_view errors) {
  static constexpr std::array<std::string_view, 5> of_network{
      "timed out", "ommunication", "onnection", "ontact", "node is down"};
  constexpr std::string_view mark = "REQUEST_FILE_BCAST(";
  std::vector<copy_failure> found;
  for (const std::string_view line : parx::detail::split_at(errors, '\n')) {
    const auto at = line.find(mark);
    const auto end = at == line.npos ? at : line.find(')', at);
    if (end == line.npos) continue;
    const std::string_view why = line.substr(end);
    bool is_cut_off = false;
    for (const std::string_view each : of_network) is_cut_off |= why.find(each) != why.npos;
    if (is_cut_off) continue;
    const auto begin = at + mark.size();
    found.push_back({std::string(line.substr(begin, end - begin)), std::string(line)});
  }
  return found;
}

std::optional<std::int64_t> free_mb_of_df(std::string_view output) {
  const auto lines = parx::detail::split_at(output, '\n');
  if (lines.size() < 2) return std::nullopt;
  std::vector<std::string_view> words;
  for (const std::string_view each : parx::detail::split_at(lines.back(), ' ')) {
    if (!each.empty()) words.push_back(each);
  }
  if (words.size() < 6) return std::nullopt;
  const auto kb = parx::detail::parse_number<std::int64_t>(words[3]);
  return kb ? std::optional(*kb / 1024) : std::nullopt;
}

}  // namespace parx::slurm
