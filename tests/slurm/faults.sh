#!/bin/bash
# What parx_slurm says and leaves behind when something is in its way, on a private Slurm:   faults.sh BIN_DIR [all]
# Exit code 77: there is no Slurm to try it with.
form=${2:-short}
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh" "$1"
export XDG_RUNTIME_DIR=$work  # the folders of parxruns that are killed would stay in /tmp

# Signals: whoever sends one, in whichever phase, the nodes are clean afterwards.
# starts ARGUMENT...: a run in the background, whose process is $run.
starts() { shown=no; : >"$work/out"; "$bin/parx_slurm" run -N 3 -t 5m "$@" >"$work/out" 2>&1 & run=$!; }
# ends_in SECONDS: $run has ended, and Slurm has no job; its exit code is $code. A step whose srun was killed
# while it started keeps a job completing for half a minute.
is_over() { ! kill -0 "$run" 2>/dev/null; }
ends_in() { within $((2 * $1)) is_over && { wait "$run"; code=$?; within 240 no_job; }; }
no_job() { [ -z "$(squeue -h)" ]; }
printf '#!/bin/sh\necho waits\nexec sleep 100\n' >waits && chmod +x waits
for signal in TERM INT; do
  starts -- ./waits
  claim "parx_slurm run starts what waits" within 40 says '\] waits'
  kill -$signal "$run"
  claim "SIG$signal ends it" ends_in 60
  claim "with an exit code that is not 0" test "$code" != 0
  claim "and it leaves nothing on the nodes" leaves_none
done
printf '#!/bin/sh\nexec sleep 60\n' >slow && chmod +x slow  # in place of python: the check lasts
starts --imports json --python "$work/slow" -- ./waits
is_sent() { says '/tmp/parx_doctor\.[0-9]+' && leaves_one; }
leaves_one() { ! leaves_none; }
claim "the check is under way" within 40 is_sent
kill -TERM "$run"
claim "SIGTERM ends the check" ends_in 60
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
claim "without -- there is no program" ends_with 2 runs -N 2 ./program --flag
claim "which is said" says 'there is no program: -- comes before it: parx_slurm run'
claim "too many cores are refused" ends_with 3 runs -N 3 -c 5 -- ./program
claim "with what there is" says 'too few cores: the largest has 8; ask for fewer a node'
scontrol update nodename=node[1,3] state=drain reason="new racks"
claim "run exits with 3 where all nodes are drained" ends_with 3 runs -N 1 -- ./program
claim "each reason is told" says '^node2 is drained: disk full$'
claim "with all its nodes" says '^node\[1,3\] are drained: new racks$'
scontrol update nodename=node[1-3] state=resume
claim "the nodes come back" within 40 are_idle
claim "run -x leaves a node out" runs -N 2 -x node1 -- ./program
claim "that of its --exclude" says '^\$ salloc -p test -N 2 .*--exclude=node1 '
claim "too short a time is found" ends_with 4 in_a_job -t 1 "$bin/parx_slurm" run -n 2 -t 30m -- ./program
claim "with what is left and what to do" says '^! node(1|\[1-3\]): .* left of the job, .* needed\. Ask for a longer --time$'
if [ "$SLURM_TEST_MODE" = hosts ]; then
  on node3 mount -t tmpfs none "$work/data"
  claim "data missing on one node are found" ends_with 4 runs -N 3 --needs "$work/data/file" -- ./program
  claim "with the node and what to do" says '^! node3: .*/data/file cannot be read: No such file.*\. Copy it there, or put it on a file system that all nodes see$'
  claim "--drop-bad goes on without the node" runs -N 3 --drop-bad --needs "$work/data/file" -- ./program
  claim "and says so" says '^going on without node3$'
  printf '#!/bin/sh\necho "read $(cat "${1#--data=}")"\n' >reads && chmod +x reads
  runs -N 3 -- ./reads --data=data/file
  claim "an argument that one node does not see gets a note" says '^note: node3: .*/data/file, an argument of the program, cannot be read: .*let --stage copy it'
  var=$(mktemp -d /var/tmp/parx-arguments.XXXXXX) && echo 1 >"$var/file"
  on node3 mount -t tmpfs none "$var"
  runs -N 3 -- ./reads "--data=$var/file"
  claim "also one below /var" says "^note: node3: $var/file, an argument of the program, cannot be read: "
  on node3 umount "$var"
  rm -r "$var"
  claim "--stage copies a folder" runs -N 3 --stage data -- ./reads --data=data/file
  claim "which the arguments of all ranks name, relative ones too" test "$(grep -c '\] read 1$' "$work/out")" = 6
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
# A parxrun that is killed with its ranks, as by the kernel for want of memory: srun has 137 then.
printf '#!/bin/sh\n[ $RANK != $1 ] || { sleep 0.5; kill -9 $PPID; }\nexec sleep 60\n' >killer && chmod +x killer
killed() { runs -N 3 -- ./killer "$1"; }
claim "the nodes are idle" within 40 are_idle
claim "where a node's parxrun is killed, run ends with the code of the job" ends_with 1 killed 3
claim "which is that of the report" says '^  parxrun exits with code 1$'
claim "and not with srun's" says '^srun: error: node2: task 1: Killed'
claim "the nodes are idle" within 40 are_idle
claim "where it is the first node's, run ends with the code of the others" ends_with 75 killed 0
claim "and says what to do" says "^the first node's parxrun was lost, .*: the same command goes on with --resume behind it, the flag of parx's trainers$"
claim "the nodes are idle" within 40 are_idle
# A job that Slurm ends before its program: no step can be started any more, so parxrun cleans up.
starts --stage "$work/data/file" -- ./waits
claim "a run waits" within 40 says '\] waits'
[ "$SLURM_TEST_MODE" != hosts ] || claim "which has sent data to its nodes" says "^\\\$ sbcast .* $work/data/file /tmp/parx-"
scancel "$(squeue -h -o %A)"  # as at its time limit: SIGTERM, and SIGKILL after KillWait
claim "Slurm ends it" ends_in 60
claim "and nothing is left on the nodes" leaves_none
# Where parxrun could not either, the next check of the same user does.
claim "the nodes are idle" within 40 are_idle
live=$(sbatch --parsable -N 1 -o /dev/null --wrap 'sleep 100')
touch "/tmp/parx-1-0badf00d-stale" "/tmp/parx-$live-0badf00d-live"
claim "a check runs beside another job" in_a_job --overcommit "$bin/parx_slurm" check -- ./program
claim "it removes what a job has left that is over" test ! -e /tmp/parx-1-0badf00d-stale
claim "and leaves alone what is of one that runs" test -e "/tmp/parx-$live-0badf00d-live"
scancel "$live"; rm -f "/tmp/parx-$live-0badf00d-live"
# Fourteen faults at once, each on one node but for the last two: every one is named with its node and what
# to do. The task prolog of Slurm gives a node variables of its own; a preloaded library plays a wrong clock
# and a firewall.
if [ "$SLURM_TEST_MODE" = hosts ] && command -v cc >/dev/null && command -v python3 >/dev/null; then
  mkdir -p lib modules small output needed && echo 1 >needed/file && echo 'x = 1' >modules/planted.py
  echo 'int answer(void) { return 0; }' | cc -shared -fPIC -o lib/libanswer.so -x c -
  echo 'int answer(void); int main(void) { return answer(); }' | cc -o task -x c - -Llib -lanswer -Wl,-rpath,"$work/lib"
  { cat task; echo "parx compiled for: avx512_bf16"; } >old && chmod +x old
  cc -shared -fPIC -o plant.so -x c - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static int is(const char* what) { const char* plant = getenv("PLANT"); return plant && !strcmp(plant, what); }
