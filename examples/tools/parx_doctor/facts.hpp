// For parx_doctor: what one rank can find out about its host without communication.
#pragma once

#include <string>

#include "tools/common/contents_hash.hpp"
#include "tools/parx_doctor/health.hpp"
#include "tools/parx_doctor/host.hpp"
#include <parx/core/file_text.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/thread_count.hpp>
#include <parx/launch.hpp>
#include <parx/transport/detail/interfaces.hpp>

namespace examples {

using parx::rank_health;

inline std::string first_line_of(const char* path) {
  const std::string text = parx::detail::file_text(path).value_or("");
  return text.substr(0, text.find('\n'));
}

inline rank_health look_at_this_process(const parx::world& world, const parx::launch_env& job) {
  const parx::environment env = parx::process_environment();
  rank_health facts{.rank = world.rank(),
                    .host = look_at_host({}, env),
                    .boot_id = first_line_of("/proc/sys/kernel/random/boot_id") +
                               parx::env_string(env, "PARX_HOST_ID").value_or(""),
                    .version = PARX_VERSION " " PARX_ABI_TEXT,
                    .cpus = parx::allowed_cores(),
                    .threads = parx::get_num_threads()};
  facts.host.address = world.size() == 1 ? parx::detail::loopback_address()
                                         : parx::detail::choose_address(env, job.master_host, true);
  facts.host.program_hash = contents_hash(parx::detail::file_text("/proc/self/exe").value_or(""));
  return facts;
}

}  // namespace examples
