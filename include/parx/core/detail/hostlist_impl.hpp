// Definitions of hostlist.hpp.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hostlist.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// One pass over a host list. Every error names the list and the position, counted from 1.
class hostlist_parser {
 public:
  explicit hostlist_parser(std::string_view text) : text_(text) {}

  [[nodiscard]] std::vector<std::string> parse() {
    std::vector<std::string> hosts;
    if (text_.empty()) return hosts;
    do {
      add(hosts, read_name(hosts.size()));
    } while (accept(','));
    return hosts;
  }

 private:
  static constexpr std::size_t most_hosts = 200'000;  // Fugaku has 158 976 nodes
  static constexpr std::size_t longest_name = 253;  // RFC 1035, as text
  static constexpr int most_brackets = 8;           // of a name; each copies all its hosts

  /// Everything up to a comma outside brackets or the end: one host, or many that share a pattern.
  [[gnu::cold]] std::vector<std::string> read_name(std::size_t hosts_before) {
    const std::size_t start = at_;
    std::vector<std::string> names{""};
    int brackets = 0;
    while (at_ < text_.size() && text_[at_] != ',') {
      if (accept('[')) {
        if (++brackets > most_brackets) fail(at_ - 1, "a host name has over 8 brackets");
        names = product(names, read_numbers(), most_hosts - hosts_before);
      } else {
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '[') check_plain(at_++);
        for (std::string& name : names) name += text_.substr(begin, at_ - begin);
      }
      if (names.front().size() > longest_name) fail(start, "a host name has over 253 characters");
    }
    if (at_ == start) fail(start, "a host name is missing");
    return names;
  }

  /// "01-03,7]" after its opening bracket, as texts.
  [[gnu::cold]] std::vector<std::string> read_numbers() {
    const std::size_t bracket = at_ - 1;
    std::vector<std::string> numbers;
    do {
      const std::size_t begin = at_;
      const auto [first, width] = read_number();
      const std::uint64_t last = accept('-') ? read_number().first : first;
      if (last < first) fail(begin, "the range runs backwards");
      if (last - first >= most_hosts - numbers.size())
        fail(begin, "the list has over 200000 hosts");
      for (std::uint64_t number = first; number <= last; ++number) {
        numbers.push_back(formatted("{:0{}}", number, width));
      }
    } while (accept(','));
    if (!accept(']')) fail(bracket, "the bracket is not closed");
    return numbers;
  }

  /// A number and how many digits it was written with.
  std::pair<std::uint64_t, std::size_t> read_number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) fail(begin, "a number is missing");
    // Eighteen digits are less than 2^63, so that ranges cannot overflow.
    if (at_ - begin > 18) fail(begin, "the number has over 18 digits");
    std::uint64_t number = 0;
    std::from_chars(text_.data() + begin, text_.data() + at_, number);
    return {number, at_ - begin};
  }

  std::vector<std::string> product(const std::vector<std::string>& names,
                                   const std::vector<std::string>& numbers, std::size_t most) {
    if (names.size() > most / numbers.size()) fail(at_ - 1, "the list has over 200000 hosts");
    std::vector<std::string> result;
    result.reserve(names.size() * numbers.size());
    for (const std::string& name : names) {
      for (const std::string& number : numbers) result.push_back(name + number);
    }
    return result;
  }

  void add(std::vector<std::string>& hosts, std::vector<std::string> more) {
    if (hosts.size() + more.size() > most_hosts) fail(at_ - 1, "the list has over 200000 hosts");
    for (std::string& each : more) hosts.push_back(std::move(each));
  }

  void check_plain(std::size_t position) const {
    const char c = text_[position];
    if (c == ']') fail(position, "this bracket was never opened");
    if (c <= ' ' || c == '\x7f') fail(position, "a host name has no blanks or control characters");
  }

  bool accept(char wanted) {
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  [[noreturn]] void fail(std::size_t position, std::string_view why) const {
    throw_usage("host list \"{}\": {} (at character {})",
                text_.size() <= 200 ? text_ : text_.substr(0, 200), why, position + 1);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail

PARX_INLINE std::vector<std::string> expand_hostlist(std::string_view text) {
  return detail::hostlist_parser(text).parse();
}

}  // namespace parx
