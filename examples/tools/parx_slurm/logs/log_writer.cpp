#include "tools/parx_slurm/logs/log_writer.hpp"

#include <cstddef>
#include <cstdint>

#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace detail {

std::optional<int> number_behind(std::string_view line, std::string_view word) {
  const auto at = line.find(word);
  if (at == line.npos) return std::nullopt;
  std::string_view rest = line.substr(at + word.size());
  rest = rest.substr(0, rest.find_first_not_of("0123456789"));
  return parx::detail::parse_number<int>(rest);
}

std::string_view text_between(std::string_view line, std::string_view begin,
                              std::string_view ends) {
  const auto at = line.find(begin);
  if (at == line.npos) return {};
  line.remove_prefix(at + begin.size());
  const auto end = line.find_first_of(ends);
  return end == line.npos ? std::string_view() : line.substr(0, end);
}

std::optional<int> rank_of_line(std::string_view line) {
  for (const std::string_view word : {"[rank ", "[RANK ", "[parx rank "}) {
    if (const auto rank = number_behind(line, word)) return rank;
  }
  if (line.starts_with("[default")) return number_behind(line, "[default");
  const auto colon = line.find(": ");
  return colon == line.npos ? std::nullopt : parx::detail::parse_number<int>(line.substr(0, colon));
}

}  // namespace detail

log_writer writer_of_line(std::string_view line) {
  log_writer writer{.rank = detail::rank_of_line(line), .node = {}};
  if (writer.rank && *writer.rank >= most_ranks) writer.rank.reset();
  if (writer.rank && (line.starts_with("[rank ") || line.starts_with("[parx rank "))) {
    const std::string_view tag = detail::text_between(line, "[", ",]");
    if (const auto on = tag.find(" on "); on != tag.npos) writer.node = tag.substr(on + 4);
  }
  return writer;
}

std::string name_of(const log_writer& writer) {
  if (!writer.rank) return {};
  return formatted("rank {}{}{}", *writer.rank, writer.node.empty() ? "" : " on ", writer.node);
}

log_writer writer_of_file(std::string_view path, const generation_report* report) {
  using parx::detail::parse_number;
  log_writer writer;
  const std::string_view name = path.substr(path.rfind('/') + 1);  // 0 where there is none
  const auto parts = parx::detail::split_at(name, '.');
  if (parts.size() == 3 && parts[0].starts_with('n') && parts[1].starts_with('r')) {
    const auto node = parse_number<std::size_t>(parts[0].substr(1));
    writer.rank = parse_number<int>(parts[1].substr(1));
    if (!node || !writer.rank) return {};
    if (report != nullptr && *node < report->members.size()) {
      writer.node = report->members[*node].node;
    }
  } else if (parts.size() >= 4) {
    const auto task = parse_number<int>(parts[parts.size() - 2]);
    const std::string_view node = parts[parts.size() - 3];
    const std::string_view job = parts[parts.size() - 4];  // "7", or "7_2" of an array
    const bool has_job = !job.empty() && job.find_first_not_of("0123456789_") == job.npos;
    if (!task || !has_job || node.empty() || parse_number<std::int64_t>(node)) return {};
    writer = {.rank = *task, .node = std::string(node)};
  }
  return writer;
}

}  // namespace parx::slurm
