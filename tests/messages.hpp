// What tests ask of messages: what a call throws, what is logged, and whether a text mentions this
// and that.
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/core/error.hpp>
#include <parx/core/log.hpp>

namespace parx_test {

template <typename... Parts>
[[nodiscard]] bool mentions(std::string_view text, const Parts&... parts) {
  return ((text.find(parts) != std::string_view::npos) && ...);
}

/// The message of the exception that `call` throws, behind "usage: " for a usage_error.
template <typename Call>
[[nodiscard]] std::string message_of(Call&& call) {
  try {
    call();
  } catch (const parx::usage_error& failure) {
    return std::string("usage: ") + failure.what();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

/// What each rank threw contains `wanted`; nothing was thrown where that is "".
inline void expect_failures(const std::vector<std::string>& failures, std::string_view wanted) {
  for (const std::string& each : failures) {
    const bool is_so = wanted.empty() ? each.empty() : mentions(each, wanted);
    BOOST_TEST(is_so, "\"" << each << "\" does not say \"" << wanted << "\"");
  }
}

/// Runs `call`, which must throw parx::error of this code, with all `parts` in its message.
template <typename Call>
void expect_error(parx::errc code, std::initializer_list<std::string_view> parts, Call&& call) {
  try {
    call();
    BOOST_ERROR("no error was thrown");
  } catch (const parx::error& failure) {
    BOOST_TEST((failure.code_value() == code), failure.what());
    for (const auto part : parts) {
      BOOST_TEST(mentions(failure.what(), part),
                 "\"" << failure.what() << "\" does not mention \"" << part << "\"");
    }
  }
}

/// What is logged while it lives, a line each. Nothing of it is printed.
class captured_log {
 public:
  captured_log() {
    parx::logger::instance().set_sink(
        [this](parx::log_level, std::string_view line) { lines_.emplace_back(line); });
  }
  ~captured_log() { parx::logger::instance().set_sink(nullptr); }
  captured_log(const captured_log&) = delete;
  captured_log& operator=(const captured_log&) = delete;

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& line : lines_) all += line;
    return all;
  }
  void clear() { lines_.clear(); }

 private:
  std::vector<std::string> lines_;
};

}  // namespace parx_test
