// A strict JSON reader (RFC 8259) for tests: the whole text is one value or it throws. Independent
// of the code that writes traces. Bytes from 0x80 on are taken as they are.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace json {

struct value {
  double number = 0;
  std::string text = {};  ///< of a string; "true", "false" or "null" of those
  std::vector<value> array = {};
  std::map<std::string, value> object = {};

  const value& operator[](const std::string& key) const {
    static const value missing;
    const auto found = object.find(key);
    return found == object.end() ? missing : found->second;
  }
};

class reader {
 public:
  explicit reader(std::string_view text) : rest_(text) {}

  value whole() {
    value result = any();
    if (!rest_.empty()) fail("text after the value");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("not JSON: " + why + " at: " + std::string(rest_.substr(0, 60)));
  }
  void skip_space() {
    const auto next = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(next == std::string_view::npos ? rest_.size() : next);
  }
  bool accept(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected " + std::string(token));
  }

  value any() {
    skip_space();
    value result;
    if (accept("{")) {
      for (bool first = true; skip_space(), !accept("}"); first = false) {
        if (!first) expect(",");
        skip_space();
        const std::string key = string();
        skip_space();
        expect(":");
        if (!result.object.emplace(key, any()).second) fail("the key " + key + " occurs twice");
      }
    } else if (accept("[")) {
      for (bool first = true; skip_space(), !accept("]"); first = false) {
        if (!first) expect(",");
        result.array.push_back(any());
      }
    } else if (rest_.starts_with('"')) {
      result.text = string();
    } else if (accept("true")) {
      result.text = "true";
    } else if (accept("false")) {
      result.text = "false";
    } else if (accept("null")) {
      result.text = "null";
    } else {
      result.number = number();
    }
    skip_space();
    return result;
  }

  void digits() {
    const auto end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    if (end == 0) fail("expected a digit");
    rest_.remove_prefix(end);
  }
  double number() {
    const std::string_view all = rest_;
    accept("-");
    if (!accept("0")) digits();
    if (accept(".")) digits();
    if (accept("e") || accept("E")) {
      if (!accept("+")) accept("-");
      digits();
    }
    return std::strtod(std::string(all.substr(0, all.size() - rest_.size())).c_str(), nullptr);
  }

  std::string string() {
    expect("\"");
    std::string result;
    while (!accept("\"")) {
      if (rest_.empty()) fail("a string without an end");
      const char c = rest_.front();
      if (static_cast<unsigned char>(c) < 0x20) fail("a bare control character");
      rest_.remove_prefix(1);
      if (c != '\\') {
        result += c;
      } else if (accept("u")) {
        if (std::min(rest_.find_first_not_of("0123456789abcdefABCDEF"), rest_.size()) < 4) {
          fail("expected four hexadecimal digits");
        }
        append_utf8(result, std::strtoul(std::string(rest_.substr(0, 4)).c_str(), nullptr, 16));
        rest_.remove_prefix(4);
      } else {
        static constexpr std::string_view names = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        const auto at = names.find(rest_.empty() ? '?' : rest_.front());
        if (at == std::string_view::npos) fail("an unknown escape");
        result += meant[at];
        rest_.remove_prefix(1);
      }
    }
    return result;
  }
  static void append_utf8(std::string& out, unsigned long code) {
    const auto put = [&](unsigned long byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | (code >> 6));
      put(0x80 | (code & 0x3F));
    } else {
      put(0xE0 | (code >> 12));
      put(0x80 | ((code >> 6) & 0x3F));
      put(0x80 | (code & 0x3F));
    }
  }

  std::string_view rest_;
};

inline value parse(std::string_view text) { return reader(text).whole(); }

}  // namespace json
