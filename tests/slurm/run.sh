#!/bin/bash
# parx programs under a real srun, on a private Slurm of three nodes:   run.sh BIN_DIR
# BIN_DIR holds hello_all_reduce, train_mnist and perhaps train_cnn. Exit code 77: there is no Slurm to try it with.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh" "$1"
losses_fall() { grep -oE 'epoch [0-9]+: loss [0-9.]+' "$work/out" | awk '{ if (NR > 1 && $4 + 0 >= last + 0) exit 1; last = $4; n = NR } END { exit n < 2 }'; }

claim "hello_all_reduce ends well on 3 nodes with 2 tasks each" step -N 3 --ntasks-per-node=2 "$bin/hello_all_reduce"
claim "every rank from 0 to 5 is there once and sees a world of 6" ranks_are 6
claim "the ranks sum to 15" says 'sum of ranks = 15'
claim "an uneven step of 5 tasks in cyclic order works" step -N 3 -n 5 -m cyclic "$bin/hello_all_reduce"
claim "its ranks are 0 to 4" ranks_are 5
claim "a step of one task is a world of one" step -n 1 "$bin/hello_all_reduce"
claim "its only rank is 0" ranks_are 1
if [ -x "$bin/parxrun" ]; then
  claim "one parxrun on each node, with -n alone, is one world" step -N 3 --ntasks-per-node=1 "$bin/parxrun" -n 2 "$bin/hello_all_reduce"
  claim "its ranks are 0 to 5" ranks_are 6
  refused() { ! step "$@"; }
  claim "two parxrun on each node are refused" refused -N 2 --ntasks-per-node=2 "$bin/parxrun" -n 2 true
  claim "they say what to do" says 'srun --ntasks-per-node=1 parxrun'
  # -K0: the first code that srun sees ends the others otherwise.
  claim "a failed rank is started again on all nodes" step -K0 -N 2 --ntasks-per-node=1 "$bin/parxrun" --max-restarts 1 -n 2 \
    sh -c 'echo "$RANK in attempt $TORCHELASTIC_RESTART_COUNT"; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK = 3 ] && exit 4; exec sleep 60; }'
  claim "all have had two attempts" says '0 in attempt 1'
fi
claim "train_mnist ends well on 6 ranks" step -N 3 --ntasks-per-node=2 "$bin/train_mnist" --epochs 2 --save "$work/model.safetensors"
claim "it has 6 ranks" says '^6 ranks on (3 hosts|1 host)$'  # the nodes may be of one host
claim "its loss falls" losses_fall
claim "its parameters are bit-equal on all ranks" says 'parameters are bit-equal on all 6 ranks'
claim "its model is saved" test -s "$work/model.safetensors"

# The trainers, as far as they are built, for a few steps on the text or images that they bring.
for name in train_tinybert train_cnn train_gpt train_summarizer; do
  [ -x "$bin/$name" ] || continue
  case $name in
    train_gpt) small="--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --eval-batch-size 512 --sample 8" ;;
    train_summarizer) small="--d-model 32 --beams 1 --max-target-length 8" ;;
    train_cnn) small="--channels 2" ;;
    *) small= ;;
  esac
  claim "$name ends well on 3 nodes" step -N 3 --ntasks-per-node=1 "$bin/$name" \
    --max-steps 4 --logging-steps 2 --eval-strategy no --disable-progress --output-dir "$work/$name" $small
  claim "it names its ranks" says "^3 ranks on (3 hosts|1 host)$"  # the nodes may be of one host
  claim "rank 0 logs, and alone" test "$(grep -c "'train_runtime'" "$work/out")" = 1
  claim "its checkpoint is whole" test -s "$work/$name/checkpoint-4/manifest.json"
done