static int listens;
int listen(int fd, int backlog) {
  int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
  listens = 1;
  return real(fd, backlog);
}
int clock_gettime(clockid_t id, struct timespec* at) {
  int (*real)(clockid_t, struct timespec*) = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, at);
  /* While the nodes meet: the port is open, and the clocks are to be compared. */
  if (id == CLOCK_REALTIME && listens && is("hang")) for (;;) pause();
  if (id == CLOCK_REALTIME && listens && is("death")) raise(SIGKILL);
  if (id == CLOCK_REALTIME && is("clock")) at->tv_sec += 5;
  return code;
}
int connect(int fd, const struct sockaddr* to, socklen_t size) {
  int (*real)(int, const struct sockaddr*, socklen_t) = (int (*)(int, const struct sockaddr*, socklen_t))dlsym(RTLD_NEXT, "connect");
  if (to->sa_family == AF_INET && is("firewall")) { errno = EHOSTUNREACH; return -1; }
  return real(fd, to, size);
}
END
  cat >prolog <<END
#!/bin/sh
case \$SLURMD_NODENAME in
  node2) echo "export PLANT=clock"; echo "export TMPDIR=$work/small" ;;
  node3) echo "export PLANT=firewall"; echo "export PARX_SOCKET_IFNAME=lo" ;;
