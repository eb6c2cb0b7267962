// Definitions of layout.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/did_you_mean.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/split.hpp>
#include <parx/plan/layout.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The most ranks of a job and the most parts of a step: their products with small numbers are int.
inline constexpr int most_of_layout = 1 << 20;

/// validate(), of a layout that was written as `text`.
void require_possible_layout(const layout& how, std::string_view text);

/// The word of a layout that `name` was meant to be, as one writes it; empty if there is none.
[[nodiscard]] inline std::string meant_layout_word(std::string_view name) {
  std::string small(name);
  for (char& letter : small) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  const std::vector<std::pair<std::string, std::string>> written{
      {"auto", "auto"},         {"ddp", "ddp"},           {"zero", "zero=1"},
      {"fsdp", "fsdp"},         {"hybrid", "hybrid"},     {"gathered", "gathered"},
      {"pp", "pp=2"},           {"dp", "dp=2"},           {"tp", "tp=2"},
      {"sp", "sp"},             {"chunks", "chunks=2"},   {"microbatches", "microbatches=8"},
      {"replicas", "replicas=8"}, {"schedule", "schedule=zb1p"}};
  std::vector<std::string> known;
  for (const auto& each : written) known.push_back(each.first);
  const std::string meant = did_you_mean(small, known);
  for (const auto& [word, text] : written) {
    if (word == small || word == meant) return text;
  }
  return {};
}

/// Whether two words of a layout stand in `text` with something else than a comma between them.
[[nodiscard]] inline bool has_other_separator(std::string_view text) noexcept {
  return text.find_first_of(" \t;:+|/&") != std::string_view::npos;
}

}  // namespace detail

PARX_INLINE layout layout::parse(std::string_view text, call_site) {
  layout made;
  if (text == "auto") {
    made.is_automatic = true;
    return made;
  }
  const std::string quoted = printable(text);
  require(
      !text.empty(),
      "layout \"\": it is empty, as an unset variable of a script is: give ddp, auto or another");
  require(text.back() != ',', "layout \"{}\": no word follows the last comma", quoted);
  std::set<std::string_view> seen;
  std::string_view sharded;  // the word that has set .zero
  for (const std::string_view word : detail::split_at(text, ',')) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals),
                           value = word.substr(std::min(word.size(), equals + 1));
    require(!word.empty(), "layout \"{}\": there is no word before one of its commas", quoted);
    require(!detail::has_other_separator(name),
            "layout \"{}\": there is \"{}\": words are separated by commas alone", quoted,
            printable(word));
    require(seen.insert(name).second, "layout \"{}\": \"{}\" is given twice", quoted,
            printable(name));
    const auto number = [&](int least, int most = detail::most_of_layout) {
      const auto found = detail::parse_number<int>(value);
      require(found || !detail::has_other_separator(value),
              "layout \"{}\": after {}= there is \"{}\": words are separated by commas", quoted,
              name, printable(value));
      require(found && *found >= least && *found <= most,
              "layout \"{}\": {}= needs a whole number from {} to {}, and has \"{}\"", quoted, name,
              least, most, printable(value));
      return *found;
    };
    const auto shard = [&](int stage) {
      require(sharded.empty(), "layout \"{}\": \"{}\" and \"{}\" exclude each other", quoted,
              sharded, name);
      sharded = name;
      made.zero = stage;
    };
    const bool is_flag =
        name == "ddp" || name == "fsdp" || name == "hybrid" || name == "gathered" || name == "sp";
    require(!is_flag || equals == word.size(),
            "layout \"{}\": \"{}\" takes no value: dp= gives a number", quoted, name);
    require(name != "auto", "layout \"{}\": \"auto\" chooses everything: it stands alone", quoted);
    if (name == "ddp") shard(0);
    else if (name == "zero") shard(number(0, 3));
    else if (name == "fsdp") shard(3);
    else if (name == "hybrid") shard(3), made.hybrid = true;
    else if (name == "gathered") made.gathered = true;
    else if (name == "sp") made.sp = true;
    else if (name == "pp") made.pp = number(1);
    else if (name == "dp") made.dp = number(1);
    else if (name == "tp") made.tp = number(1);
    else if (name == "microbatches") made.microbatches = number(1);
    else if (name == "replicas") made.replicas = number(1);
    else if (name == "chunks") made.chunks = number(1);
    else if (name == "schedule") made.schedule = value;
    else
      throw_usage(
          "layout \"{}\": there is no \"{}\"{} Give auto, or ddp, zero=1 to 3, fsdp or hybrid, "
          "with the last two gathered; the numbers of ranks pp=, dp= and tp=, with tp= sp; "
          "microbatches= or replicas=; and with pp= schedule= and chunks=",
          quoted, printable(name), meant_question(detail::meant_layout_word(name)));
  }
  for (const char* const of_stages : {"schedule", "chunks"}) {
    require(seen.contains("pp") || !seen.contains(of_stages),
            "layout \"{}\": {}= is for stages: give pp= as well", quoted, of_stages);
  }
  detail::require_possible_layout(made, text);
  return made;
}

