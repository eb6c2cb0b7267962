// ssh_start: how parxrun starts itself on another host by ssh: the command, what is sent to the
// parxrun there, and what it means that it did not come. Pure.
//
// The command line there says no more than which program is to run: everybody on that host can read
// it. Folder, environment with the job's secret, and the job itself are one line of standard input,
// which the parxrun there reads first. Then lines with signals may follow. The end of standard
// input says that its starter is gone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/parxrun/nodes/job_nodes.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include "tools/common/child_process.hpp"
#include <parx/core/env.hpp>
#include <parx/core/version.hpp>

namespace parx::inline PARX_ABI::detail {

/// What the parxrun on a host is told by the one that starts it.
struct agent_order {
  std::string folder;                  ///< to run in
  environment variables;               ///< to be set there
  std::vector<std::string> arguments;  ///< parxrun's, with the program's; the first is the name
  int ranks = 0;                       ///< there; 0: as the arguments say
  job_nodes nodes;
  int input = -1;  ///< the descriptor of what follows; not sent

  void apply(agent_options& options) const {
    if (ranks > 0) options.ranks = ranks;
    options.nodes = nodes;
    options.starter = input;
  }
};

/// The word by which a parxrun is told to read an agent_order.
inline constexpr std::string_view agent_flag = "--agent-of-hosts";

/// What it writes when it has read it. Text before that is of the login shell.
inline constexpr std::string_view agent_greeting = "parxrun " PARX_VERSION " reads its orders";

/// Seconds that ssh waits for a host, unless it is told otherwise.
inline constexpr int ssh_patience = 10;

/// `ssh` is the user's "ssh -p 2222 -i KEY". Of an option that is given twice ssh takes the first.
[[nodiscard]] std::vector<std::string> ssh_command(std::string_view ssh, const std::string& host,
                                                   const std::string& parxrun);

/// The part of `env` that the parxrun on other hosts get: PARX_* and OMP_*, but for what is of this
/// host alone, those in `exported`, and the job's secret.
[[nodiscard]] environment travelling_variables(const environment& env,
                                               const std::vector<std::string>& exported,
                                               const std::string& secret);

/// The first line of standard input, without its line feed.
[[nodiscard]] std::string to_text(const agent_order& order);

/// Throws json::error for anything that is not of to_text().
[[nodiscard]] agent_order order_from_text(std::string_view text);

/// Why there is no parxrun on `host`, whose ssh has ended with `status` and has written `errors`,
/// and what to do.
[[nodiscard]] std::string why_no_agent(const std::string& host, const exit_status& status,
                                       const std::vector<std::string>& errors,
                                       const std::string& parxrun);

}  // namespace parx::detail
