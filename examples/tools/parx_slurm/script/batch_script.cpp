#include "tools/parx_slurm/script/batch_script.hpp"

#include <string_view>

#include "common/shell_text.hpp"
#include "tools/common/instruction_level.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include "tools/parx_slurm/script/sbatch_option.hpp"
#include "tools/parx_slurm/script/through_srun.hpp"
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace {

/// For parxruns under `srun`: sets `code` to that of the job, as job_code.hpp tells it.
[[nodiscard]] std::string with_code_of_parxruns(const std::string& srun) {
  return R"END(ended=$(mktemp)  # what srun says of parxruns that have not ended with 0
trap 'rm -f "$ended"' EXIT
{ )END" + srun +
         R"END( 2>&1 >&3 3>&- |
  (trap '' TERM; exec sed -u "/^srun: error: .*: tasks\{0,1\} [0-9]/w $ended") >&2 ||
  code=${PIPESTATUS[0]}; } 3>&1
# A parxrun that was killed alone gives srun its code, 137; the others have that of the job.
if [ "$code" -gt 128 ] && [ -s "$ended" ]; then
  of_srun=$code codes=$(sed -n 's/.*: Exited with exit code //p' "$ended" | sort -u)
  if [ -z "$codes" ]; then grep -qE ': tasks? 0[-,:]' "$ended" || code=0
  elif [ "$(wc -l <<<"$codes")" = 1 ]; then code=$codes; fi
  [ "$code" = "$of_srun" ] ||
    echo "srun ended with $of_srun, of a parxrun that was killed, and the job with $code" >&2
fi
)END";
}

}  // namespace

std::string batch_script(const batch_options& job) {
  require(!job.command.empty(), "there is no program: parx_slurm batch -N 2 -- ./train args");
  require(
      job.time.count() == 0 || job.time > job.warning,
      "--time {} s is not longer than --warning {} s, the time before its end in which the ranks "
      "save: raise --time, or lower --warning",
      job.time.count(), job.warning.count());
  require(job.name.find_first_of("%\\/") == job.name.npos && job.name.size() <= 200,
          "--job-name \"{}\": it is a part of the log's name, which may have no %, no slash, no "
          "backslash and no more than 200 bytes",
          printable(job.name));
  std::string text = "#!/bin/bash\n";
  const auto line = [&](const std::string& each) { text += each + "\n"; };
  const auto option = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += sbatch_option(name, value);
  };
  line("# Written by: " + shell_text(job.written_by));
  line("# Submit it in the folder where relative paths begin: sbatch THIS_FILE");
  option("job-name", job.name);
  option("partition", job.partition);
  option("account", job.account);
  option("array", job.array);
  option("nodes", std::to_string(job.nodes));
  const bool goes_on = job.least_nodes > 0;
  if (goes_on) {
    line(formatted(
        "# Where a node is lost, Slurm leaves the others, and the ranks go on with {} or more.",
        job.least_nodes));
    line("#SBATCH --no-kill");
  }
  std::string exclude = job.exclude;
  std::string constraint = job.constraint;
  if (!job.older.names.empty()) {
    const std::string older = compress_hostlist(job.older.names);
    line(formatted("# Without {}: the program was compiled for {}, which they do not have.", older,
                   to_string(job.older.level)));
    if (constraint.empty()) constraint = job.older.features;
    if (constraint != job.older.features || constraint.empty()) {
      exclude += (exclude.empty() ? "" : ",") + older;
    }
  }
  option("exclude", exclude);
  option("constraint", constraint);
  std::vector<std::string> command = job.command;
  if (command.front().starts_with('-')) command.front().insert(0, "./");  // no option of srun
  command = through_srun(command);
  const bool by_parxrun = goes_on || job.box.is_used();
  if (by_parxrun) {
    line(job.box.is_used() ? "# One container on each node, whose parxrun starts the ranks."
                           : "# One parxrun on each node, which starts the ranks.");
    std::vector<std::string> more;
    if (goes_on) more = options_to_go_on(job.least_nodes, job.nodes, restarts_after_a_loss);
    const std::string parxrun(job.box.is_used() ? parxrun_of_image : job.parxrun);
    command = ranks_in(job.box, parxrun, job.ranks, job.threads, more, command);
  } else {
    line("# Ranks of a node, and cores of a rank, which computes with as many threads.");
  }
  option("ntasks-per-node", std::to_string(by_parxrun ? 1 : job.ranks));
  option("cpus-per-task", std::to_string(job.threads * (by_parxrun ? job.ranks : 1)));
  if (job.memory_mb > 0) option("mem", formatted("{}M", job.memory_mb));
  if (job.time.count() > 0) option("time", std::to_string((job.time.count() + 59) / 60));
  line("# One log for all ranks and turns.");
  option("output", job.name + (job.array.empty() ? "-%j.log" : "-%A_%a.log"));
  line("#SBATCH --open-mode=append");
  line(formatted("# {} s before the time is over the ranks finish their step, save and return 75.",
                 job.warning.count()));
  line(formatted("#SBATCH --signal=USR1@{}", job.warning.count()));
  text += R"END(#SBATCH --requeue
set -euo pipefail
# Slurm 22.05 and later does not pass --cpus-per-task on to srun by itself.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
# A secret that the ranks share keeps other processes of the cluster out.
PARX_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export PARX_SECRET
echo "turn ${SLURM_RESTART_COUNT:-0} of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST at $(date -Is)"
)END";
  const bool watched = !job.checkpoints.empty();
  if (watched) {
    line("checkpoints=" + shell_word(job.checkpoints));
    text += R"END(newest() {
  local each
  for each in "$checkpoints"/checkpoint-*; do echo "${each##*/}"; done | sort -V | tail -n 1
}
before=$(newest)
)END";
  }
  text +=
      R"END(# parx itself ends the others when a rank fails, and says which one it was.
code=0
)END";
  const std::string srun = formatted("srun --kill-on-bad-exit=0 {}{}",
                                     goes_on ? "--no-kill --wait=10 " : "", shell_text(command));
  text += by_parxrun ? with_code_of_parxruns(srun) : srun + " || code=$?\n";
  line("[ \"$code\" = 75 ] || exit \"$code\"  # 75: stopped by a signal, with its work saved");
  if (watched) {
    text += R"END(# Three turns without a new checkpoint: the next one would not get further either.
idle=0
if [ "$(newest)" = "$before" ]; then
  idle=$(($(cat 2>/dev/null <"$checkpoints/turns-without-progress" || echo 0) + 1))
fi
echo "$idle" >"$checkpoints/turns-without-progress"
if [ "$idle" -ge 3 ]; then
  echo "three turns without a new checkpoint in $checkpoints: a turn is too short for one" >&2
  exit 1
fi
)END";
  }
  text += R"END(# Of an array, only this task.
task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
scontrol requeue "${task:-$SLURM_JOB_ID}"
)END";
  return text;
}

}  // namespace parx::slurm
