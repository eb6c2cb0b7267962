// For parx_doctor host: what a node can find out about itself, for `parx_slurm check`.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/contents_hash.hpp"
#include "tools/common/host_facts.hpp"
#include "tools/common/instruction_level.hpp"
#include "tools/common/instructions.hpp"
#include "tools/common/read_problem.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_doctor/container.hpp"
#include <parx/core/cpu_quota.hpp>
#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/thread_count.hpp>
#include <parx/tensor/gemm/tile_registers.hpp>

namespace examples {

/// What the job needs, as `parx_slurm check` asks each node.
struct host_questions {
  std::string program;
  parx::slurm::container box;  ///< in which it runs, if any
  std::vector<std::string> needs;
  std::vector<std::string> arguments;  ///< of the program, that name a path
  std::string output;
  std::vector<std::string> imports;
  std::string python = "python3";
};

namespace detail {

inline std::int64_t free_mb(const std::string& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return 0;
  return static_cast<std::int64_t>(status.f_bavail * (status.f_frsize / 1024) / 1024);
}

/// A limit on a resource, hard; -1: none.
inline std::int64_t hard_limit(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(limit.rlim_max);
}

/// A field of /proc/meminfo, in MB.
inline std::int64_t meminfo_mb(std::string_view name) {
  const std::string text = parx::detail::file_text("/proc/meminfo").value_or("");
  for (const std::string_view line : parx::detail::split_at(text, '\n')) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const auto digit = line.find_first_of("0123456789");
    const auto end = std::min(line.find(' ', digit), line.size());
    if (digit == line.npos) break;
    return parx::detail::parse_number<std::int64_t>(line.substr(digit, end - digit)).value_or(0) /
           1024;
  }
  return 0;
}

/// What is left of the memory limits of this process's control group and those above it, in MB; -1
/// where there is none. Sources: the kernel's admin-guide/cgroup-v2 (memory.max, memory.current).
inline std::int64_t group_memory_mb() {
  const std::string groups = parx::detail::file_text("/proc/self/cgroup").value_or("");
  std::int64_t least = -1;
  for (const std::string_view line : parx::detail::split_at(groups, '\n')) {
    if (!line.starts_with("0::")) continue;
    for (std::string group(line.substr(3));;
         group.erase(std::min(group.rfind('/'), group.size()))) {
      const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
      const auto number = [&](const char* name) {
        std::string text = parx::detail::file_text(folder + name).value_or("");
        text.erase(std::min(text.find('\n'), text.size()));
        return parx::detail::parse_number<std::int64_t>(text);
      };
      if (const auto most = number("/memory.max")) {
        const std::int64_t left = (*most - number("/memory.current").value_or(0)) / (1024 * 1024);
        least = least < 0 ? left : std::min(least, left);
      }
      if (group.empty() || group == "/") break;
    }
  }
  return least;
}

/// Why no file can be made in a folder, or in the nearest folder above it that there is; empty: one
/// can. A file is made and removed.
inline std::string write_problem(std::string folder) {
  struct stat status {};
  while (::stat(folder.c_str(), &status) != 0 && errno == ENOENT) {
    const auto slash = folder.rfind('/');
    folder = slash == folder.npos ? "." : slash == 0 ? "/" : folder.substr(0, slash);
  }
  std::string name = folder + "/.parx_check_XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return folder + ": " + parx::errno_text(errno);
  const std::vector<char> block(4096, 'x');  // a full disk may still have room for a name
  const bool written = ::write(file, block.data(), block.size()) == 4096 && ::fsync(file) == 0;
  const std::string problem = written ? "" : folder + ": " + parx::errno_text(errno);
  ::close(file);
  ::unlink(name.c_str());
  return problem;
}

/// What the dynamic linker would not find, by ldd: "libfmt.so.9", "GLIBC_2.36". `inside`: the
/// command of a container; empty: on this host.
inline std::vector<std::string> missing_libraries(std::vector<std::string> inside,
                                                  const std::string& program) {
  inside.insert(inside.end(), {"ldd", program});
  const auto answer = parx::slurm::run_command(inside, std::chrono::seconds(5));
  std::vector<std::string> missing;
  for (const std::string* const text : {&answer.out, &answer.err}) {
    for (std::string_view line : parx::detail::split_at(*text, '\n')) {
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      // "libfmt.so.9 => not found", "./x: /lib/libc.so.6: version `GLIBC_2.36' not found (...)"
      const auto version = line.find("version `");
      std::string name;
      if (version != line.npos && line.find("' not found") != line.npos) {
        name = line.substr(version + 9, line.find('\'', version) - version - 9);
      } else if (line.find("=> not found") != line.npos) {
        name = line.substr(0, line.find(' '));
      }
      if (!name.empty() && std::find(missing.begin(), missing.end(), name) == missing.end()) {
        missing.push_back(name);
      }
    }
  }
  return missing;
}

inline void look_at_program(const std::string& program, const parx::slurm::container& box,
                            parx::slurm::host_facts& facts) {
  facts.program = program;
  std::uint64_t bytes = 0;
  facts.program_problem = read_problem(program, bytes);
  if (facts.program_problem.empty() && ::access(program.c_str(), X_OK) != 0) {
    facts.program_problem = parx::errno_text(errno);
  }
  if (!facts.program_problem.empty()) return;
  const std::string file = parx::detail::file_text(program).value_or("");
  facts.program_hash = contents_hash(file);
  if (!file.starts_with("\177ELF")) return;  // a script
  facts.missing_libraries = missing_libraries(parx::slurm::container_command(box), program);
  for (std::string& each : parx::instructions_of(file)) {
    if (!parx::has_instructions(each)) facts.missing_instructions.push_back(std::move(each));
  }
}

inline parx::slurm::import_fact look_at_import(const std::string& python,
                                               const std::string& module) {
  const auto answer =
      parx::slurm::run_command({python, "-c",
                                "import importlib, sys; m = importlib.import_module(sys.argv[1]); "
                                "print(getattr(m, '__version__', 'without a version'))",
                                module},
                               std::chrono::seconds(30));
  std::string text = answer.success() ? answer.out : answer.err;
  text.erase(text.find_last_not_of('\n') + 1);
  if (answer.success()) return {module, text, ""};
  if (answer.timed_out) return {module, "", "no answer within 30 s"};
  return {module, "", text.substr(text.rfind('\n') + 1)};
}

/// The address that this host's name resolves to; empty where it does not.
inline std::string own_name_is(const std::string& name) {
  int code = 0;
  const auto found = parx::detail::find_addresses(name.c_str(), 0, 0, code);
  return found ? parx::detail::address_text(found->ai_addr, found->ai_addrlen) : std::string();
}

inline std::string processor() {
  std::vector<std::string> has;
  for (const char* const each : {"avx", "avx2", "avx512f"}) {
    if (parx::has_instructions(each)) has.emplace_back(each);
  }
  return to_string(parx::slurm::level_of_program(has));
}

}  // namespace detail

