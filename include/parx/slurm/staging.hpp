// staging: copying to the nodes of a job what they do not see, and where it lies there. Pure: the
// commands, and a program's arguments with the copies' paths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/slurm/container.hpp>
#include <parx/slurm/salloc.hpp>

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
[[nodiscard]] inline std::string sent_along(std::string_view program, const std::string& job) {
  return formatted("/tmp/{}.{}", program, job);
}

/// The job for which something was sent to a node, by its name in /tmp: that of sent_along(),
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

/// `words` with each path that is, or is below, a staged one replaced by that of the copy; also
/// behind an equals sign: --data=/home/u/news. `folder`: where relative paths begin.
[[nodiscard]] inline std::vector<std::string> with_copies(std::vector<std::string> words,
                                                          const std::vector<staged_path>& staged,
                                                          const std::filesystem::path& folder) {
  for (std::string& word : words) {
    for (const std::size_t begin : {std::size_t{0}, word.find('=') + 1}) {
      if (begin == word.size() || (begin == 0 && word[0] == '-')) continue;  // a flag is no path
      const std::string path = (folder / word.substr(begin)).lexically_normal();
      const auto found = std::find_if(staged.begin(), staged.end(),
                                      [&](const auto& each) { return is_below(path, each.from); });
      if (found == staged.end()) continue;
      word = word.substr(0, begin) + found->to + path.substr(found->from.size());
      break;
    }
  }
  return words;
}

/// The archive of a folder on the nodes, beside its copy.
[[nodiscard]] inline std::string archive_of(const staged_path& path) { return path.to + ".tar"; }

/// The same on this host, until it is sent.
[[nodiscard]] inline std::string sent_archive_of(const staged_path& path) {
  return archive_of(path) + ".sent";
}

/// The beginning of an srun line for a step of `tasks` tasks on each of `nodes` nodes of a job.
/// `job`: its number; empty: the job in which the line is typed.
[[nodiscard]] inline std::vector<std::string> srun_step(const std::string& job, std::size_t nodes,
                                                        std::size_t tasks = 1) {
  std::vector<std::string> words{"srun"};
  if (!job.empty()) words.push_back("--jobid=" + job);
  words.insert(words.end(), {"-N", std::to_string(nodes), "-n", std::to_string(nodes * tasks),
                             formatted("--ntasks-per-node={}", tasks)});
  return words;
}

/// The same for what runs once on each node beside the ranks.
[[nodiscard]] inline std::vector<std::string> on_each_node(const std::string& job,
                                                           std::size_t nodes) {
  std::vector<std::string> words = srun_step(job, nodes);
  words.push_back("--overlap");
  return words;
}

/// The command that removes files and folders from `nodes` nodes of a job, but not from `silent`
/// ones, which would keep it from starting anywhere.
[[nodiscard]] inline std::vector<std::string> removing_command(
    const std::vector<std::string>& paths, const std::string& job, std::size_t nodes,
    const std::vector<std::string>& silent = {}) {
  std::vector<std::string> words = on_each_node(job, nodes - silent.size());
  if (!silent.empty()) words.push_back("--exclude=" + compress_hostlist(silent));
  words.insert(words.end(), {"rm", "-rf"});
  words.insert(words.end(), paths.begin(), paths.end());
  return words;
}

/// The commands that copy one path to all nodes of a job. sbcast copies files alone, and many of
/// them slowly, so a folder goes as one archive.
[[nodiscard]] inline std::vector<std::vector<std::string>> staging_commands(const staged_path& path,
                                                                            const std::string& job,
                                                                            std::size_t nodes) {
  if (path.kind == path_kind::file) {
    return {{"sbcast", "-f", "-p", "-j", job, path.from, path.to}};
  }
  const auto slash = path.from.rfind('/');
  const std::string archive = archive_of(path), sent = sent_archive_of(path);
  std::vector<std::string> unpack = on_each_node(job, nodes);
  unpack.insert(unpack.end(),
                {"sh", "-c", "mkdir -p \"$1\" && tar -xf \"$2\" -C \"$1\" --strip-components=1",
                 "unpack", path.to, archive});
  return {{"tar", "-cf", sent, "-C", slash == 0 ? "/" : path.from.substr(0, slash),
           path.from.substr(slash + 1)},
          {"sbcast", "-f", "-j", job, sent, archive},
          {"rm", sent},
          unpack,
          removing_command({archive}, job, nodes)};
}

}  // namespace parx::slurm
