// container: the command that starts a program inside an Apptainer image, and what it sees there.
// Pure.
//
// One container on each node, and parxrun inside it: where Apptainer gives each container a user
// namespace of its own, the kernel lets no rank read the memory of a rank in another one.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

struct container {
  std::string runtime;               ///< "apptainer", or "singularity", its older name
  std::string image;                 ///< absolute; empty: no container
  std::string folder;                ///< absolute: where the program starts
  std::vector<std::string> paths{};  ///< absolute: what it sees as it is outside, `folder` too

  [[nodiscard]] bool is_used() const noexcept { return !image.empty(); }
};

/// Whether an absolute path is below a folder, or is it.
[[nodiscard]] inline bool is_below(std::string_view path, std::string_view folder) {
  if (folder == "/") return true;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Whether a word names what an image brings: a program without a slash, or a path of the system,
/// which would hide that of the image if it were bound.
[[nodiscard]] inline bool is_of_image(std::string_view word) {
  if (word.find('/') == word.npos) return true;
  for (const std::string_view folder : {"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64",
                                        "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}) {
    if (is_below(word, folder)) return true;
  }
  return word == "/";
}

/// What is bound, sorted: `paths` and /dev/shm, where the ranks of a node meet; but nothing of the
/// image's own, and nothing below what is bound already. Copies of parx_slurm lie in /tmp, which is
/// bound as a whole, so that they can be removed.
[[nodiscard]] inline std::vector<std::string> bound_paths(std::vector<std::string> paths) {
  std::erase_if(paths, [](const std::string& each) { return each.empty() || is_of_image(each); });
  paths.insert(paths.end(), {"/dev/shm", "/tmp"});
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> bound;
  for (std::string& each : paths) {
    const bool covered = std::any_of(bound.begin(), bound.end(),
                                     [&](const auto& above) { return is_below(each, above); });
    if (!covered) bound.push_back(std::move(each));
  }
  return bound;
}

/// "apptainer exec --bind /dev/shm,/home/u,/tmp --pwd /home/u IMAGE", to be followed by a command;
/// empty without an image. Throws usage_error for a path that --bind cannot name.
[[nodiscard]] inline std::vector<std::string> container_command(const container& box) {
  if (!box.is_used()) return {};
  const auto bound = bound_paths(box.paths);
  for (const std::string& each : bound) {
    require(each.find_first_of(",:") == each.npos,
            "{}: --bind of {} cannot name a path with a comma or a colon in it", each, box.runtime);
  }
  return {box.runtime, "exec", "--bind", joined_text(bound, ","), "--pwd", box.folder, box.image};
}

/// How often parxrun starts the ranks again where it goes on without lost nodes and nobody has said
/// how often.
inline constexpr int restarts_after_a_loss = 3;

/// parxrun's options to go on with `least` of `most` nodes. Slurm must be told --no-kill as well,
/// for the allocation and the step: else it ends all of them for one.
[[nodiscard]] inline std::vector<std::string> options_to_go_on(int least, int most, int restarts) {
  return {"--nnodes", formatted("{}:{}", least, most), "--max-restarts", std::to_string(restarts)};
}

/// The command that starts a node's ranks by `parxrun`, in the image if there is one. `more`:
/// further options of parxrun.
[[nodiscard]] inline std::vector<std::string> ranks_in(const container& box,
                                                       const std::string& parxrun, int ranks,
                                                       int threads,
                                                       const std::vector<std::string>& more,
                                                       const std::vector<std::string>& command) {
  std::vector<std::string> words = container_command(box);
  words.insert(words.end(),
               {parxrun, "-n", std::to_string(ranks), "--threads", std::to_string(threads)});
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// A POSIX shell's command, `sh -c` it inside: a line for each thing that is missing there. Its
/// words: a process of the node, a file in /dev/shm, the job's number, the program, and paths.
inline constexpr std::string_view parxrun_of_image = "parxrun";
inline constexpr std::string_view variables_of_job = "SLURM_JOB_ID in the environment";
[[nodiscard]] inline std::string container_probe() {
  return formatted(
      R"([ -d "/proc/$1" ] || echo "process of the node in /proc"
[ -e "/dev/shm/$2" ] || echo "/dev/shm of the node"
[ "$SLURM_JOB_ID" = "$3" ] || echo "{}"
command -v {} >/dev/null || echo {}
command -v "$4" >/dev/null || echo "$4"
shift 4
for path; do [ -r "$path" ] || echo "$path"; done)",
      variables_of_job, parxrun_of_image, parxrun_of_image);
}

}  // namespace parx::slurm
