// Pipeline tables as text, in the format of PyTorch's torch.distributed.pipelining: one line for
// each rank, one cell for each action, "2F0". Empty cells (idle time) and SEND_F, RECV_F, SEND_B,
// RECV_B (which follow from the other actions) are read and dropped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/without_blanks.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/validate.hpp>

namespace parx::inline PARX_ABI {

/// A row for each rank, as PyTorch writes them.
[[nodiscard]] inline std::string to_csv(const pipeline_table& table) {
  std::string text;
  for (const auto& actions : table.ranks) {
    for (const stage_action& a : actions) {
      if (&a != actions.data()) text += ',';
      text += to_string(a);
    }
    text += '\n';
  }
  return text;
}

namespace detail {

[[nodiscard]] inline bool is_message_action(std::string_view cell) {
  for (const std::string_view name : {"SEND_F", "RECV_F", "SEND_B", "RECV_B"}) {
    const std::size_t at = cell.find(name);
    if (at == std::string_view::npos) continue;
    return parse_stage_action(std::string(cell.substr(0, at)) + 'F' +
                              std::string(cell.substr(at + name.size()))).has_value();
  }
  return false;
}

/// Removes the front of `text` up to and including `mark`, and returns it without `mark`.
[[nodiscard]] inline std::string_view cut_front(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view front = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return front;
}

}  // namespace detail

/// Reads and validates a table. Throws usage_error that names the line and cell that is not an
/// action, or the rule that the table breaks (validate.hpp). Errors and drawings call it `name`.
[[nodiscard]] inline pipeline_table from_csv(std::string_view text,
                                             std::string name = "csv") {
  pipeline_table table{.name = std::move(name), .stages = 0, .microbatches = 0, .ranks = {}};
  while (!text.empty()) {
    std::string_view line = detail::cut_front(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && text.empty()) break;
    auto& actions = table.ranks.emplace_back();
    for (int column = 1; !line.empty(); ++column) {
      const std::string_view cell = detail::without_blanks(detail::cut_front(line, ','), " ");
      if (cell.empty() || detail::is_message_action(cell)) continue;
      const auto found = parse_stage_action(cell);
      require(found.has_value(),
              "schedule {}: line {}, cell {}, \"{}\" is no action: give a stage, one of F, B, I, W "
              "and a micro-batch (2F0), or a stage and UNSHARD, RESHARD or REDUCE_GRAD",
              table.name, table.ranks.size(), column, cell);
      table.stages = std::max(table.stages, found->stage + 1);
      table.microbatches = std::max(table.microbatches, found->microbatch + 1);
      actions.push_back(*found);
    }
  }
  validate(table);
  return table;
}

}  // namespace parx
