// Definitions of explain.hpp.
#pragma once

#include <parx/tensor_parallel/explain.hpp>

namespace parx::inline PARX_ABI::tp {

PARX_INLINE double explanation::bytes_a_step() const {
  double all = 0;
  for_each_message([&](const nn::cut_message& each) { all += bytes_of(each); });
  return all;
}

PARX_INLINE std::size_t explanation::collectives_a_step() const {
  std::size_t all = 0;
  for_each_message([&](const nn::cut_message&) { ++all; });
  return all;
}

PARX_INLINE std::string explanation::table() const {
  std::string text = formatted(
      "rank {} of {} ranks; bytes that it sends in a step of {} x {} "
      "positions\n",
      options_.rank, options_.ranks, options_.texts, options_.positions);
  for (const explained_layer& each : layers_) {
    text += formatted("{:<44} {}\n", each.path, tp::to_string(each.rule));
    for (const auto& [name, part, bytes] : each.parameters)
      text += formatted("  {}: {}, {} bytes\n", name, part.text(), bytes);
    for (const nn::cut_message& message : each.messages) {
      text += formatted("  {} {} of {}: {:.0f} bytes\n",
                        message.pass == nn::cut_pass::forward ? "forward" : "backward",
                        tp::to_string(message.how), message.of, bytes_of(message));
    }
  }
  return text + formatted(
                    "in all: {} of {} bytes of parameters; a step sends {:.0f} bytes in "
                    "{} collectives\n",
                    here_bytes_, whole_bytes_, bytes_a_step(), collectives_a_step());
}

PARX_INLINE void explanation::add(explained_layer layer) { layers_.push_back(std::move(layer)); }

PARX_INLINE double explanation::bytes_of(const nn::cut_message& message) const {
  const std::size_t tokens =
      options_.texts * (message.positions_used > 0 ? message.positions_used : options_.positions);
  const std::size_t numbers = message.fixed + message.a_token * tokens;
  const double ways = message.how == nn::cut_collective::all_reduce ? 2 : 1;
  return ways * (options_.ranks - 1) / options_.ranks *
         static_cast<double>(numbers * number_bytes_);
}

}  // namespace parx::tp

namespace parx::inline PARX_ABI::tp::detail {

PARX_INLINE std::string plan_table(const std::vector<planned_layer>& layers, const plan& lines) {
  std::string table;
  for (const planned_layer& each : layers) {
    table += formatted("\n  {:<44}", each.path);
    if (each.lines.empty()) table += " whole";
    for (const std::size_t line : each.lines) {
      table += formatted(" {} (by \"{}\")", tp::to_string(lines[line].rule), lines[line].pattern);
    }
  }
  return table;
}

/// Why the lines for a multi_head_attention do not fit together; "" if they do.
[[nodiscard]] inline std::string multi_head_fault(const std::vector<planned_layer>& layers,
                                                  const plan& lines,
                                                  const planned_layer& attention) {
  const auto has_line = [&](const char* name, nn::cut how) {
    return std::any_of(layers.begin(), layers.end(), [&](const planned_layer& each) {
      return each.path == attention.path + name && !each.lines.empty() &&
             lines[each.lines[0]].rule.how == how;
    });
  };
  const bool is_cut = !attention.lines.empty(), is_summed = has_line(".out_proj", nn::cut::rows);
  const bool has_heads = has_line(".core", nn::cut::heads);
  if (is_cut == is_summed && !has_heads) return "";
  return formatted(
      "\"{}\" is multi_head_attention, which is cut by two lines: {}. {}", attention.path,
      nn::lines_for_attention(attention.path),
      has_heads ? "Its core needs none"
      : is_cut  ? "The second, for its out_proj, is not there"
                : "The first, for its queries, keys and values, is not there");
}

PARX_INLINE std::string plan_fault(const std::vector<planned_layer>& layers, const plan& lines,
                                   const nn::cut_place& where) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool used = std::any_of(layers.begin(), layers.end(), [&](const planned_layer& each) {
      return std::find(each.lines.begin(), each.lines.end(), i) != each.lines.end();
    });
    if (!used) return formatted("no layer matches \"{}\"", lines[i].pattern);
  }
  for (const planned_layer& each : layers) {
    if (each.lines.size() > 1) {
      return formatted("\"{}\" is matched by both \"{}\" and \"{}\"", each.path,
                       lines[each.lines[0]].pattern, lines[each.lines[1]].pattern);
    }
    if (!each.lines.empty()) {
      try {
        static_cast<void>(each.layer->part_on(where, lines[each.lines[0]].rule, each.path));
      } catch (const usage_error& refused) {
        return refused.what();
      }
    }
    if (each.is_multi_head) {
      if (const std::string fault = multi_head_fault(layers, lines, each); !fault.empty())
        return fault;
    }
    if (!each.is_attention) continue;
    const std::string within = each.path + ".";
    const bool has_columns =
        std::any_of(layers.begin(), layers.end(), [&](const planned_layer& other) {
          return other.path.starts_with(within) && !other.lines.empty() &&
                 lines[other.lines[0]].rule.how == nn::cut::columns;
        });
    if (has_columns == each.lines.empty()) {
      return formatted("\"{}\" {}", each.path,
                       has_columns ? "lies whole, but its queries, keys or values are cut by "
                                     "column: give it the rule heads"
                                   : "has the rule heads, but none of its queries, keys and "
                                     "values is cut by column");
    }
  }
  return "";
}

}  // namespace parx::tp::detail
