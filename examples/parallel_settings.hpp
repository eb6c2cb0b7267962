// Parses --parallel: how a model is distributed over the ranks of a job. Pure.
//
//   fsdp                          what is sharded over the data-parallel ranks
//   fsdp,gathered                 each rank gathers values even where all could share one copy
//   zero1=4                       the same, over 4 ranks
//   pp=2,zero1=2                  stages whose optimizer state is sharded over pairs of ranks
//   pp=4,schedule=zb1p            stages of a pipeline, with this schedule
//   fsdp=2,tp=2,sp                layers cut over pairs of ranks, with sequence parallelism
//   pp=2,dp=2,tp=2,microbatches=4 a mesh: 2 stages of 2 x 2 ranks
//
// The words can be in any order. An axis that is not named has one rank, except that the
// data-parallel axis has all remaining ranks.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "did_you_mean.hpp"
#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/mesh/layout.hpp>
#include <parx/pipeline/catalog.hpp>

namespace examples {

struct parallel_settings {
  std::string text = "ddp";     ///< the flag's value, for messages
  std::string wrapper = "ddp";  ///< ddp, zero1, zero2, fsdp or hybrid
  int stage = 0;                ///< the ZeRO stage; 0: ddp
  bool within_hosts = false;    ///< hybrid: shards over the ranks of each host
  bool gathered = false;        ///< values are gathered also by ranks that share memory
  int pp = 1, dp = parx::remaining_ranks, tp = 1;
  bool by_positions = false;  ///< sequence parallel: also cuts the activations between cut layers
  parx::pipeline_schedule schedule = parx::schedules::one_f_one_b;
  int microbatches = 8;
  int chunks = 1;  ///< stages of each rank, for the schedules that support several
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

/// Throws parx::usage_error that says what is wrong and what is allowed.
[[nodiscard]] inline parallel_settings parse_parallel(const std::string& given) {
  constexpr std::array<std::string_view, 5> wrappers{"ddp", "zero1", "zero2", "fsdp", "hybrid"};
  parallel_settings s{.text = given};
  const auto words = detail::words_of(given);
  const auto is_given = [&](std::string_view name) {
    return std::any_of(words.begin(), words.end(), [&](const auto& w) { return w.first == name; });
  };
  const auto count = [&](const std::string& name, const std::string& text) {
    int value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    parx::require(code == std::errc{} && end == text.data() + text.size() && value > 0,
                  "--parallel \"{}\": {}={}: give a whole number from 1", given, name, text);
    return value;
  };
  std::string_view wrapper;
  for (const auto& [name, value] : words) {
    const auto times = std::count_if(words.begin(), words.end(),
                                     [&, &name = name](const auto& w) { return w.first == name; });
    parx::require(times == 1, "--parallel \"{}\": {} is given {} times", given, name, times);
    const auto known = std::find(wrappers.begin(), wrappers.end(), name);
    if (known != wrappers.end()) {
      parx::require(wrapper.empty(), "--parallel \"{}\": {} and {} exclude each other", given,
                    wrapper, name);
      wrapper = *known;
      s.wrapper = name;
      s.stage = std::min(static_cast<int>(known - wrappers.begin()), 3);
      s.within_hosts = wrapper == "hybrid";
      parx::require(value.empty() || !is_given("dp"),
                    "--parallel \"{}\": {}={} and dp= are the same number of ranks: give one",
                    given, name, value);
      if (!value.empty()) s.dp = count(name, value);
    } else if (name == "pp" || name == "dp" || name == "tp") {
      (name == "pp" ? s.pp : name == "dp" ? s.dp : s.tp) = count(name, value);
    } else if (name == "microbatches" || name == "chunks") {
      (name == "chunks" ? s.chunks : s.microbatches) = count(name, value);
    } else if (name == "sp") {
      parx::require(value.empty() && is_given("tp"),
                    "--parallel \"{}\": sp has no number and goes with tp=", given);
      s.by_positions = true;
    } else if (name == "gathered") {
      parx::require(value.empty() && (is_given("fsdp") || is_given("hybrid")),
                    "--parallel \"{}\": gathered has no number and goes with fsdp or hybrid",
                    given);
      s.gathered = true;
    } else if (name == "schedule") {
      s.schedule = parx::schedule_named(value);
    } else {
      const std::string meant =
          did_you_mean(name, {"ddp", "zero1", "zero2", "fsdp", "hybrid", "gathered", "pp", "dp",
                              "tp", "sp", "schedule", "microbatches", "chunks"});
      parx::throw_usage(
          "--parallel \"{}\": there is no \"{}\"{} Give ddp, zero1, zero2, fsdp or hybrid, with "
          "the last two gathered, the sizes pp=, dp= and tp=, with tp= sp, and with pp= schedule=, "
          "microbatches= and chunks=",
          given, name, question(meant));
    }
  }
  for (const char* const of_stages : {"schedule", "microbatches", "chunks"}) {
    parx::require(is_given("pp") || !is_given(of_stages),
                  "--parallel \"{}\": {}= is for a pipeline: give pp= as well", given, of_stages);
  }
  return s;
}

}  // namespace examples
