// Command lines for the programs here: cxxopts, with error messages that name the flag, the value
// given and the values allowed. Flags with a number or a choice are declared by text() and read by
// number() or choice().
#pragma once

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

// Its own parser of flags, rather than std::regex, which takes seconds to compile.
#define CXXOPTS_NO_REGEX
#include <cxxopts.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <parx/core/check.hpp>

namespace examples {

inline std::string spelled(const std::string& flag) {
  return (flag.size() == 1 ? "-" : "--") + flag;
}

/// Declares a flag that is read as text, a number or a word.
template <typename T>
std::shared_ptr<cxxopts::Value> text(const T& default_value) {
  return cxxopts::value<std::string>()->default_value(fmt::format("{}", default_value));
}

/// A flag's value as a number. Throws parx::usage_error unless it is from `least` to `most`.
template <typename T>
T number(const cxxopts::ParseResult& given, const std::string& flag, T least, T most) {
  const std::string text = given[flag].as<std::string>();
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  parx::require(
      code == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
      "{} \"{}\": give a {}number from {} to {}", spelled(flag), text,
      std::is_integral_v<T> ? "whole " : "", least, most);
  return value;
}

/// A flag's value, which must be one of `words`. Throws parx::usage_error if it is not.
inline std::string choice(const cxxopts::ParseResult& given, const std::string& flag,
                          std::initializer_list<std::string> words) {
  const std::string text = given[flag].as<std::string>();
  for (const std::string& word : words) {
    if (text == word) return text;
  }
  parx::throw_usage("{} \"{}\": give {}", spelled(flag), text, fmt::join(words, " or "));
}

/// Parses a command line that only has flags. --batch_size, as in Hugging Face's scripts, is the
/// same as --batch-size. Throws parx::usage_error for anything else.
inline cxxopts::ParseResult parse(cxxopts::Options& options, int argc, const char* const* argv) {
  std::vector<std::string> words(argv, argv + argc);
  std::vector<const char*> spelled_with_dashes;
  for (std::string& word : words) {
    if (word.starts_with("--")) {
      std::replace(word.begin(), std::find(word.begin(), word.end(), '='), '_', '-');
    }
    spelled_with_dashes.push_back(word.c_str());
  }
  try {
    auto given = options.parse(argc, spelled_with_dashes.data());
    parx::require(given.unmatched().empty(), "\"{}\" belongs to no flag. --help lists the flags",
                  fmt::join(given.unmatched(), " "));
    return given;
  } catch (const cxxopts::exceptions::exception& wrong) {
    parx::throw_usage("{}. --help lists the flags", wrong.what());
  }
}

}  // namespace examples
