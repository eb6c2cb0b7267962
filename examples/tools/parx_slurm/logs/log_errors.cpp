#include "tools/parx_slurm/logs/log_errors.hpp"

#include "tools/parx_slurm/logs/text_marks.hpp"

namespace parx::inline PARX_ABI::slurm {

namespace detail {

std::string shown_line(std::string_view line) {
  constexpr std::size_t most = 600;
  line = line.substr(0, line.find_last_not_of('\r') + 1);
  line.remove_prefix(line.rfind('\r') + 1);  // 0 where there is none
  if (line.size() <= most) return std::string(line);
  return std::string(line.substr(0, most)) + "...";
}

bool is_error(std::string_view line) {
  static const text_marks marks({error_marks.begin(), error_marks.end()});
  return line.find(log_line_error) != line.npos || marks.any_in(line);
}

bool is_echo(std::string_view line) {
  static const text_marks marks({echo_marks.begin(), echo_marks.end()});
  return blame_in_line(line).has_value() || marks.any_in(line);
}

bool is_opening(std::string_view line) {
  return line.find("Traceback (most recent call last)") != line.npos ||
         line.find("terminate called") != line.npos;
}

int lost_rank(std::string_view line) {
  const auto tag = blame_in_line(line);
  return tag ? tag->rank : -1;
}

}  // namespace detail
}  // namespace parx::slurm
