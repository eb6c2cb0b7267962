// plan: how the layers of a model are cut, as lines of a pattern and a rule.
//
//   const parx::tp::plan lines{{"*.q_proj", column}, {"*.o_proj", row}, {"*embed_tokens", vocab}};
//
// A pattern is matched against a layer's path; * stands for any characters. Layers that no line
// matches lie whole on all ranks. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <parx/nn/cut.hpp>

namespace parx::inline PARX_ABI::tp {

/// By outputs; what follows is computed of those here.
inline constexpr nn::layer_cut column{.how = nn::cut::columns};
/// By inputs, after column; the result is summed.
inline constexpr nn::layer_cut row{.how = nn::cut::rows};
/// An embedding by its rows.
inline constexpr nn::layer_cut vocab{.how = nn::cut::vocabulary};
/// The same of one that the output is tied to: logits of the classes here. For these the loss is
/// parallelized::cross_entropy.
inline constexpr nn::layer_cut tied_vocab{.how = nn::cut::vocabulary,
                                          .result = nn::cut_result::logits};
/// An output layer by its classes.
inline constexpr nn::layer_cut head{.how = nn::cut::columns, .result = nn::cut_result::logits};
/// Attention between column and row.
inline constexpr nn::layer_cut heads{.how = nn::cut::heads};
/// A norm or dropout outside of column and row where positions are cut (sequence parallel).
inline constexpr nn::layer_cut sequence{.how = nn::cut::positions};
/// The dropout behind which positions are cut.
inline constexpr nn::layer_cut to_sequence{.how = nn::cut::to_positions};
/// The norm behind which they are whole again.
inline constexpr nn::layer_cut from_sequence{.how = nn::cut::from_positions};

/// `rule` for a layer with this many heads, which are not cut apart; for dropout: with so many
/// features.
[[nodiscard]] constexpr nn::layer_cut of_heads(nn::layer_cut rule, std::size_t count) noexcept {
  rule.units = count;
  return rule;
}

/// `rule` for a layer that is called so many times in a step, or reads so many inputs. Explains
/// messages alone.
[[nodiscard]] constexpr nn::layer_cut of_inputs(nn::layer_cut rule, std::size_t count) noexcept {
  rule.inputs = count;
  return rule;
}

struct plan_line {
  std::string pattern;
  nn::layer_cut rule;
};
using plan = std::vector<plan_line>;

/// Whether the whole text fits a pattern with *.
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

/// "column, 4 heads", as errors and tables name a rule.
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
