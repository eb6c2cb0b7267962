// --parallel: how a training program deals a model out over its ranks.
//
//   --parallel ddp | zero1 | zero2 | fsdp | hybrid
//
// The value is a list of words and of settings, "word,name=number", of which one word is known
// today. The plan (parx/plan.hpp) refuses a way that takes more memory than there is.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options.hpp"
#include <parx/ddp.hpp>
#include <parx/ddp/training_state.hpp>
#include <parx/fsdp.hpp>
#include <parx/plan.hpp>

namespace examples {

struct parallel_settings {
  std::string way = "ddp";
  int stage = 0;  ///< of ZeRO; 0: ddp
};

namespace detail {

/// "a,b=3" as {"a", ""} and {"b", "3"}.
inline std::vector<std::pair<std::string, std::string>> words_of(std::string_view list) {
  std::vector<std::pair<std::string, std::string>> words;
  while (true) {
    const std::string_view word = list.substr(0, list.find(','));
    const std::size_t equals = std::min(word.find('='), word.size());
    words.emplace_back(word.substr(0, equals),
                       equals < word.size() ? word.substr(equals + 1) : std::string_view{});
    if (word.size() == list.size()) return words;
    list.remove_prefix(word.size() + 1);
  }
}

}  // namespace detail

inline void add_parallel_flag(cxxopts::Options& options) {
  options.add_options("Ranks")(
      "parallel", "ddp; or cut over the ranks the optimizer's state (zero1), gradients (zero2), "
      "values (fsdp), within hosts (hybrid)", text("ddp"));
}

[[nodiscard]] inline parallel_settings parallel_flag(const cxxopts::ParseResult& given) {
  const std::string said = given["parallel"].as<std::string>();
  const auto words = detail::words_of(said);
  constexpr std::array<std::pair<std::string_view, int>, 5> ways{
      {{"ddp", 0}, {"zero1", 1}, {"zero2", 2}, {"fsdp", 3}, {"hybrid", 3}}};
  for (const auto& [way, stage] : ways) {
    if (words.size() == 1 && words[0].first == way && words[0].second.empty()) {
      return {std::string(way), stage};
    }
  }
  parx::throw_usage("--parallel \"{}\": give ddp, zero1, zero2, fsdp or hybrid", said);
}

/// Collective. Calls use(wrapped) with the model as --parallel says; `units` are what is gathered
/// at a time. Throws parx::usage_error where `work`, with AdamW, takes more memory than a rank has.
template <typename Model, typename Use>
void with_parallel(const parallel_settings& s, Model& model, parx::process_group& group,
                   const parx::unit_choice& units, Use&& use) {
  if (s.stage == 0) {
    parx::ddp ddp{model, group};
    return use(ddp);
  }
  parx::fsdp fsdp{model, group, {.stage = s.stage, .units = units}};
  use(fsdp);
}

}  // namespace examples
