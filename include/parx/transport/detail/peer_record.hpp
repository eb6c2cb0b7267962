// peer_record: what a rank tells the others about itself through the store.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::detail {

struct peer_record {
  std::string host;     ///< for people
  std::string boot_id;  ///< tells hosts apart: names and addresses may repeat
  std::string address;  ///< numeric
  std::uint16_t port = 0;
  int pid = 0;

  [[nodiscard]] std::string to_text() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n", host, boot_id, address, port, pid);
  }
  /// Throws errc::protocol for anything that to_text() did not write.
  [[nodiscard]] static peer_record from_text(std::string_view text) {
    std::array<std::string, 5> lines;
    for (std::string& line : lines) {
      const auto end = text.find('\n');
      if (end == std::string_view::npos) throw_error(errc::protocol, "a rank's record in the store is cut short");
      line = text.substr(0, end);
      text.remove_prefix(end + 1);
    }
    peer_record record{lines[0], lines[1], lines[2]};
    const auto number = [](const std::string& from, auto& to) {
      return std::from_chars(from.data(), from.data() + from.size(), to).ec == std::errc{};
    };
    if (!number(lines[3], record.port) || !number(lines[4], record.pid)) {
      throw_error(errc::protocol, "a rank's record in the store has a number that is none");
    }
    return record;
  }
};

/// One line of a file of /proc, or nothing.
[[nodiscard]] inline std::string read_line(const char* path) {
  const descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[256];
  const auto got = file.valid() ? ::read(file.get(), text, sizeof text) : 0;
  std::string line(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  line.resize(std::min(line.find('\n'), line.size()));
  return line;
}

[[nodiscard]] inline std::string host_name() {
  char text[256] = "";
  if (::gethostname(text, sizeof text - 1) != 0) return "unknown-host";
  return text;
}

}  // namespace parx::detail