PARX_INLINE std::string to_string(const layout& how) {
  if (how.is_automatic) return "auto";
  const layout plain;
  std::string text;
  const auto add = [&](bool is_said, const std::string& word) {
    if (is_said) text += (text.empty() ? "" : ",") + word;
  };
  add(how.pp != plain.pp, formatted("pp={}", how.pp));
  add(how.dp != plain.dp, formatted("dp={}", how.dp));
  add(how.tp != plain.tp, formatted("tp={}", how.tp));
  add(how.sp, "sp");
  add(how.hybrid, "hybrid");
  add(how.zero != 0 && !how.hybrid, how.zero == 3 ? "fsdp" : formatted("zero={}", how.zero));
  add(how.gathered, "gathered");
  add(how.schedule != plain.schedule, "schedule=" + how.schedule);
  add(how.microbatches != plain.microbatches, formatted("microbatches={}", how.microbatches));
  add(how.replicas != plain.replicas, formatted("replicas={}", how.replicas));
  add(how.chunks != plain.chunks, formatted("chunks={}", how.chunks));
  return text.empty() ? "ddp" : text;
}

PARX_INLINE void validate(const layout& how) {
  detail::require_possible_layout(how, to_string(how));
}

PARX_INLINE void detail::require_possible_layout(const layout& how, std::string_view written) {
  const std::string text = printable(written);
  constexpr int most = most_of_layout;
  const auto within = [](int number, int least) { return number >= least && number <= most; };
  require(within(how.pp, 1) && within(how.tp, 1) &&
              (within(how.dp, 1) || how.dp == remaining_ranks) && within(how.microbatches, 0) &&
              within(how.replicas, 0) && within(how.chunks, 1),
          "layout \"{}\": numbers of ranks and parts are from 1 to {}", text, most);
  const std::int64_t cut = std::int64_t{how.pp} * how.tp;  // at most 2^40
  const bool is_job = cut <= most && cut * std::max(how.dp, 1) <= most;
  require(is_job, "layout \"{}\": the ranks of pp= times dp= times tp= are more than {}", text,
          most);
  require(how.zero >= 0 && how.zero <= 3,
          "layout \"{}\": zero is 0 (nothing is sharded), 1 (optimizer state), 2 (and gradients) "
          "or 3 (and values)",
          text);
  require(!how.sp || how.tp > 1, "layout \"{}\": sp cuts between layers that tp= has cut", text);
  require(!how.hybrid || how.zero == 3, "layout \"{}\": hybrid shards values, as zero=3", text);
  require(!how.gathered || how.zero == 3, "layout \"{}\": gathered goes with fsdp or hybrid", text);
  require(how.pp > 1 || (how.chunks == 1 && how.schedule == layout().schedule),
          "layout \"{}\": schedule= and chunks= are for stages: give pp= of several ranks", text);
  const auto& names = pipeline_schedule_names;
  require(std::find(names.begin(), names.end(), how.schedule) != names.end(),
          "layout \"{}\": there is no pipeline schedule \"{}\"{} There are {}", text,
          printable(how.schedule),
          meant_question(did_you_mean(how.schedule, {names.begin(), names.end()})),
          joined_text(names));
  require(how.replicas == 0 || how.microbatches == 0,
          "layout \"{}\": replicas= are the micro-batches of a step: leave microbatches= out",
          text);
  require(how.replicas == 0 || !how.hybrid,
          "layout \"{}\": hybrid sums inside each host first, in an order that depends on the "
          "ranks: with replicas= take fsdp",
          text);
  require(how.replicas == 0 || how.pp == 1 || how.zero == 0 || how.dp == remaining_ranks ||
              how.replicas % how.dp == 0,
          "layout \"{}\": sharded stages take equally many micro-batches: give replicas= a "
          "multiple of the {} data-parallel ranks",
          text, how.dp);
  require(how.replicas == 0 || how.dp == remaining_ranks || how.dp <= how.replicas,
          "layout \"{}\": {} replicas cannot be dealt to {} ranks: each needs one at least", text,
          how.replicas, how.dp);
}

}  // namespace parx
