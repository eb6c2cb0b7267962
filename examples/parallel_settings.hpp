// What --parallel says: how the ranks of a job share the work on one model. Pure.
//
//   fsdp                          one word: what the data-parallel ranks cut among themselves
//   zero1=4                       ... and how many they are
//   pp=2,zero1=2                  stages whose optimizer state is cut over pairs of ranks
//   pp=4,schedule=zb1p            stages of a pipeline, in this order of their work
//   fsdp=2,tp=2,sp                layers cut over pairs of ranks, and between them the positions
//   pp=2,dp=2,tp=2,microbatches=4 a mesh: 2 stages of 2 x 2 ranks
//
// A list of words and settings in any order. An axis that is not named has one rank, but the
// data-parallel one, which has those that are left.
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

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/mesh/layout.hpp>
#include <parx/pipeline/catalog.hpp>

namespace examples {

struct parallel_settings {
  std::string said = "ddp";   ///< as it was given, for messages
  std::string way = "ddp";    ///< of the data-parallel ranks
  int stage = 0;              ///< of ZeRO; 0: ddp
  bool within_hosts = false;  ///< the ranks of each host cut the model among themselves
  int pp = 1, dp = parx::remaining_ranks, tp = 1;
  bool by_positions = false;  ///< sequence parallel: activations between cut layers are cut, too
  parx::pipeline_schedule schedule = parx::schedules::one_f_one_b;
  int microbatches = 8;
  int chunks = 1;  ///< stages of each rank, of the schedules that take several
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

/// Throws parx::usage_error that says what is wrong and what there is.
[[nodiscard]] inline parallel_settings parse_parallel(const std::string& said) {
  constexpr std::array<std::string_view, 5> ways{"ddp", "zero1", "zero2", "fsdp", "hybrid"};
  parallel_settings s{.said = said};
  const auto words = detail::words_of(said);
  const auto is_given = [&](std::string_view name) {
    return std::any_of(words.begin(), words.end(), [&](const auto& w) { return w.first == name; });
  };
  const auto count = [&](const std::string& name, const std::string& text) {
    int value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    parx::require(code == std::errc{} && end == text.data() + text.size() && value > 0,
                  "--parallel \"{}\": {}={}: give a whole number from 1", said, name, text);
    return value;
  };
  std::string_view way;
  for (const auto& [name, value] : words) {
    const auto times = std::count_if(words.begin(), words.end(),
                                     [&, &name = name](const auto& w) { return w.first == name; });
    parx::require(times == 1, "--parallel \"{}\": {} is there {} times", said, name, times);
    const auto known = std::find(ways.begin(), ways.end(), name);
    if (known != ways.end()) {
      parx::require(way.empty(), "--parallel \"{}\": {} and {} exclude each other", said, way,
                    name);
      way = *known;
      s.way = name;
      s.stage = std::min(static_cast<int>(known - ways.begin()), 3);
      s.within_hosts = way == "hybrid";
      parx::require(value.empty() || !is_given("dp"),
                    "--parallel \"{}\": {}={} and dp= are the same number of ranks: give one", said,
                    name, value);
      if (!value.empty()) s.dp = count(name, value);
    } else if (name == "pp" || name == "dp" || name == "tp") {
      (name == "pp" ? s.pp : name == "dp" ? s.dp : s.tp) = count(name, value);
    } else if (name == "microbatches" || name == "chunks") {
      (name == "chunks" ? s.chunks : s.microbatches) = count(name, value);
    } else if (name == "sp") {
      parx::require(value.empty() && is_given("tp"),
                    "--parallel \"{}\": sp has no number and goes with tp=", said);
      s.by_positions = true;
    } else if (name == "schedule") {
      s.schedule = parx::schedule_named(value);
    } else {
      parx::throw_usage(
          "--parallel \"{}\": there is no \"{}\". Give ddp, zero1, zero2, fsdp or hybrid, the "
          "sizes pp=, dp= and tp=, with tp= sp, and with pp= schedule=, microbatches= and chunks=",
          said, name);
    }
  }
  for (const char* const of_stages : {"schedule", "microbatches", "chunks"}) {
    parx::require(is_given("pp") || !is_given(of_stages),
                  "--parallel \"{}\": {}= is of a pipeline: give pp= as well", said, of_stages);
  }
  return s;
}

}  // namespace examples
