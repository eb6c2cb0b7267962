// peer_record: how to reach a rank, published in the job's store. And where all ranks are placed.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::detail {

struct peer_record {
  std::string host;     ///< host name, for messages only
  std::string boot_id;  ///< identifies the host: names and addresses may repeat
  std::string address;  ///< numeric
  /// Its network namespace, in which abstract socket names are valid, and PARX_HOST_ID, which makes
  /// ranks of one machine count as ranks of different hosts.
  std::string network;
  std::string memory;  ///< the abstract socket that accepts shared memory; empty where none does
  std::uint16_t port = 0;
  int pid = 0;
  std::uint64_t probe = 0;     ///< address of its token, to test whether its memory can be read
  std::string challenge = {};  ///< signed together with each hello to it
  int streams = 1;  ///< TCP connections that it wants per link; the smaller of two wishes holds
  // The network that it uses between hosts in place of TCP, see network.hpp; empty where it uses
  // none.
  std::string network_name = {};     ///< and its version: "ucx 1.13.1"
  std::string network_address = {};

  /// Whether the two ranks can use the network that both have named.
  [[nodiscard]] bool shares_network_with(const peer_record& other) const noexcept {
    const auto name = [](const peer_record& of) {
      return std::string_view(of.network_name).substr(0, of.network_name.find(' '));
    };
    return !network_address.empty() && !other.network_address.empty() && name(*this) == name(other);
  }
  [[nodiscard]] bool is_known() const noexcept { return pid != 0; }
  [[nodiscard]] std::string to_text() const {
    return formatted("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", host, boot_id, address,
                     network, memory, port, pid, probe, streams, challenge, network_name,
                     network_address);
  }
  static constexpr std::size_t line_count = 12;  ///< of to_text()
  /// Throws errc::protocol for text that does not begin as one from to_text().
  [[nodiscard, gnu::cold]] static peer_record from_text(std::string_view text) {
    std::array<std::string_view, line_count> lines;
    for (std::string_view& line : lines) {
      const auto end = text.find('\n');
      if (end == std::string_view::npos) {
        throw_error(errc::protocol, "a rank's record in the store is cut short");
      }
      line = text.substr(0, end);
      text.remove_prefix(end + 1);
    }
    peer_record record{printable(lines[0]), std::string(lines[1]), printable(lines[2]),
                       std::string(lines[3]), std::string(lines[4])};
    const auto number = [](std::string_view from, auto& to) {
      return std::from_chars(from.data(), from.data() + from.size(), to).ec == std::errc{};
    };
    if (!number(lines[5], record.port) || !number(lines[6], record.pid) ||
        !number(lines[7], record.probe) || !number(lines[8], record.streams) ||
        record.streams < 1) {
      throw_error(errc::protocol, "a rank's record in the store has an invalid number");
    }
    record.challenge = lines[9];
    record.network_name = printable(lines[10]);
    record.network_address = lines[11];
    return record;
  }
};

/// Of records one behind the other.
[[nodiscard, gnu::cold]] inline std::vector<peer_record> records_from_text(std::string_view text) {
  std::vector<peer_record> records;
  while (!text.empty()) {
    records.push_back(peer_record::from_text(text));
    for (std::size_t line = 0; line < peer_record::line_count; ++line) {
      text.remove_prefix(text.find('\n') + 1);
    }
  }
  return records;
}

/// Where a rank is. Decides which algorithms and which kinds of links are used.
struct placement {
  int host = 0;         ///< numbered in the order of the hosts' first ranks
  bool memory = false;  ///< it shares memory with ranks of its host that do, too

  [[nodiscard]] bool shares_memory_with(const placement& other) const noexcept {
    return host == other.host && memory && other.memory;
  }
};

[[nodiscard, gnu::cold]] inline std::vector<placement> place_ranks(
    const std::vector<peer_record>& records) {
  std::vector<placement> places;
  std::vector<std::string> hosts;
  for (const peer_record& each : records) {
    const std::string host = each.boot_id + '\n' + each.network;
    const auto found = std::find(hosts.begin(), hosts.end(), host);
    const auto number = static_cast<int>(found - hosts.begin());
    if (found == hosts.end()) hosts.push_back(host);
    const bool memory = !each.memory.empty() && !each.boot_id.empty() && !each.network.empty();
    places.push_back({number, memory});
  }
  return places;
}

/// "0m 0m 1 ...": each rank's host, with an m where it shares memory.
[[nodiscard, gnu::cold]] inline std::string to_text(const std::vector<placement>& places) {
  std::string text;
  for (const placement& each : places) {
    text += formatted("{}{} ", each.host, each.memory ? "m" : "");
  }
  return text;
}
[[nodiscard, gnu::cold]] inline std::vector<placement> placements_from_text(std::string_view text) {
  std::vector<placement> places;
  while (!text.empty()) {
    placement next;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), next.host);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    next.memory = text.starts_with('m');
    const auto gap = text.find(' ');
    if (code != std::errc{} || gap > 1) {
      throw_error(errc::protocol, "the table of hosts in the store is damaged");
    }
    text.remove_prefix(gap + 1);
    places.push_back(next);
  }
  return places;
}

/// The first line of a file of /proc; empty where it cannot be read.
[[nodiscard, gnu::cold]] inline std::string read_line(const char* path) {
  std::string line = file_text(path).value_or("");
  line.resize(std::min(line.find('\n'), line.size()));
  return line;
}

/// The target of a symbolic link of /proc; empty where it cannot be read.
[[nodiscard]] inline std::string read_link(const char* path) {
  char text[4096];  // PATH_MAX
  const auto length = ::readlink(path, text, sizeof text);
  return {text, length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace parx::detail