# Trees: the model of one rank, from 6 ranks on 3 nodes.
if [ -x "$bin/train_trees" ]; then
  awk 'BEGIN { print "a,b,c,bought"; for (i = 0; i < 3000; ++i) {
    a = (i * 7919) % 1009; b = (i * 104729) % 7; c = (i * 31) % 97
    print a / 17 "," (i % 5 ? b : "") "," c "," ((a > 500) != (b < 3) || c > 80) } }' >"$work/table.csv"
  trees="--data $work/table.csv --label bought --objective binary:logistic --max-depth 4 --subsample 0.8 --num-round 8"
  claim "train_trees ends well on one rank" step -n 1 "$bin/train_trees" $trees --save "$work/one.json"
  claim "and on 6 ranks of 3 nodes" step -N 3 --ntasks-per-node=2 "$bin/train_trees" $trees --save "$work/six.json"
  claim "it names its ranks" says '^6 ranks on (3 hosts|1 host)$'  # the nodes may be of one host
  claim "its model has the same bytes" cmp -s "$work/one.json" "$work/six.json"
fi

# Stages over nodes, each with its copies on the same node; the losses are those of two ranks.
if [ -x "$bin/train_gpt" ]; then
  figures() { grep -oE "'(loss|grad_norm)': [0-9.]+" "$work/out" | grep -oE '[0-9.]+$'; }
  figures_are_kept() {
    figures | paste - "$work/kept" | awk '{ if (($1 - $2) ^ 2 > (2e-4 * $2) ^ 2) exit 1 } END { exit NR != 8 }'
  }
  small="--n-layer 4 --n-head 2 --n-embd 16 --block-size 16 --max-steps 4 --logging-steps 1 --eval-strategy no --eval-batch-size 512 --sample 8 --disable-progress"
  claim "train_gpt ends well on 2 ranks" step -N 1 --ntasks-per-node=2 "$bin/train_gpt" $small
  figures >"$work/kept"
  claim "and in three stages of two copies each on 3 nodes" step -N 3 --ntasks-per-node=2 \
    "$bin/train_gpt" $small --parallel pp=3,dp=2,schedule=zb1p --output-dir "$work/stages"
  claim "it names its six ranks" says '^6 ranks on (3 hosts|1 host)$'  # the nodes may be of one host
  claim "its losses and norms are those of two ranks" figures_are_kept
  claim "its ranks have written one model" test -s "$work/stages/model/model.safetensors"
fi

# The batch script of the examples: a signal as before the end of the time limit, and the next turn.
if [ -x "$bin/train_cnn" ]; then
  shown=no
  : >"$work/out"
  script=$here/../../examples/slurm/train.sbatch
  job=$(PARX_PROGRAM=$bin/train_cnn sbatch --parsable -N 2 --ntasks-per-node=1 --output "$work/out" "$script" \
          --channels 2 --max-steps 1000000 --logging-steps 2 --eval-strategy no --disable-progress)
  claim "a job of examples/slurm/train.sbatch trains" within 120 says "'loss': "
  scancel --signal=USR1 "$job"
  claim "SIGUSR1 stops it with a checkpoint" within 60 says 'stopped by SIGUSR1 at step [0-9]+; checkpoint in .*/checkpoint-'
  is_requeued() { scontrol show job "$job" | grep -q 'Restarts=1'; }
  claim "and it is put into the queue again" within 60 is_requeued
  claim "with one checkpoint in its folder" test "$(echo parx-train-"$job"/checkpoint-*/manifest.json | wc -w)" = 1
  scancel "$job"
fi

# parx_slurm: the partition of a job, and whether its nodes are fit.
if [ -x "$bin/parx_slurm" ] && [ -x "$bin/parx_doctor" ]; then
  asks() { shown=no; timeout 60 "$bin/parx_slurm" "$@" >"$work/out" 2>&1; }
  in_a_job() { shown=no; timeout 60 salloc -Q -I10 -N 3 --ntasks-per-node=1 -c 2 "$bin/parx_slurm" "$@" >"$work/out" 2>&1; }
  claim "the nodes are idle again" within 120 are_idle
  claim "parx_slurm where finds the partition" asks where -N 3 --cores 8 -t 30m
  claim "and prints the line to type" says '^best: salloc -p test -N 3 --ntasks-per-node=1 -c 8 -t 30$'
  claim "its cores may be -c as salloc has them" asks where -N 3 -c 8 -t 30m
  claim "with the same line" says '^best: salloc -p test -N 3 --ntasks-per-node=1 -c 8 -t 30$'
  claim "without a word parx_slurm ends with 2" ends_with 2 asks
  claim "and lists the words" says 'parx_slurm where FLAGS'
  claim "it exits with 3 where there are too few nodes" ends_with 3 asks where -N 4 --cores 8
  claim "and says how many there are" says 'nearest: test has 3 of 4: it would do with -N 3$'
  # A program that saves and returns 75 at each of its first turns: turn 2 is the last one.
  cat >turns.sh <<'END'
