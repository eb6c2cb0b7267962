#include "tools/parxrun/ssh/ssh_hosts.hpp"

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI {

namespace {

constexpr int most_slots = 4096;

[[nodiscard]] int slot_count(std::string_view text, std::string_view where) {
  const auto count = detail::parse_number<int>(text);
  require(count && *count >= 1 && *count <= most_slots,
          "{}: \"{}\" is no number of slots; write 1 to {}", where, text, most_slots);
  return *count;
}

/// "n1", "n1:4", "user@n1:4", "[fe80::1]:4"
[[nodiscard]] ssh_host read_host(std::string_view text, std::string_view where) {
  const auto at = text.find('@');
  const std::string user(at == text.npos ? "" : text.substr(0, at + 1));
  const auto read = detail::split_address(text.substr(user.size()));
  // What ssh would take for an option is no host.
  require(read.has_value() && !text.starts_with('-') && !read->host.starts_with('-') && at != 0,
          "{}: \"{}\" is no host; write its name, or the name and its ranks, as n1:4", where, text);
  ssh_host host{user + read->host};
  if (read->port) host.ranks = slot_count(std::to_string(*read->port), where);
  return host;
}

void add_host(std::vector<ssh_host>& hosts, const ssh_host& host) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const ssh_host& each) { return each.name == host.name; });
  if (same == hosts.end()) hosts.push_back(host);
  else same->ranks = same->ranks.value_or(1) + host.ranks.value_or(1);
}

}  // namespace

std::vector<ssh_host> parse_hosts(std::string_view text) {
  std::vector<ssh_host> hosts;
  for (const std::string_view each : detail::split_at(text, ',')) {
    add_host(hosts, read_host(each, "--hosts"));
  }
  return hosts;
}

std::vector<ssh_host> parse_hostfile(std::string_view text, std::string_view path) {
  std::vector<ssh_host> hosts;
  int number = 0;
  for (std::string_view line : detail::split_at(text, '\n')) {
    const std::string where = formatted("{}:{}", path, ++number);
    std::optional<ssh_host> host;
    std::string words(line.substr(0, line.find('#')));
    std::replace_if(
        words.begin(), words.end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
    for (const std::string_view word : detail::split_at(words, ' ')) {
      if (word.empty()) continue;
      const auto equals = word.find('=');
      if (!host) {
        host = read_host(word, where);
      } else if (word.starts_with("slots=")) {
        host->ranks = slot_count(word.substr(equals + 1), where);
      } else {
        // Limits and bindings of MPI's own processes.
        const std::string_view name = word.substr(0, equals);
        require(equals != word.npos && (name == "max_slots" || name == "max-slots" ||
                                        name == "binding" || name == "ifname"),
                "{}: \"{}\" is not understood; a line is a host and its ranks, as `n1 slots=4` or "
                "`n1:4`",
                where, word);
      }
    }
    if (host) add_host(hosts, *host);
  }
  require(!hosts.empty(), "{} has no hosts", path);
  return hosts;
}

}  // namespace parx
