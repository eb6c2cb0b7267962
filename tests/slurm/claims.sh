# For the scripts of this folder: a private Slurm of three nodes, and claims about what runs in it.
#   . claims.sh BIN_DIR
# Sets bin, work (a folder that is removed at the end) and failures; leaves the shell in `work`. Exit code 77:
# there is no Slurm to try it with.
set -u
bin=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin
for command in slurmctld slurmd srun; do
  command -v $command >/dev/null || {
    echo "SKIPPED: no $command, so nothing was tried under Slurm; apt-get install slurmctld slurmd slurm-client"
    exit 77
  }
done
work=$(mktemp -d)
trap '"$here/down.sh" "$work/slurm"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
"$here/up.sh" "$work/slurm" 3 || exit 1
. "$work/slurm/env.sh"
# Without host names of their own the nodes cannot be told apart by address.
[ "$SLURM_TEST_MODE" = hosts ] || export MASTER_ADDR=127.0.0.1
export OMP_NUM_THREADS=1

failures=0 shown=no
# claim TEXT COMMAND...: COMMAND holds for the output in $work/out, which is shown once when it does not.
claim() {
  local text=$1; shift
  if "$@"; then echo "ok: $text"; return; fi
  failures=$((failures + 1))
  echo "FAILED: $text"
  [ $shown = yes ] || sed 's/^/    /' "$work/out"
  shown=yes
}
# step OPTION... PROGRAM...: a step whose output goes to $work/out. -I: a request that can never be
# met would wait for ever; -K1: one failed task ends the others.
step() { shown=no; timeout 120 srun -I10 -K1 "$@" >"$work/out" 2>&1; }
says() { grep -qE "$1" "$work/out"; }
ranks_are() { [ "$(grep -oE "\[RANK [0-9]+\] WORLD_SIZE=$1( |$)" "$work/out" | grep -oE 'RANK [0-9]+' | cut -d' ' -f2 | sort -n | tr '\n' ' ')" = "$(seq -s' ' 0 $(($1 - 1))) " ]; }
within() { local i; for i in $(seq "$1"); do "${@:2}" && return; sleep 0.5; done; return 1; }
ends_with() { local wanted=$1 code=0; shift; "$@" || code=$?; [ $code = "$wanted" ]; }
# A step's nodes are busy until Slurm has cleaned up after it, and `where` counts what is idle.
# "idle*": a node does not answer yet.
are_idle() { [ -z "$(squeue -h)" ] && [ "$(sinfo -h -N -o %t | sort -u)" = idle ]; }
# on NODE COMMAND: in the mounts of a node.
on() { nsenter -t "$(cat "/proc/$(cat "$work/slurm/run/$1.launcher")/task/"*/children | cut -d' ' -f1)" -m -p "${@:2}"; }
# The process of a node's slurmd.
slurmd_of() {
  local pid all; all=$(cat "$work/slurm/run/$1.launcher")
  while [ -n "$all" ]; do
    for pid in $all; do [ "$(cat "/proc/$pid/comm")" != slurmd ] || { echo "$pid"; return; }; done
    all=$(for pid in $all; do cat "/proc/$pid/task/"*/children; done)
  done
}
# Of the job whose commands $work/out shows; others may run on this machine.
leaves_none() {
  local job; job=$(grep -oE '/tmp/parx_doctor\.[0-9]+' "$work/out" | head -n 1 | grep -oE '[0-9]+$') &&
    test -z "$(ls -d "/tmp/parx-$job-"* "/tmp/parxrun.$job" "/tmp/parx_doctor.$job" 2>/dev/null)"
}
cd "$work" || exit 1
