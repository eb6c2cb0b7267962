#include "tools/parx_slurm/staging.hpp"

#include <algorithm>

#include "tools/parx_slurm/nodes/salloc.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::slurm {

std::vector<std::string> with_copies(std::vector<std::string> words,
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

std::vector<std::string> srun_step(const std::string& job, std::size_t nodes, std::size_t tasks) {
  std::vector<std::string> words{"srun"};
  if (!job.empty()) words.push_back("--jobid=" + job);
  words.insert(words.end(), {"-N", std::to_string(nodes), "-n", std::to_string(nodes * tasks),
                             formatted("--ntasks-per-node={}", tasks)});
  return words;
}

std::vector<std::string> on_each_node(const std::string& job, std::size_t nodes) {
  std::vector<std::string> words = srun_step(job, nodes);
  words.push_back("--overlap");
  return words;
}

std::vector<std::string> removing_command(const std::vector<std::string>& paths,
                                          const std::string& job, std::size_t nodes,
                                          const std::vector<std::string>& silent) {
  std::vector<std::string> words = on_each_node(job, nodes - silent.size());
  if (!silent.empty()) words.push_back("--exclude=" + compress_hostlist(silent));
  words.insert(words.end(), {"rm", "-rf"});
  words.insert(words.end(), paths.begin(), paths.end());
  return words;
}

std::vector<std::vector<std::string>> staging_commands(const staged_path& path,
                                                       const std::string& job, std::size_t nodes) {
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
