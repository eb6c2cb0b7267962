// launch_env: this process's rank and job, as its launcher described them. A plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class launcher {
  alone,      ///< no launcher: a world of one
  parx,       ///< parxrun, or PARX_RANK and PARX_WORLD_SIZE set by hand
  torchrun,   ///< torchrun, torch.distributed.launch
  variables,  ///< RANK and WORLD_SIZE set by something else
  open_mpi,   ///< Open MPI's mpirun
  pmi,        ///< MPICH, Intel MPI and others whose launcher speaks PMI
  slurm,      ///< a step started by srun
  program,    ///< the program has said it, by init_options::job
};

/// The name for messages.
[[nodiscard]] constexpr std::string_view to_string(launcher value) noexcept {
  switch (value) {
    case launcher::alone:
      return "no launcher";
    case launcher::parx:
      return "parxrun or by hand";
    case launcher::torchrun:
      return "torchrun";
    case launcher::variables:
      return "RANK and WORLD_SIZE";
    case launcher::open_mpi:
      return "Open MPI";
    case launcher::pmi:
      return "MPICH/PMI";
    case launcher::slurm:
      return "srun";
    case launcher::program:
      return "the program";
  }
  return "unknown";
}

/// Who listens on master_host:master_port.
enum class store_host {
  rank_zero,  ///< rank 0 must start the store there
  agent,      ///< torchrun's agent serves a PyTorch TCPStore there; every rank is a client
  parxrun,    ///< parxrun keeps parx's own store there and outlives every rank
};

/// The name for messages.
[[nodiscard]] constexpr std::string_view to_string(store_host value) noexcept {
  switch (value) {
    case store_host::rank_zero:
      return "rank 0";
    case store_host::agent:
      return "torchrun's agent";
    case store_host::parxrun:
      return "parxrun";
  }
  return "unknown";
}

struct launch_env {
  int rank = 0;
  int world_size = 1;
  /// Index of this process among the job's processes on its host, and their number. Unknown where
  /// RANK and WORLD_SIZE are set by hand without LOCAL_RANK and LOCAL_WORLD_SIZE.
  std::optional<int> local_rank{};
  std::optional<int> local_world_size{};
  std::optional<int> node_rank{};
  launcher started_by = launcher::alone;
  std::string master_host{};      ///< empty only for a world of one
  std::uint16_t master_port = 0;  ///< 0 only for a world of one
  std::string port_variable{};    ///< the variable with the port; empty if computed from the job id
  store_host hosted_by = store_host::rank_zero;
  /// Equal on all ranks of one start of the job; may be empty. Different for each start, unless the
  /// store is an agent's (see detail/store_generation.hpp) or every start has a new one.
  std::string run_id{};
  std::string secret{};   ///< shared by the job's ranks; empty when it has none
  bool encrypts = false;  ///< TCP connections use TLS, with keys from that secret
  std::string warning{};  ///< a probable mistake of the user, for the log; usually empty
  /// Of a job whose ranks know no address, port and common secret yet, but have another way to tell
  /// each other a line of text: gives all ranks that of rank 0. Called once by init(), on ranks
  /// other than 0 with an empty text; may throw. Rank 0 then keeps the store at a free port, and
  /// the line has a secret for this start: it protects as far as nobody else reads the line, and,
  /// together with one of PARX_SECRET, from anybody.
  std::function<std::string(const std::string& of_rank_0)> share_line{};

  /// Whether this process must start the store's server at master_host:master_port.
  [[nodiscard]] bool hosts_store() const noexcept {
    return world_size > 1 && rank == 0 && hosted_by == store_host::rank_zero;
  }
};

}  // namespace parx