esac
echo "export LD_PRELOAD=$work/plant.so"
END
  chmod +x prolog
  echo "TaskProlog=$work/prolog" >>"$SLURM_CONF" && scontrol reconfigure
  on node2 mount --bind "$work/old" "$work/task"
  on node2 mount -t tmpfs -o size=1m none "$work/small"
  on node2 mount -t tmpfs -o size=1m none /dev/shm
  on node2 mount -t tmpfs -o ro none "$work/output"
  prlimit --pid "$(slurmd_of node2)" --nofile=256:256
  on node3 mount -t tmpfs none "$work/lib"
  on node3 mount -t tmpfs none "$work/modules"
  on node3 mount -t tmpfs none "$work/needed"
  claim "the nodes are idle" within 40 are_idle
  # Where this machine's processor has what the old program was compiled for, node2 has an emulated one.
  tools=$bin
  if grep -q avx512_bf16 /proc/cpuinfo && command -v qemu-x86_64 >/dev/null; then
    tools=$work/tools
    mkdir tools && cp "$bin/parx_slurm" tools
    printf '#!/bin/sh\n[ $SLURMD_NODENAME != node2 ] || exec env -u LD_PRELOAD qemu-x86_64 -E "LD_PRELOAD=$LD_PRELOAD" -cpu Nehalem %s "$@"\nexec %s "$@"\n' \
      "$bin/parx_doctor" "$bin/parx_doctor" >tools/parx_doctor && chmod +x tools/parx_doctor
  fi
  checks() {
    PYTHONPATH=$work/modules in_a_job -t 1 "$tools/parx_slurm" check -n 20 -t 30m --mem 9000G --tmp 2M \
      --needs "$work/needed/file" --output "$work/output" --imports planted -- ./task
  }
  claim "nodes with fourteen faults are not fit" ends_with 4 checks
  found() { claim "$1: $2" says "^(!|note:) $1: $2.*\. [A-Z]"; }
  found node2 "its $work/task is another one than on most nodes"
  { [ "$tools" = "$bin" ] && grep -q avx512_bf16 /proc/cpuinfo; } || found node2 "the program was compiled for avx512_bf16, which its processor does not have"
  found node2 "its clock is 5\.0 s ahead of node1's"
  found node2 "1 MB are free in /dev/shm"
  found node2 "1 MB are free in $work/small, 2 MB are needed"
  found node2 "nothing can be written to $work/output: .*Read-only file system"
  found node2 "a process may open 256 files, and 60 ranks need about 304"
  found node3 "the program needs libanswer.so, which the node does not have"
  found node3 "Python cannot import planted: ModuleNotFoundError"
  found node3 "$work/needed/file cannot be read: No such file"
  found node3 "its name resolves to 127\.0\.1\.3, which other nodes cannot reach"
  found node3 "it cannot connect to the first node, node1: "
  found 'node\[1-3\]' ".* of memory are free, 9000 GB are needed"
  found 'node\[1-3\]' ".* left of the job, 30:00 are needed"
fi

# A node that dies or hangs while the nodes try their connections: the others are fit. To wait for one
# that hangs takes 20 s: of the first node, which the others meet, always, of another one with "all".
if [ "$SLURM_TEST_MODE" = hosts ] && [ -e plant.so ]; then
  on node2 umount /dev/shm
  for plant in death hang; do
    for node in node2 node1; do
      [ "$plant of $node" != "hang of node2" ] || [ "$form" = all ] || continue
      printf '#!/bin/sh\n[ $SLURMD_NODENAME != %s ] || echo "export PLANT=%s"\necho "export LD_PRELOAD=%s"\n' $node $plant "$work/plant.so" >prolog
      claim "the nodes are idle" within 60 are_idle
      claim "$plant of $node in the check is found" ends_with 4 in_a_job "$bin/parx_slurm" check
      claim "on that node" says "^! $node: (it did not answer the first node in time|it fell silent while the other nodes met there)"
      claim "and on no other" says '^1 of 3 nodes is not fit: '
    done
  done
  printf '#!/bin/sh\n' >prolog
fi

# A node whose /tmp is full takes no parx_doctor, but its slurmd answers.
if [ "$SLURM_TEST_MODE" = hosts ]; then
  claim "the nodes are idle" within 60 are_idle
  on node2 sh -c "mount --bind '$work' /mnt && mount -t tmpfs -o size=1m none /tmp && mkdir -p '$work' &&
                  mount --bind /mnt '$work' && umount /mnt && dd if=/dev/zero of=/tmp/fill bs=64k" 2>/dev/null
  claim "a node whose /tmp is full ends the run" ends_with 4 runs -N 3 -- ./program
  claim "and is named, with its room and what to do" says '^! node2: 0 MB are free in its /tmp, so nothing can be copied there\. Make room'
  claim "its slurmd is not blamed" ends_with 1 says 'slurmd is stopped'
  claim "the others are not" ends_with 1 says '^! node[13]'
  on node2 umount -l /tmp