inline parx::slurm::host_facts look_at_host(const host_questions& questions,
                                            const parx::environment& env) {
  parx::slurm::host_facts facts;
  facts.host = parx::detail::host_name();
  facts.node = parx::env_string(env, "SLURMD_NODENAME").value_or(facts.host);
  utsname system{};
  if (::uname(&system) == 0) facts.kernel = system.release;
  const parx::slurm::container& box = questions.box;
  const auto is_looked_for_inside = [&](const std::string& path) {
    return box.is_used() && parx::slurm::is_of_image(path);
  };
  if (!questions.program.empty() && !is_looked_for_inside(questions.program)) {
    detail::look_at_program(questions.program, box, facts);
  }
  for (const std::string& path : questions.needs) {
    if (is_looked_for_inside(path)) continue;
    parx::slurm::path_fact fact{path, "", 0, false};
    fact.problem = detail::read_problem(path, fact.size);
    facts.needs.push_back(fact);
  }
  for (const std::string& path : questions.arguments) {
    parx::slurm::path_fact fact{path, "", 0, true};
    fact.problem = detail::read_problem(path, fact.size);
    facts.needs.push_back(fact);
  }
  facts.output = questions.output;
  if (!questions.output.empty()) facts.output_problem = detail::write_problem(questions.output);
  facts.cores = static_cast<int>(parx::allowed_cores().size());
  facts.quota_cores = parx::detail::own_cpu_quota().value_or(0);
  facts.processor = detail::processor();
  facts.why_not_amx = parx::detail::ask_for_tile_registers();
  facts.memory_mb = detail::meminfo_mb("MemAvailable");
  if (const auto left = detail::group_memory_mb(); left >= 0) {
    facts.memory_mb = std::min(facts.memory_mb, left);
  }
  facts.shm_mb = detail::free_mb("/dev/shm");
  facts.tmp = parx::env_string(env, "TMPDIR").value_or("/tmp");
  facts.tmp_mb = detail::free_mb(facts.tmp);
  const std::int64_t files = detail::hard_limit(RLIMIT_NOFILE);
  facts.files = files < 0 ? INT64_MAX : files;
  facts.processes = detail::hard_limit(RLIMIT_NPROC);
  facts.own_name_is = detail::own_name_is(facts.host);
  if (const auto end = parx::env_number<std::int64_t>(env, "SLURM_JOB_END_TIME")) {
    facts.time_left_s = std::max<std::int64_t>(*end - std::time(nullptr), 0);
  }
  return facts;
}

/// What may take long, and on one node longer than on another: imports, and starting a container.
inline void try_on_host(const host_questions& questions, const parx::environment& env,
                        parx::slurm::host_facts& facts) {
  if (questions.box.is_used()) {
    detail::look_at_container(questions.box, questions.program, questions.needs, env, facts);
  }
  for (const std::string& module : questions.imports) {
    facts.imports.push_back(detail::look_at_import(questions.python, module));
  }
}

}  // namespace examples