#!/bin/bash
mkdir -p "$2"
[ "$SLURM_PROCID" = 0 ] || exec sleep 0.2
turn=$(cat "$2/turn" 2>/dev/null || echo 0)
echo $((turn + 1)) >"$2/turn"
echo "this is turn $turn"
[ "$3" = stuck ] || mkdir "$2/checkpoint-$turn"
[ "$turn" -lt "$4" ] || exit 0
exit 75
END
  chmod +x turns.sh
  # turns NAME ARGUMENT...: submits it, and lets each requeued turn begin at once (Slurm waits for two minutes).
  turns() {
    "$bin/parx_slurm" batch -N 2 -c 2 -t 10m -J "$1" -- ./turns.sh --output-dir "$@" >"$1.sbatch" 2>"$work/out" || return 1
    local job i; job=$(sbatch --parsable "$1.sbatch") || return 1
    for i in $(seq 300); do
      scontrol update "jobid=$job" StartTime=now 2>/dev/null
      scontrol show job "$job" | grep -qE 'JobState=(COMPLETED|FAILED)' && break
      sleep 0.2
    done
    cat "$1-$job.log" >"$work/out"
    scontrol show job "$job" >>"$work/out"
  }
  shown=no
  claim "a script of parx_slurm batch runs" turns saves goes 2
  claim "it goes on, turn by turn, in one log, until the program has ended" \
    test "$(grep -c '^this is turn [012]$' "$work/out")$(grep -oE 'JobState=[A-Z]+' "$work/out")" = 3JobState=COMPLETED
  shown=no
  claim "and one whose turns get nowhere" turns stuck stuck 9
  claim "ends after three of them" test "$(grep -c '^this is turn' "$work/out")$(grep -oE 'JobState=[A-Z]+' "$work/out")" = 3JobState=FAILED
  claim "and says why" says 'three turns without a new checkpoint in stuck'
  shown=no
  claim "parx_slurm logs exits with 0 for the one that ended well" asks logs "$(ls saves-*.log | grep -oE '[0-9]+')"
  claim "and says so" says 'the job ended well'
  claim "and tells with 4 how the other one ended" ends_with 4 asks logs "$(ls stuck-*.log | grep -oE '[0-9]+')"
  claim "with Slurm's verdict" says 'state   FAILED, exit code 1:0: '
  claim "and its turns" says 'turns   3$'
  # A rank that fails under srun alone, and one under parxrun.
  printf '#!/bin/sh\nr=${RANK:-$SLURM_PROCID}\necho "[RANK $r] WORLD_SIZE=4 works"\nsleep 0.5\n[ $r != 3 ] || { echo "[RANK 3] ValueError: Error: no" >&2; exit 1; }\nexec sleep 20\n' >fails && chmod +x fails
  ends_badly() { ! step "$@"; }
  claim "a rank fails under srun" ends_badly -N 2 --ntasks-per-node=2 ./fails
  cp "$work/out" srun.log
  claim "parx_slurm logs reads its log" ends_with 4 asks logs srun.log
  claim "and names rank and node" says '^first error, rank 3 on node2, srun.log line [0-9]+'
  claim "with the lines of that rank" test "$(grep -c '^  [ >] ' "$work/out")" = "$(grep -c '^  [ >] .*\[RANK 3\]' "$work/out")"
  claim "a rank fails under parxrun" ends_badly -K0 -N 2 --ntasks-per-node=1 "$bin/parxrun" -n 2 ./fails
  cp "$work/out" parxrun.log
  claim "parx_slurm logs reads that as well" ends_with 4 asks logs parxrun.log
  claim "and names rank and node" says '^first error, rank 3 on node2, parxrun.log line [0-9]+'
  claim "a rank fails with a folder of logs" ends_badly -K0 -N 2 --ntasks-per-node=1 "$bin/parxrun" --log-dir tree -n 2 ./fails
  claim "parx_slurm logs reads the folder" ends_with 4 asks logs "$(dirname tree/*/attempt_0.1/n1.r3.err)"
  claim "and names rank and node" says '^first error, rank 3 on node2, .*/n1.r3.err line 1'
  # An array: each task has its own end, and the worst is told whole.
  cat >array.sbatch <<'END'
