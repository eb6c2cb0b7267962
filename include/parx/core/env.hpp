// Typed access to environment variables.
//
// An `environment` is a plain map, so that everything which reads variables is a pure function that
// tests can call with a table. `process_environment()` copies the real one, including the variables
// that `hide_variable()` has removed.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <parx/core/error.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

using environment = std::map<std::string, std::string, std::less<>>;

namespace detail {

struct hidden_variables {
  std::mutex mutex;
  environment values;

  static hidden_variables& instance() {
    static hidden_variables all;
    return all;
  }
};

}  // namespace detail

[[nodiscard, gnu::cold]] inline environment process_environment() {
  auto& hidden = detail::hidden_variables::instance();
  const std::lock_guard lock(hidden.mutex);
  environment result;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  result.insert(hidden.values.begin(), hidden.values.end());
  return result;
}

/// Removes a variable from the environment that child processes inherit. No other thread may read
/// the environment at the same time.
[[gnu::cold]] inline void hide_variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return;
  auto& hidden = detail::hidden_variables::instance();
  const std::lock_guard lock(hidden.mutex);
  hidden.values.insert_or_assign(name, value);
  ::unsetenv(name);
}

/// The value of `name`, or nullopt where it is unset or empty.
[[nodiscard]] inline std::optional<std::string> env_string(const environment& env,
                                                           std::string_view name) {
  const auto found = env.find(name);
  if (found == env.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

/// The value of `name` as a number, or nullopt where it is unset or empty. Throws usage_error where
/// the text is not a number that fits into T. The message says what it should be: `wanted`, such as
/// "a port from 1 to 65535", or else T's range. A narrower range is for the caller to check.
template <typename T>
  requires std::is_arithmetic_v<T>
[[nodiscard]] std::optional<T> env_number(const environment& env, std::string_view name,
                                          std::string_view wanted = {}) {
  const auto text = env_string(env, name);
  if (!text) return std::nullopt;
  if (const auto value = detail::parse_number<T>(*text)) return value;
  if (!wanted.empty()) {
    throw_usage("environment variable {}=\"{}\" is not {}", name, printable(*text), wanted);
  } else if constexpr (std::is_integral_v<T>) {
    throw_usage("environment variable {}=\"{}\" is not a whole number from {} to {}", name,
                printable(*text), std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  } else {
    throw_usage("environment variable {}=\"{}\" is not a decimal number", name, printable(*text));
  }
}

/// The value of `name` as a switch: 1/true/yes/on or 0/false/no/off. Throws usage_error on others.
[[nodiscard]] inline std::optional<bool> env_flag(const environment& env, std::string_view name) {
  const auto text = env_string(env, name);
  if (!text) return std::nullopt;
  if (*text == "1" || *text == "true" || *text == "yes" || *text == "on") return true;
  if (*text == "0" || *text == "false" || *text == "no" || *text == "off") return false;
  throw_usage("environment variable {}=\"{}\" is neither 1/true/yes/on nor 0/false/no/off", name,
              printable(*text));
}

}  // namespace parx
