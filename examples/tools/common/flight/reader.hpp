// reader: reads flight recorders of ranks that are running or have ended. Every number of a file is
// checked before use: a damaged file gives an error that names it, or fewer records.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/flight/directory.hpp>
#include <parx/comm/flight/layout.hpp>
#include <parx/comm/schedule/operation.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

struct flight_group_name {
  std::uint64_t id = 0;
  int size = 0;
  std::string name;
  int rank = -1;  ///< the log's rank in the group; -1: not known
};

/// What one rank has recorded.
struct flight_log {
  int rank = 0;
  int world_size = 0;
  std::uint64_t job = 0;
  std::int64_t pid = 0;
  std::int64_t made_unix_ns = 0;
  std::int64_t unix_minus_steady_ns = 0;
  std::string host;
  std::string boot_id;
  flight_ending ending = flight_ending::running;
  std::string reason;
  std::vector<flight_group_name> groups{};
  std::vector<flight_record> records{};  ///< by ticket
  std::size_t damaged = 0;             ///< slots that are not empty and hold no valid record
  bool forgot = false;                 ///< earlier operations than `records` were dropped
};

namespace detail {

template <std::size_t N>
[[nodiscard]] std::string flight_text(const std::array<char, N>& text) {
  return printable({text.data(), static_cast<std::size_t>(
                                     std::find(text.begin(), text.end(), '\0') - text.begin())});
}

[[nodiscard]] inline bool is_sound(const flight_record& each) noexcept {
  return each.call.magic == call_header::expected_magic &&
         each.call.operation < operation_names.size() && each.state <= flight_state::failed &&
         each.entered_ns >= 0 && each.finished_ns >= 0;
}

}  // namespace detail

/// The log in the bytes of a file; `name` is for errors. Throws errc::bad_data if they are not a
/// complete flight recorder of this version.
[[nodiscard]] inline flight_log parse_flight_log(std::string_view bytes, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw_error(errc::bad_data, "{} is no flight recorder that can be read: {}", name, why);
  };
  flight_header header;
  if (bytes.size() < flight_header_bytes) {
    refuse(formatted("it ends after {} bytes, in its header", bytes.size()));
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != flight_magic) refuse("it does not begin with PXFLIGHT");
  if (header.version != flight_version) {
    refuse(formatted("it has version {} of the layout, and this program reads version {}",
                     header.version, flight_version));
  }
  if (header.header_bytes != flight_header_bytes || header.record_bytes != sizeof(flight_record) ||
      header.capacity != flight_capacity) {
    refuse(formatted("its header names {} records of {} bytes after {} bytes", header.capacity,
                     header.record_bytes, header.header_bytes));
  }
  if (bytes.size() != flight_file_bytes) {
    refuse(formatted("it has {} bytes instead of {}", bytes.size(), flight_file_bytes));
  }
  if (header.world_size < 1 || header.rank < 0 || header.rank >= header.world_size ||
      header.ending > flight_ending::failed) {
    refuse(formatted("it is of rank {} of {}", header.rank, header.world_size));
  }

  flight_log log{.rank = header.rank,
                 .world_size = header.world_size,
                 .job = header.job,
                 .pid = header.pid,
                 .made_unix_ns = header.made_unix_ns,
                 .unix_minus_steady_ns = header.unix_minus_steady_ns,
                 .host = detail::flight_text(header.host),
                 .boot_id = detail::flight_text(header.boot_id),
                 .ending = header.ending,
                 .reason = detail::flight_text(header.reason)};
  const auto made = std::min<std::size_t>(header.groups_made, header.groups.size());
  for (std::size_t i = 0; i < made; ++i) {
    const flight_group& each = header.groups[i];
    log.groups.push_back({each.id, each.size, detail::flight_text(each.name), each.rank});
  }
  for (std::size_t slot = 0; slot < flight_capacity; ++slot) {
    flight_record each;
    std::memcpy(&each, bytes.data() + flight_header_bytes + slot * sizeof each, sizeof each);
    if (each.ticket == 0) continue;
    if ((each.ticket - 1) % flight_capacity == slot && detail::is_sound(each)) {
      log.records.push_back(each);
    } else {
      ++log.damaged;
    }
  }
  std::ranges::sort(log.records, {}, &flight_record::ticket);
  log.forgot = !log.records.empty() && log.records.front().ticket > 1;
  return log;
}

namespace detail {

/// Reads the file `name` of an open directory; `path` is for errors. Throws errc::io if the file
/// cannot be read, else as parse_flight_log.
[[nodiscard]] inline flight_log read_flight_log(const descriptor& folder, const std::string& name,
                                                const std::string& path) {
  const descriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (file.valid() && ::fstat(file.get(), &found) == 0 &&
      found.st_size > std::int64_t{flight_file_bytes}) {
    throw_error(errc::bad_data,
                "{} is no flight recorder that can be read: it has {} bytes instead of {}", path,
                found.st_size, flight_file_bytes);
  }
  const auto bytes = file.valid() ? text_of_file(file) : std::nullopt;
  if (!bytes) throw_error(errc::io, "cannot read {}: {}", path, errno_text(errno));
  return parse_flight_log(*bytes, path);
}

}  // namespace detail

/// The logs of the job that started last, by rank, and a sentence about each file left out.
struct flight_logs {
  std::vector<flight_log> ranks;
  std::vector<std::string> left_out;
};

/// Throws errc::io if the open directory has no flight recorder; `directory` is its name.
[[nodiscard]] inline flight_logs read_flight_logs(const descriptor& folder,
                                                  const std::string& directory) {
  flight_logs found;
  for (const std::string& name : flight_file_names(folder)) {
    try {
      found.ranks.push_back(detail::read_flight_log(folder, name, directory + "/" + name));
    } catch (const error& damaged) {
      found.left_out.push_back(damaged.message());
    }
  }
  if (found.ranks.empty() && found.left_out.empty()) {
    throw_error(errc::io, "there is no flight recorder (rank_0{}, ...) in {}", flight_suffix,
                directory);
  }
  const auto newest = std::ranges::max_element(found.ranks, {}, &flight_log::made_unix_ns);
  const std::uint64_t job = newest != found.ranks.end() ? newest->job : 0;
  std::erase_if(found.ranks, [&](const flight_log& each) {
    if (each.job == job) return false;
    found.left_out.push_back(formatted("the file of rank {} is from another start of a job",
                                         each.rank));
    return true;
  });
  std::ranges::sort(found.ranks, {}, &flight_log::rank);
  return found;
}
/// The same for a directory of any user, also by a symbolic link.
[[nodiscard]] inline flight_logs read_flight_logs(const std::string& directory) {
  const descriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return read_flight_logs(folder, directory);
}

}  // namespace parx