#!/bin/bash
#SBATCH --array=0-2
#SBATCH --output=array-%A_%a.log
echo "turn 0 of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
[ $SLURM_ARRAY_TASK_ID != 1 ] || { echo "[rank 0] ValueError: Error: no"; exit 3; }
END
  array_ends() {
    local job; job=$(sbatch --parsable array.sbatch) || return 1
    are_over() { [ "$(scontrol show job -o "$job" | grep -cE 'JobState=(COMPLETED|FAILED)')" = 3 ]; }
    within 60 are_over && ends_with 4 asks logs "$job"
  }
  claim "parx_slurm logs reads an array" array_ends
  claim "it counts how its tasks ended" says '^job [0-9]+: 2 COMPLETED, 1 FAILED$'
  claim "each has its own verdict" says '^  [0-9]+_2  COMPLETED: no line of 1 tells of an error: the job ended well$'
  claim "also that which failed" says '^  [0-9]+_1  FAILED, exit code 3:0: first error, rank 0, .*array-[0-9]+_1.log line 2$'
  claim "and the worst is told whole" says '^  state   FAILED, exit code 3:0: '
  claim "logs of several tasks in a folder are not one" ends_with 4 asks logs .
  claim "which Slurm is not asked for" says '^  [0-9]+_0: no line of 1 tells of an error$'
  claim "a log that cannot be read is no success" ends_with 3 asks logs /proc/self/mem
  claim "and it says why" says '^  log     /proc/self/mem cannot be read: Input/output error'
  claim "and no more" ends_with 1 says 'tells of an error'
  claim "a job without logs is refused" ends_with 3 asks logs 99999
  claim "and it says where it looked" says 'no logs of 99999: looked at '
  claim "a partition that there is not is refused" ends_with 3 asks batch -p nowhere -- ./turns.sh
  claim "in Slurm's words" says 'Slurm would refuse this job: .*[Ii]nvalid partition'
  claim "a program that is to save nothing gets a script" asks batch -N 2 -- ./turns.sh --save_strategy=no
  claim "and a warning" says 'with --save-strategy no the program saves nothing'
  claim "an image that is not there is refused" ends_with 2 asks batch --container none.sif -- true
  claim "by its name" says '^parx_slurm: --container none.sif: No such file or directory'
  claim "a program that is not here gets a script" asks batch -- ./none
  claim "and a note" says '^parx_slurm: .*/none: No such file or directory.*; the job looks for it on its nodes'
  claim "a program of PATH gets a script" asks batch -- ls /
  claim "with its absolute path" says "^srun .*/bin/ls / "
  # Slurm and bash read a script of any texts as these texts.
  printf '#!/bin/sh\nprintf "<%%s>" "$@"\n' >words && chmod +x words
  odd=("new
touch ran
line" : '$(touch ran)' "it's" '' -n '#' "end")
  claim "arguments of any characters get a script" asks batch -J "it's \"a\" #1" -- ./words "${odd[@]}"
  sed -n '/^#!/,$p' "$work/out" >odd.sbatch
  submits_odd() {
    local job; job=$(sbatch --parsable odd.sbatch) || return 1
    is_done() { scontrol show job "$job" | grep -q JobState=COMPLETED; }
    within 60 is_done && cat "it's \"a\" #1-$job.log" >"$work/out"
  }
  claim "Slurm runs it, with a log of that name" submits_odd
  claim "the program gets them as they are" test "$(sed '1d' "$work/out")" = "$(printf '<%s>' "${odd[@]}")"
  claim "and nothing else runs" test ! -e ran
  for run in old1 old2; do
    mkdir $run && echo "{\"hosts\": \"${run#old}\", \"ranks\": \"4\", \"threads of a rank\": \"1\", \"samples of an epoch\": \"1,000\"}" >$run/run.json
    echo '{"step_ms": 10, "samples_per_second": 100}' >$run/train.jsonl
  done
  for words in '--price 0.03 old1 old2' '--price=0.03 old1 old2' 'old1 old2 --price 0.03' 'old1 --price 0.03 old2'; do
    claim "parx_slurm scale $words makes a table" asks scale $words
    claim "of both runs" test "$(grep -cE '^ +[12] +[24] +1 ' "$work/out")" = 2
    claim "with their prices" says 'price'
  done
  claim "check outside of a job is refused" ends_with 2 asks check
  claim "and says what to do" says 'this is not inside a job of Slurm: salloc first'
  shown=no
  runs() { timeout 60 "$bin/parx_slurm" run -N 3 -n 2 -t 5m "$@" >"$work/out" 2>&1; }
  mkdir project && cp "$bin/hello_all_reduce" project/hello
  claim "parx_slurm run allocates, checks and runs" runs -- "$work/project/hello"
  claim "with the ranks of all nodes in one world" ranks_are 6
  claim "and prints each command" test "$(grep -cE '^\$ (salloc|srun)' "$work/out")" = 3
  shown=no
  claim "its --dry-run only prints them" ends_with 0 runs --dry-run -- "$work/project/hello"
  claim "with a name for the job's number" says '/tmp/parx_doctor\.\$SLURM_JOB_ID '
  claim "so that no job is left" test -z "$(squeue -h)"
  goes_on() { shown=no; timeout 60 "$bin/parx_slurm" run -N 2:3 --dry-run -- "$work/project/hello" >"$work/out" 2>&1; }
  claim "-N MIN:MAX is for a job that goes on without lost nodes" goes_on
  claim "its allocation outlives a node" says '^\$ salloc -p test -N 3 .* --no-kill$'
  claim "and so does its step" says '^\$ srun .* -N 3 .* --no-kill .* --nnodes 2:3 --max-restarts 3 -- '
  if [ "$SLURM_TEST_MODE" = hosts ]; then
    on node3 mount -t tmpfs none "$work/project"
    shown=no
    claim "run copies the program where a node does not see it" runs -- "$work/project/hello"
    claim "by sbcast" says '^\$ sbcast -f -p -j [0-9]+ .*/project/hello /tmp/parx-'
    claim "and runs the copies" ranks_are 6
    claim "of which it leaves none" leaves_none
  fi
  mkdir data && echo 1 >data/file && cp "$bin/hello_all_reduce" program
  claim "parx_slurm check finds nothing on good nodes" in_a_job check --needs "$work/data/file" --output "$work" -- ./program
  claim "and has a line for each" test "$(grep -cE '^node[123]  ok  ' "$work/out")" = 3
  if [ "$SLURM_TEST_MODE" = hosts ]; then
    cp "$bin/parx_doctor" old
    on node2 mount --bind "$work/old" "$work/program"
    on node3 mount -t tmpfs none "$work/data"
    on node1 mount -t tmpfs -o size=1m none /dev/shm
    claim "check exits with 4 where nodes are not fit" ends_with 4 in_a_job check --needs "$work/data/file" -- ./program
    claim "it finds the old program" says '^! node2: its .*/program is another one than on most nodes'
    claim "and the missing data" says '^! node3: .*/data/file cannot be read: No such file'
    claim "and the full /dev/shm" says '^! node1: 1 MB are free in /dev/shm'
    claim "and says that none is left to go on with" says '^no node is fit: mend that first$'
  fi
fi
[ $failures = 0 ]
