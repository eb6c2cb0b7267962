#!/bin/bash
# A training that is preempted twice, and ends in the bits of one that was not:   requeue.sh BIN_DIR
# BIN_DIR holds parx_slurm and train_gpt. Exit code 77: there is no Slurm, or no trainer, to try it with.
[ -x "$1/train_gpt" ] || { echo "SKIPPED: no train_gpt, so no training was preempted"; exit 77; }
export PARX_SLURM_CONF="PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF"
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh" "$1"
steps=200
trains=("$bin/train_gpt" --n-layer 2 --n-head 2 --n-embd 64 --block-size 64 --max-steps $steps --logging-steps 1
        --eval-strategy no --eval-batch-size 512 --sample 8 --disable-progress)
hash_of() { sha256sum "$1/model/model.safetensors" | cut -d' ' -f1; }
count() { cat "$work/out" 2>/dev/null | grep -cE "'loss': "; }
logged() { [ "$(count)" -ge "$1" ]; }

# From the command to the first step: allocation, check, ranks.
"$bin/parx_slurm" run -N 2 -n 2 -t 10m -- "${trains[@]}" --output-dir whole >"$work/out" 2>&1 & run=$!
claim "parx_slurm run has logged a step within ten seconds" within 20 logged 1
claim "and trains to its end" wait $run
claim "whose model is there" test -s whole/model/model.safetensors

claim "the nodes are idle" within 40 are_idle
"$bin/parx_slurm" batch -N 2 -n 2 -t 10m -J twice -- "${trains[@]}" --output-dir twice --resume >twice.sbatch 2>"$work/out"
job=$(sbatch --parsable twice.sbatch)
rm "$work/out" && ln -s "$work/twice-$job.log" "$work/out"
is_restarted() { scontrol show job "$job" | grep -q "Restarts=$1"; }
# Slurm lets a requeued job wait for two minutes.
starts_again() { scontrol update "jobid=$job" StartTime=now 2>/dev/null; says "^turn $1 of job $job "; }
is_over() { scontrol show job "$job" | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED)'; }
shown=no before=0
for turn in 1 2; do
  claim "turn $((turn - 1)) trains" within 120 logged $((before + 8))
  sbatch -Q -p urgent -N 3 --exclusive -o /dev/null --wrap 'sleep 0.1'
  claim "a job of a higher tier preempts it" within 40 is_restarted $turn
  claim "it goes on in turn $turn" within 60 starts_again $turn
  before=$(count)
done
claim "and comes to its end" within 80 is_over
claim "which is that of a job that succeeds" test "$(scontrol show job "$job" | grep -oE 'JobState=[A-Z]+')" = JobState=COMPLETED
claim "both times it was stopped with a checkpoint" test "$(grep -cE 'stopped by SIGTERM at step [0-9]+; checkpoint in ' "$work/out")" = 2
claim "its model has the bits of the uninterrupted run" test "$(hash_of twice)" = "$(hash_of whole)"
claim "the log has all turns" test "$(grep -cE "^turn [012] of job $job " "$work/out")" = 3
claim "and each step once" test "$(grep -cE "'loss': " "$work/out")" = $steps
rm "$work/out"
[ $failures = 0 ]
