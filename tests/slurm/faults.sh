#!/bin/bash
# What parx_slurm says and leaves behind when something is in its way, on a private Slurm:   faults.sh BIN_DIR
# Exit code 77: there is no Slurm to try it with.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh" "$1"

# Signals: whoever sends one, in whichever phase, the nodes are clean afterwards.
# starts ARGUMENT...: a run in the background, whose process is $run.
starts() { shown=no; : >"$work/out"; "$bin/parx_slurm" run -N 3 -t 5m "$@" >"$work/out" 2>&1 & run=$!; }
# ends_in SECONDS: $run has ended, and Slurm has no job; its exit code is $code.
is_over() { ! kill -0 "$run" 2>/dev/null; }
ends_in() { within $((2 * $1)) is_over && { wait "$run"; code=$?; within 20 test -z "$(squeue -h)"; }; }
printf '#!/bin/sh\necho waits\nexec sleep 100\n' >waits && chmod +x waits
for signal in TERM INT; do
  starts -- ./waits
  claim "parx_slurm run starts what waits" within 40 says '\] waits'
  kill -$signal "$run"
  claim "SIG$signal ends it" ends_in 15
  claim "with an exit code that is not 0" test "$code" != 0
  claim "and it leaves nothing on the nodes" leaves_none
done
printf '#!/bin/sh\nexec sleep 60\n' >slow && chmod +x slow  # in place of python: the check lasts
starts --imports json --python "$work/slow" -- ./waits
is_sent() { says '/tmp/parx_doctor\.[0-9]+' && leaves_one; }
leaves_one() { ! leaves_none; }
claim "the check is under way" within 40 is_sent
kill -TERM "$run"
claim "SIGTERM ends the check" ends_in 15
claim "and it leaves nothing either" leaves_none
limited() { shown=no; timeout 4 "$bin/parx_slurm" run -N 3 -t 5m -- ./waits >"$work/out" 2>&1; }
claim "timeout, whose signal reaches all processes of a run, ends it" ends_with 124 limited
claim "and it leaves nothing either" within 20 leaves_none
[ $failures = 0 ]
