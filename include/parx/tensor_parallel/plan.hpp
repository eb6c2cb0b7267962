// plan: how the layers of a model are cut, as lines of a pattern and a rule.
//
//   const parx::tp::plan lines{{"*.q_proj", column}, {"*.o_proj", row}, {"*embed_tokens", vocab}};
//
// A pattern is matched against a layer's path; * stands for any characters. Layers that no line
// matches are whole on all ranks. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <parx/nn/cut.hpp>

namespace parx::inline PARX_ABI::tp {

/// Cuts by outputs; the next layers compute with this rank's outputs.
inline constexpr nn::layer_cut column{.how = nn::cut::columns};
/// Cuts by inputs, after column; the result is summed over the ranks.
inline constexpr nn::layer_cut row{.how = nn::cut::rows};
/// Cuts an embedding by its rows.
inline constexpr nn::layer_cut vocab{.how = nn::cut::vocabulary};
/// The same for an embedding tied to the output: a rank has the logits of its classes.
inline constexpr nn::layer_cut tied_vocab{.how = nn::cut::vocabulary,
                                          .result = nn::cut_result::logits};
/// Cuts an output layer by its classes.
inline constexpr nn::layer_cut head{.how = nn::cut::columns, .result = nn::cut_result::logits};
/// For the attention between column and row.
inline constexpr nn::layer_cut heads{.how = nn::cut::heads};
/// For a norm or dropout outside of column and row, if positions are cut (sequence parallel).
inline constexpr nn::layer_cut sequence{.how = nn::cut::positions};
/// For the dropout after which positions are cut.
inline constexpr nn::layer_cut to_sequence{.how = nn::cut::to_positions};
/// For the norm after which positions are whole again.
inline constexpr nn::layer_cut from_sequence{.how = nn::cut::from_positions};

/// `rule` for a layer with this many heads, none of which is split between ranks; for dropout: with
/// this many features.
[[nodiscard]] constexpr nn::layer_cut of_heads(nn::layer_cut rule, std::size_t count) noexcept {
  rule.units = count;
  return rule;
}

/// `rule` for a layer that is called this many times in a step, or reads this many inputs. Only
/// used to explain messages.
[[nodiscard]] constexpr nn::layer_cut of_inputs(nn::layer_cut rule, std::size_t count) noexcept {
  rule.inputs = count;
  return rule;
}

/// How the layers are cut whose paths match the pattern.
struct plan_line {
  std::string pattern;
  nn::layer_cut rule;
};
using plan = std::vector<plan_line>;

/// Whether the whole text matches a pattern with *.
[[nodiscard]] constexpr bool matches(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// A rule as errors and tables show it: "column, 4 units".
[[nodiscard]] inline std::string to_string(const nn::layer_cut& rule) {
  const char* const name = [&] {
    switch (rule.how) {
      case nn::cut::columns:
        return rule.result == nn::cut_result::logits ? "head" : "column";
      case nn::cut::rows:
        return "row";
      case nn::cut::vocabulary:
        return rule.result == nn::cut_result::logits ? "tied vocab" : "vocab";
      case nn::cut::heads:
        return "heads";
      case nn::cut::positions:
        return "sequence";
      case nn::cut::to_positions:
        return "to sequence";
      case nn::cut::from_positions:
        return "from sequence";
    }
    return "?";
  }();
  return formatted("{}{}{}{}", name, rule.units > 0 ? formatted(", {} units", rule.units) : "",
                   rule.blocks > 1 ? formatted(", {} blocks", rule.blocks) : "",
                   rule.between == nn::between_cuts::positions ? ", sequence outside" : "");
}

}  // namespace parx::tp
