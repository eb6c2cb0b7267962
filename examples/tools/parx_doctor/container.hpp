// For parx_doctor host: whether a container can be started on this node, and what is seen in it.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tools/common/container.hpp"
#include "tools/common/contents_hash.hpp"
#include "tools/common/host_facts.hpp"
#include "tools/common/read_problem.hpp"
#include "tools/common/run_command.hpp"
#include <parx/core/env.hpp>
#include <parx/core/split.hpp>

namespace examples::detail {

/// Of a file's size, its first MiB, where an image (SIF) has an identifier of its own, and its last
/// one. Images have gigabytes, and all nodes would read them at once.
inline std::string image_hash(const std::string& path, std::uint64_t size) {
  constexpr std::uint64_t part = 1 << 20;
  std::string bytes = std::to_string(size) + "\n";
  std::ifstream file(path, std::ios::binary);
  for (const std::uint64_t begin : {std::uint64_t{0}, size - std::min(size, part)}) {
    std::string some(std::min(size, part), '\0');
    file.seekg(static_cast<std::streamoff>(begin));
    file.read(some.data(), static_cast<std::streamsize>(some.size()));
    bytes += some;
  }
  return contents_hash(bytes);
}

/// A file in /dev/shm while it lives.
class shared_file {
 public:
  explicit shared_file(const std::string& node)
      : name_(fmt::format("parx_doctor.{}.{}", node, ::getpid())) {
    std::ofstream(path()).put('x');
  }
  shared_file(const shared_file&) = delete;
  shared_file& operator=(const shared_file&) = delete;
  ~shared_file() { ::unlink(path().c_str()); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  [[nodiscard]] std::string path() const { return "/dev/shm/" + name_; }

  std::string name_;
};

/// `program`: that of the job, as given; empty: none.
inline void look_at_container(parx::slurm::container box, const std::string& program,
                              const std::vector<std::string>& needs, const parx::environment& env,
                              parx::slurm::host_facts& facts) {
  facts.image = box.image;
  std::uint64_t size = 0;
  facts.image_problem = read_problem(box.image, size);
  if (!facts.image_problem.empty()) return;
  if (std::filesystem::is_regular_file(box.image)) facts.image_hash = image_hash(box.image, size);

  const shared_file file(facts.node);
  std::vector<std::string> probe{"sh",
                                 "-c",
                                 parx::slurm::container_probe(),
                                 "probe",
                                 std::to_string(::getpid()),
                                 file.name(),
                                 parx::env_string(env, "SLURM_JOB_ID").value_or(""),
                                 program.empty() ? "sh" : program,
                                 box.folder};
  probe.insert(probe.end(), needs.begin(), needs.end());
  // A path that is not on the node would keep the container from starting; the probe names it.
  const auto is_here = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  std::erase_if(box.paths, [&](const std::string& each) { return !is_here(each); });
  if (!is_here(box.folder)) box.folder = "/";
  auto words = parx::slurm::container_command(box);
  words.insert(words.end(), probe.begin(), probe.end());
  const auto answer = parx::slurm::run_command(words, std::chrono::seconds(10));
  if (!answer.started) {
    facts.container_problem = fmt::format("there is no {} in PATH", box.runtime);
  } else if (answer.timed_out) {
    facts.container_problem = fmt::format("{} has not started the image within 10 s", box.runtime);
  } else if (!answer.success()) {
    std::string last = answer.err.substr(0, answer.err.find_last_not_of('\n') + 1);
    last.erase(0, last.rfind('\n') + 1);
    facts.container_problem =
        fmt::format("{} cannot start the image: exit code {}: {}", box.runtime, answer.code, last);
  }
  if (!facts.container_problem.empty()) return;
  for (const std::string_view line : parx::detail::split_at(answer.out, '\n')) {
    if (!line.empty()) facts.container_lacks.emplace_back(line);
  }
}

}  // namespace examples::detail