fi
# A slurmd that is stopped: Slurm still counts the node as idle.
if [ "$SLURM_TEST_MODE" = hosts ]; then
  claim "the nodes are idle" within 40 are_idle
  kill -STOP "$(slurmd_of node2)"
  claim "a node whose slurmd is stopped ends the run" ends_with 4 runs -N 3 -- ./program
  kill -CONT "$(slurmd_of node2)"
  claim "and is named, alone, with what to do" says '^! node2: it did not answer.*\. [A-Z].*'
  claim "the others are not" ends_with 1 says '^! node[13]'
  stopped=$(grep -oE '/tmp/parx_doctor\.[0-9]+' "$work/out" | head -n 1)
  claim "the nodes are idle" within 60 are_idle
  claim "the next check finds nothing" in_a_job "$bin/parx_slurm" check
  claim "and removes what the node has got later" test ! -e "$stopped"
fi
# Slurm ends the job for it, and may do so before srun has said a word.
if [ "$SLURM_TEST_MODE" = hosts ] && [ "$form" = all ]; then
  claim "the nodes are idle" within 40 are_idle
  kill -STOP "$(slurmd_of node2)"
  (sleep 4; scontrol update nodename=node2 state=down reason=lost) &
  claim "a node that Slurm takes away ends the run" ends_with 4 runs -N 3 -- ./program
  wait $!
  claim "and is named, alone" says '^! node2: it did not answer'
  claim "the others are not" ends_with 1 says '^! node[13]'
  kill -CONT "$(slurmd_of node2)"
  scontrol update nodename=node2 state=resume
  claim "the node comes back" within 60 are_idle
fi

claim "the nodes are idle" within 40 are_idle
scontrol update nodename=node[1,3] features=avx512 && scontrol update nodename=node2 features=sse4_2
claim "a processor older than the program is kept out" ends_with 3 runs -N 3 -- ./program
claim "with the node and what to do" says '^node2 has the wrong processor: the program was compiled for AVX.*: compile it without -march=native'
writes() { shown=no; timeout 60 "$bin/parx_slurm" batch -N 2 -t 5m -- ./program >"$work/out" 2>&1; }
claim "a script of parx_slurm batch keeps it out as well" writes
claim "by a feature of the others" says '^#SBATCH --constraint=avx512$'
claim "and says why" says '^# Without node2: the program was compiled for AVX.*, which they do not have\.$'
sed -n '/^#!/,$p' "$work/out" >kept_out.sbatch
goes_around() { job=$(sbatch --parsable --wait kept_out.sbatch) && cat "program-$job.log" >"$work/out"; }
claim "Slurm starts it" goes_around
claim "on the others" says '^turn 0 of job [0-9]+ on node\[1,3\] '
scontrol update partitionname=test maxtime=4
claim "a script longer than its partition's limit is refused, which Slurm would take" ends_with 3 writes
claim "with the time that would do" says 'parx_slurm: -t 5:00 is longer than the limit of the default partition, 4:00: .* It would do with -t 4:00;'
scontrol update partitionname=test maxtime=infinite
have() { scontrol update nodename="$1" availablefeatures="$2" activefeatures="$2"; }
have 'node[1,3]' ''
claim "without such a feature a script is written" writes
claim "which leaves the node out by name" says '^#SBATCH --exclude=node2$'
have 'node[1,3]' sse4_2
claim "where all nodes are too old there is no script" ends_with 3 writes
claim "and the reason is said" says '^parx_slurm: the program was compiled for AVX.*, which no node of the default partition has'
printf '#!/bin/sh\necho nonsense\n' >sinfo && chmod +x sinfo
as_without() { shown=no; timeout 60 env PATH="$1" "$bin/parx_slurm" batch -N 2 -t 5m -- ./program >"$work/out" 2>&1; }
claim "a sinfo that tells nothing does not keep a script from being written" as_without "$work:$PATH"
claim "which has no such line" ends_with 1 says '^#SBATCH --(exclude|constraint)'
claim "nor does a host without Slurm" as_without /usr/nowhere
claim "where nobody could ask Slurm" says 'no sbatch here'

# The last one, for it takes a node: Slurm leaves the others, and the ranks go on.
if [ "$SLURM_TEST_MODE" = hosts ] && [ "$form" = all ]; then
  scontrol update nodename=node[1-3] availablefeatures= activefeatures=
  claim "the nodes are idle" within 60 are_idle
  printf '#!/bin/sh\necho "starts $RANK of $WORLD_SIZE"\n[ $WORLD_SIZE = 2 ] || exec sleep 100\nsleep 15\necho "rank $RANK ends"\n' >stays && chmod +x stays
  starts -N 2:3 -- ./stays
  claim "three nodes begin" within 40 says '\] starts 2 of 3'
  kill -9 "$(cut -d' ' -f1 "/proc/$(cat "$work/slurm/run/node2.launcher")/task/"*/children)"
  claim "where one is lost, the run ends well" ends_in 60
  claim "with the job's code" test "$code" = 0
  claim "on the others" says '\] rank 1 ends'
  claim "though Slurm has lost the node" says 'error: Node failure on node2'
fi
[ $failures = 0 ]
