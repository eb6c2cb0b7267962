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

# What stands in the way: each message names the node, the fact and the remedy.
cp "$bin/hello_all_reduce" program && mkdir data && echo 1 >data/file
runs() { shown=no; timeout 60 "$bin/parx_slurm" run -n 2 "$@" >"$work/out" 2>&1; }
in_a_job() { shown=no; timeout 60 salloc -Q -I10 -N 3 --ntasks-per-node=1 -c 2 "$@" >"$work/out" 2>&1; }
claim "the nodes are idle" within 40 are_idle
scontrol update nodename=node2 state=drain reason="disk full"
claim "run exits with 3 where a node is drained" ends_with 3 runs -N 3 -- ./program
claim "it names the node with its administrator's reason" says '^node2 is drained: disk full$'
claim "and says what would do" says 'test has 2 of 3: it would do with -N 2$'
claim "which does" runs -N 2 -- ./program
scontrol update nodename=node2 state=resume
claim "the node comes back" within 40 are_idle
claim "run -x leaves a node out" runs -N 2 -x node1 -- ./program
claim "that of its --exclude" says '^\$ salloc -p test -N 2 .*--exclude=node1 '
claim "too short a time is found" ends_with 4 in_a_job -t 1 "$bin/parx_slurm" run -n 2 -t 30m -- ./program
claim "with what is left and what to do" says '^! node(1|\[1-3\]): .* left of the job, .* needed\. Ask for a longer --time$'
if [ "$SLURM_TEST_MODE" = hosts ]; then
  on node3 mount -t tmpfs none "$work/data"
  claim "data missing on one node are found" ends_with 4 runs -N 3 --needs "$work/data/file" -- ./program
  claim "with the node and what to do" says '^! node3: .*/data/file cannot be read: No such file.*\. Copy it there, or put it on a file system that all nodes see$'
  claim "--drop-bad goes on without the node" runs -N 3 --drop-bad --needs "$work/data/file" -- ./program
  if command -v python3 >/dev/null; then
    port=$((19000 + RANDOM % 900))
    python3 -c "import socket, time; s = socket.socket(); s.bind(('', $port)); s.listen(); time.sleep(40)" & holder=$!
    export MASTER_PORT=$port
    fails() { local code=0; "$@" || code=$?; [ $code != 0 ] && [ $code != 124 ]; }
    claim "a port that is taken ends the run" fails runs -N 3 -- ./program
    unset MASTER_PORT
    kill $holder
    claim "with the node, the port and what to do" says "listen for the other nodes at node1:$port: it is in use by .* Choose another port"
  fi
fi
claim "nothing is left of these runs" leaves_none
claim "the nodes are idle again" within 40 are_idle
scontrol update nodename=node[1,3] features=avx512 && scontrol update nodename=node2 features=sse4_2
claim "a processor older than the program is kept out" ends_with 3 runs -N 3 -- ./program
claim "with the node and what to do" says '^node2 has the wrong processor: the program was compiled for AVX.*: compile it without -march=native'
[ $failures = 0 ]
