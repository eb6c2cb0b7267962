// L7: what Slurm's commands print, read by pure functions, and what follows from it: which
// partition has the nodes for a job. parx_slurm (examples/) runs the commands.
#pragma once

#include <parx/core/version.hpp>

#include <parx/slurm/batch_script.hpp>   // IWYU pragma: export
#include <parx/slurm/copy_failure.hpp>   // IWYU pragma: export
#include <parx/slurm/held_signals.hpp>   // IWYU pragma: export
#include <parx/slurm/job_code.hpp>       // IWYU pragma: export
#include <parx/slurm/job_records.hpp>    // IWYU pragma: export
#include <parx/slurm/log_reader.hpp>     // IWYU pragma: export
#include <parx/slurm/log_text.hpp>       // IWYU pragma: export
#include <parx/slurm/longest_limit.hpp>  // IWYU pragma: export
#include <parx/slurm/older_nodes.hpp>    // IWYU pragma: export
#include <parx/slurm/preflight.hpp>      // IWYU pragma: export
#include <parx/slurm/run_command.hpp>    // IWYU pragma: export
#include <parx/slurm/scaling.hpp>        // IWYU pragma: export
#include <parx/slurm/staging.hpp>        // IWYU pragma: export
#include <parx/slurm/through_srun.hpp>   // IWYU pragma: export
#include <parx/slurm/where_command.hpp>  // IWYU pragma: export
#include <parx/slurm/where_text.hpp>     // IWYU pragma: export
