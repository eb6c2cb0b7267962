// Command lines for the programs here: cxxopts, with error messages that name the flag, the value
// given and the values allowed. Flags with a number or a choice are declared by text() and read by
// number() or choice().
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

// Its own parser of flags, rather than std::regex, which takes seconds to compile.
#define CXXOPTS_NO_REGEX
#include <cxxopts.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <parx/core/check.hpp>
#include <parx/core/did_you_mean.hpp>
#include <parx/core/error.hpp>

namespace examples {

/// What main() of a program without ranks returns: what body() does; 2 after a usage_error, 1 after
/// any other exception, which are printed behind the program's name. (parx::run does it for ranks.)
template <typename Body>
int exit_code(const char* program, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const parx::usage_error& wrong) {
    std::fprintf(stderr, "%s: %s\n", program, wrong.what());
    return 2;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: %s\n", program, failure.what());
    return 1;
  }
}

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

/// The values of a flag that may be given several times; none where it was not.
inline std::vector<std::string> list(const cxxopts::ParseResult& given, const std::string& flag) {
  return given.count(flag) == 0 ? std::vector<std::string>()
                                : given[flag].as<std::vector<std::string>>();
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

namespace detail {

// The names of a flag: cxxopts 3.0 has one, 3.1 a list.
inline void add_names(std::vector<std::string>& known, const std::string& name) {
  if (!name.empty()) known.push_back(name);
}
inline void add_names(std::vector<std::string>& known, const std::vector<std::string>& names) {
  for (const std::string& name : names) add_names(known, name);
}

/// All flags, without their dashes.
inline std::vector<std::string> known_flags(const cxxopts::Options& options) {
  std::vector<std::string> known;
  for (const std::string& group : options.groups()) {
    for (const auto& flag : options.group_help(group).options) {
      add_names(known, flag.l);
      add_names(known, flag.s);
    }
  }
  return known;
}

/// Names the first word that is none of the `known` flags, and the flag that it may have been
/// meant to be. -epochs is taken for --epochs with a dash too few.
[[noreturn]] inline void throw_unknown_flag(const std::vector<std::string>& words,
                                            const std::vector<std::string>& known) {
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-' || word == "--") continue;
    const bool is_long = word[1] == '-';
    const std::string flag = word.substr(0, word.find('='));
    const std::string name = flag.substr(is_long ? 2 : 1);
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (is_known && is_long == (name.size() > 1)) continue;
    if (!is_long && std::find(known.begin(), known.end(), name.substr(0, 1)) != known.end() &&
        !is_known) {
      continue;  // -n4
    }
    const std::string meant = is_known ? name : parx::did_you_mean(name, known);
    parx::throw_usage("there is no flag {}{} --help lists the flags", flag,
                      parx::meant_question(meant.empty() ? meant : spelled(meant)));
  }
  parx::throw_usage("a flag is none of this program's. --help lists the flags");
}

}  // namespace detail

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
  } catch (const cxxopts::exceptions::no_such_option&) {
    detail::throw_unknown_flag(words, detail::known_flags(options));
  } catch (const cxxopts::exceptions::invalid_option_syntax&) {  // -epochs=3
    detail::throw_unknown_flag(words, detail::known_flags(options));
  } catch (const cxxopts::exceptions::exception& wrong) {
    parx::throw_usage("{}. --help lists the flags", wrong.what());
  }
}

}  // namespace examples
