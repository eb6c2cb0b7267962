// rules: a site's or a user's choice of algorithms, which overrides the choice by price.
//
// PARX_ALGO is a list, "all_reduce:ring,broadcast:tree". A rules file has one rule a line,
//
//   # operation   min_bytes max_bytes  min_ranks max_ranks  algorithm
//   all_reduce    0         64K        2         16         doubling
//   all_reduce    64K       *          2         *          ring
//
// where sizes are of the whole vector, limits are inclusive, * is no limit and K, M, G are 1024,
// 1024^2, 1024^3. The first rule that matches and whose algorithm can do the call decides;
// "automatic" means choice by price. Every rank must have the same rules. Pure functions: no file,
// no environment.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/schedule/catalog.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI {

struct algorithm_rule {
  operation what = operation::barrier;
  std::size_t min_bytes = 0;
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();
  std::size_t min_ranks = 0;
  std::size_t max_ranks = std::numeric_limits<std::size_t>::max();
  algorithm use = algorithm::automatic;
  std::string source;  ///< "PARX_ALGO:1" or "rules.txt:7", for explain
};

namespace detail {

/// A word of the rules and its position.
struct rule_word {
  std::string_view text;
  std::string_view source;
  std::size_t line = 1;
  std::size_t column = 1;

  template <typename... Args>
  [[noreturn]] void refuse(counted_text<sizeof...(Args)> why, const Args&... args) const {
    throw_usage("{}:{}:{}: {}", source, line, column, formatted(why, args...));
  }
};

[[nodiscard, gnu::cold]] inline operation parse_operation(const rule_word& word) {
  std::string names;
  for (std::size_t i = 0; i < operation_names.size(); ++i) {
    const auto what = static_cast<operation>(i);
    if (what == operation::send || what == operation::recv) continue;
    if (word.text == operation_names[i]) return what;
    names += formatted("{}{}", names.empty() ? "" : ", ", operation_names[i]);
  }
  word.refuse("\"{}\" is no collective operation; they are: {}", word.text, names);
}

[[nodiscard, gnu::cold]] inline algorithm parse_algorithm(operation what, const rule_word& word) {
  if (word.text == name_of(algorithm::automatic)) return algorithm::automatic;
  std::string names{name_of(algorithm::automatic)};
  for (const algorithm_of_operation& each : algorithms_of_operations) {
    if (each.what != what) continue;
    if (word.text == name_of(each.name)) return each.name;
    names += formatted(", {}", name_of(each.name));
  }
  word.refuse("\"{}\" is no algorithm of {}; it has: {}", word.text, name_of(what), names);
}

/// A number, optionally with K, M or G; * gives `unlimited`.
[[nodiscard, gnu::cold]] inline std::size_t parse_limit(const rule_word& word,
                                                        std::size_t unlimited) {
  if (word.text == "*") return unlimited;
  std::size_t value = 0;
  const char* end = word.text.data() + word.text.size();
  const auto [rest, failure] = std::from_chars(word.text.data(), end, value);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (failure != std::errc() || shift < 0 ||
      value > std::numeric_limits<std::size_t>::max() >> std::max(shift, 0)) {
    word.refuse("\"{}\" is no size; write a number, perhaps with K, M or G, or * for no limit",
                word.text);
  }
  return value << shift;
}

/// The words of one line, up to a comment.
[[nodiscard, gnu::cold]] inline std::vector<rule_word> split_words(std::string_view line,
                                                                   std::string_view source,
                                                                   std::size_t number) {
  static constexpr std::string_view blanks = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<rule_word> words;
  for (std::size_t at = line.find_first_not_of(blanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
    words.push_back({line.substr(at, end - at), source, number, at + 1});
    at = line.find_first_not_of(blanks, end);
  }
  return words;
}

}  // namespace detail

/// The value of PARX_ALGO: "operation:algorithm", separated by commas; an empty text has no rules.
/// Throws usage_error with the position, as `source`:1:column, and the valid names.
[[nodiscard, gnu::cold]] inline std::vector<algorithm_rule> parse_algorithm_list(
    std::string_view text, std::string_view source = "PARX_ALGO") {
  std::vector<algorithm_rule> rules;
  for (const std::string_view item : detail::split_at(text, ',')) {
    const auto at = static_cast<std::size_t>(item.data() - text.data());
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      detail::rule_word{item, source, 1, at + 1}.refuse(
          "\"{}\" is not of the form operation:algorithm", item);
    }
    algorithm_rule rule;
    rule.what = detail::parse_operation({item.substr(0, colon), source, 1, at + 1});
    rule.use = detail::parse_algorithm(rule.what,
                                       {item.substr(colon + 1), source, 1, at + colon + 2});
    rule.source = formatted("{}:1", source);
    rules.push_back(std::move(rule));
  }
  return rules;
}

/// The text of a rules file; `source` is its name. Throws usage_error with line, column and, for an
/// unknown name, the valid ones.
[[nodiscard, gnu::cold]] inline std::vector<algorithm_rule> parse_algorithm_rules(
    std::string_view text, std::string_view source) {
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  std::vector<algorithm_rule> rules;
  std::size_t number = 0;
  for (const std::string_view line : detail::split_at(text, '\n')) {
    const auto words = detail::split_words(line, source, ++number);
    if (words.empty()) continue;
    if (words.size() != 6) {
      words[std::min<std::size_t>(words.size() - 1, 6)].refuse(
          "a rule has 6 words (operation, min_bytes, max_bytes, min_ranks, max_ranks, algorithm), "
          "not {}",
          words.size());
    }
    algorithm_rule rule;
    rule.what = detail::parse_operation(words[0]);
    rule.min_bytes = detail::parse_limit(words[1], 0);
    rule.max_bytes = detail::parse_limit(words[2], unlimited);
    rule.min_ranks = detail::parse_limit(words[3], 0);
    rule.max_ranks = detail::parse_limit(words[4], unlimited);
    if (rule.min_bytes > rule.max_bytes) words[2].refuse("max_bytes is below min_bytes");
    if (rule.min_ranks > rule.max_ranks) words[4].refuse("max_ranks is below min_ranks");
    rule.use = detail::parse_algorithm(rule.what, words[5]);
    rule.source = formatted("{}:{}", source, number);
    rules.push_back(std::move(rule));
  }
  return rules;
}

/// The rule that decides this call, or null.
[[nodiscard]] inline const algorithm_rule* find_rule(const call_shape& shape,
                                                     const std::vector<algorithm_rule>& rules,
                                                     algorithm_list among = catalog()) {
  const auto bytes = static_cast<std::size_t>(shape.bytes());
  const auto ranks = static_cast<std::size_t>(shape.world);
  for (const algorithm_rule& each : rules) {
    if (each.what != shape.what || bytes < each.min_bytes || bytes > each.max_bytes ||
        ranks < each.min_ranks || ranks > each.max_ranks) {
      continue;
    }
    if (each.use == algorithm::automatic ||
        can_do(*find_algorithm(each.what, each.use, among), shape)) {
      return &each;
    }
  }
  return nullptr;
}

/// By the first rule that matches, else by price.
[[nodiscard]] inline algorithm choose(const call_shape& shape, const link_costs& costs,
                                      const std::vector<algorithm_rule>& rules,
                                      algorithm_list among = catalog()) {
  const algorithm_rule* rule = find_rule(shape, rules, among);
  return rule != nullptr && rule->use != algorithm::automatic ? rule->use
                                                              : choose(shape, costs, among);
}

}  // namespace parx
