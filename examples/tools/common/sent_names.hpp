// sent_names: the names in a node's /tmp of what parx_slurm sends to it, by which parx_doctor finds
// what an earlier job has left. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::slurm {

enum class path_kind {
  file,
  folder,  ///< sent as one archive, which is unpacked on the nodes
};

/// A file or folder of this host, and its copy on each node.
struct staged_path {
  std::string from;  ///< absolute
  std::string to;    ///< absolute, in the nodes' own /tmp
  path_kind kind = path_kind::file;
};

/// The place of a copy. The job's number and the hash of its contents are in its name, so that
/// neither another job nor an earlier version is taken for it.
[[nodiscard]] inline staged_path stage_at(const std::string& job, const std::string& from,
                                          std::string_view hash, path_kind kind) {
  const std::string name = from.substr(from.rfind('/') + 1);
  return {from, formatted("/tmp/parx-{}-{}-{}", job, hash.substr(0, 8), name), kind};
}

/// Where a program of parx that is sent along lies on the nodes.
[[nodiscard]] inline std::string helper_path(std::string_view program, const std::string& job) {
  return formatted("/tmp/{}.{}", program, job);
}

/// The job for which something was sent to a node, by its name in /tmp: that of helper_path(),
/// stage_at() or archive_of(). nullopt for all other names.
[[nodiscard]] inline std::optional<std::int64_t> job_of_sent(std::string_view name) {
  constexpr std::string_view digits = "0123456789";
  for (const std::string_view before : {"parxrun.", "parx_doctor.", "parx-"}) {
    if (!name.starts_with(before)) continue;
    name.remove_prefix(before.size());
    const std::string_view number = name.substr(0, name.find_first_not_of(digits));
    name.remove_prefix(number.size());
    const bool is_copy = before == "parx-";
    const bool fits = is_copy ? name.size() > 10 && name[0] == '-' && name[9] == '-' &&
                                    name.find_first_not_of("0123456789abcdef", 1) == 9
                              : name.empty();
    return fits ? parx::detail::parse_number<std::int64_t>(number) : std::nullopt;
  }
  return std::nullopt;
}

/// The archive of a folder on the nodes, beside its copy.
[[nodiscard]] inline std::string archive_of(const staged_path& path) { return path.to + ".tar"; }

/// The same on this host, until it is sent.
[[nodiscard]] inline std::string sent_archive_of(const staged_path& path) {
  return archive_of(path) + ".sent";
}

}  // namespace parx::slurm
