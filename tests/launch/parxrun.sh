#!/bin/bash
# What parxrun promises, tried on small shell programs:   parxrun.sh PATH_TO_PARXRUN
# Each claim is a function; it fails when one of its commands does.
set -u -m
parxrun=$1
hello=$(dirname "$1")/hello_all_reduce
exec 3>&1  # for what must be said though the claims hold
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
claims=0 failures=0

# claim NAME: runs the function NAME, and shows what it saw when it fails.
claim() {
  local code
  claims=$((claims + 1))
  # Not inside "if", where set -e would mean nothing.
  (set -eu; "$1") >"$work/log" 2>&1
  code=$?
  [ $code != 0 ] || return 0
  failures=$((failures + 1))
  echo "FAILED: ${1//_/ }"
  sed 's/^/    /' "$work/log" "$work/out" "$work/err" 2>/dev/null
}
# run EXPECTED_CODE ARGUMENT...: parxrun's output goes to the files out and err.
run() {
  local expected=$1 code=0; shift
  timeout 20 "$parxrun" "$@" >out 2>err </dev/null || code=$?
  [ "$code" = "$expected" ] || { echo "exit code $code, not $expected"; return 1; }
}
# start ARGUMENT...: in the background, its pid in $job; waits for the file "ready".
start() { rm -f ready; env --default-signal "$parxrun" "$@" >out 2>err & job=$!; for _ in $(seq 200); do [ -e ready ] && return; sleep 0.02; done; return 1; }
has() { grep -qF -- "$2" "$1" || { echo "no \"$2\" in $1"; return 1; }; }
gone() { local p; for p in "$@"; do for _ in $(seq 100); do [ -d "/proc/$p" ] && ! grep -q '^State:.Z' "/proc/$p/status" || break; sleep 0.02; done
         [ ! -d "/proc/$p" ] || grep -q '^State:.Z' "/proc/$p/status" || { echo "process $p is still there"; return 1; }; done; }
now() { date +%s%3N; }

each_rank_gets_both_families_of_variables() {
  run 0 -n 3 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $PARX_RANK/$PARX_WORLD_SIZE \
    $PARX_LOCAL_RANK/$PARX_LOCAL_WORLD_SIZE $MASTER_ADDR=$PARX_MASTER_ADDR $((MASTER_PORT - PARX_MASTER_PORT))'
  for r in 0 1 2; do has out "[rank $r] $r/3 $r/3 $r/3 $r/3 127.0.0.1=127.0.0.1 0"; done
}
np_is_another_name_of_n() { run 0 -np 2 sh -c 'echo $RANK/$WORLD_SIZE'; has out '[rank 1] 1/2'; }
the_secret_is_the_same_for_all_ranks_and_new_for_each_job() {
  run 0 -n 2 --tag-output=false sh -c 'echo $(cat $PARX_SECRET_FILE) $PARX_RUN_ID $MASTER_PORT'; sort -u out >first
  run 0 -n 2 --tag-output=false sh -c 'echo $(cat $PARX_SECRET_FILE) $PARX_RUN_ID $MASTER_PORT'; sort -u out >second
  [ "$(wc -l <first)" = 1 ] && [ "$(wc -l <second)" = 1 ]
  grep -Eq '^[0-9a-f]{32} [0-9a-f]{32} [0-9]+$' first
  [ "$(cut -d' ' -f1 first)" != "$(cut -d' ' -f1 second)" ]
}
the_secret_is_nowhere_in_the_environment_of_the_ranks() {
  export PARX_SECRET=outer
  run 0 -n 2 --tag-output=false sh -c 'env | grep -c "$(cat $PARX_SECRET_FILE)"; echo "<$PARX_SECRET>"; stat -L -c %a $PARX_SECRET_FILE'
  [ "$(sort -u out | tr '\n' ' ')" = '0 600 <> ' ]
}
an_outer_launchers_rank_is_taken_away() {
  export OMPI_COMM_WORLD_RANK=5 PMI_RANK=5 SLURM_PROCID=5 TORCHELASTIC_USE_AGENT_STORE=True RANK=5 SLURM_JOB_ID=9
  run 0 -n 2 sh -c 'echo "<$OMPI_COMM_WORLD_RANK$PMI_RANK$SLURM_PROCID$TORCHELASTIC_USE_AGENT_STORE>" $SLURM_JOB_ID'
  has out '[rank 1] <False> 9'
}
the_threads_of_a_rank_are_its_share_of_the_cores_unless_set() {
  unset OMP_NUM_THREADS
  run 0 -n 64 sh -c 'echo $OMP_NUM_THREADS'; has out '[rank 63] 1'
  run 0 -n 1 sh -c 'echo $OMP_NUM_THREADS'; [ "$(cat out)" = "$(nproc)" ]
  run 0 -n 2 --env OMP_NUM_THREADS=7 sh -c 'echo $OMP_NUM_THREADS'; has out '[rank 0] 7'
  run 0 -n 2 --threads 3 sh -c 'echo $OMP_NUM_THREADS $PARX_THREADS'; has out '[rank 1] 3 3'
  run 2 -n 2 --threads 0 true; has err 'threads'
}
ranks_say_how_many_threads_they_have_and_why() {
  run 2 -n 2 --env PARX_THREADS=none "$hello"; has err 'PARX_THREADS="none" is not a number of threads from 1'
  run 0 -n 2 --threads 1 "$hello"; ! grep -q thread err
  [ "$(nproc)" -ge 2 ] || return 0
  run 0 -n 1 --threads 2 "$hello"; has err '1 rank x 2 threads (PARX_THREADS=2)'; [ "$(grep -c threads err)" = 1 ]
  run 0 -n 1 --threads 2 --env PARX_LOG_LEVEL=error "$hello"; ! grep -q thread err
  run 0 -n 1 --threads 4000 "$hello"; has err "(PARX_THREADS=4000, $(nproc) cores)"
  run 0 -n 1 --threads 2 taskset -c "$(taskset -cp $$ | grep -o '[0-9]*$')" "$hello"; has err '1 rank x 1 thread (PARX_THREADS=2, 1 core)'
  run 0 -n "$(nproc)" --threads "$(nproc)" "$hello"; has err "$(nproc) ranks x 1 thread (PARX_THREADS=$(nproc), $(nproc) ranks on $(nproc) cores)"
  run 0 -n 1 env OMP_NUM_THREADS= SLURM_CPUS_PER_TASK=2 "$hello"; has err '1 rank x 2 threads (SLURM_CPUS_PER_TASK=2)'
}
messages_quote_variables_in_one_line() {
  run 2 -n 1 --env PARX_THREADS=$'a\nb' "$hello"; has err 'PARX_THREADS="a\x0ab" is not a number of threads'
  run 0 -n 1 --env PARX_LOG_LEVEL=$'a\nb' "$hello"; has err 'PARX_LOG_LEVEL="a\x0ab" is none of error'
  run 1 -n 1 --env PARX_ALGO_FILE=$'a\nb' "$hello"; has err 'PARX_ALGO_FILE="a\x0ab": the file cannot be read: No such file'
}
variables_given_on_the_command_line_arrive_whole() {
  run 0 -n 2 --env A=1,2=3 --env 'B=x y' --env C= -- sh -c 'echo "$A|$B|$C|"'; has out '[rank 1] 1,2=3|x y||'
  run 2 -n 2 --env A sh -c true; has err 'NAME=VALUE'
}
lines_never_mix_and_keep_their_order_and_stream() {
  run 0 -n 4 sh -c 'i=0; while [ $i -lt 500 ]; do printf "%s" "$RANK-"; echo "$i-abcdefghijklmnopqrstuvwxyz"; i=$((i+1)); done; echo warned >&2'
  [ "$(wc -l <out)" = 2000 ]
  for r in 0 1 2 3; do
    grep -F "[rank $r] " out | cut -d' ' -f3 >got
    for i in $(seq 0 499); do echo "$r-$i-abcdefghijklmnopqrstuvwxyz"; done | cmp - got
    has err "[rank $r] warned"
  done
}
a_last_line_without_a_line_feed_is_shown() { run 0 -n 2 printf 'no end'; has out '[rank 0] no end'; has out '[rank 1] no end'; }
a_carriage_return_in_a_file_stays_as_it_was() { run 0 -n 2 printf '1\r2\n'; grep -q $'^\[rank 1\] 1\r2$' out; }
much_output_passes_whole_through_a_slow_reader() {
  "$parxrun" -n 2 sh -c 'head -c 3000000 /dev/zero | tr "\0" x | fold -w 99; echo' | { sleep 0.5; wc -c; } >count
  # per rank: 3000000 characters in 30304 lines, each with a line feed and a prefix of 9
  [ "$(cat count)" = $((2 * (3000000 + 30304 * 10))) ] || { cat count; return 1; }
}
a_single_rank_writes_as_if_started_alone() { run 0 -n 1 sh -c 'echo plain; [ -t 1 ] || echo file'; [ "$(cat out)" = $'plain\nfile' ]; }
on_a_terminal_rank_0_finds_a_terminal_and_its_progress_bar_stays_last() {
  cat >bar.sh <<'END'
if [ "$RANK" = 0 ]; then
  [ -t 2 ] && echo is-terminal >&2
  printf '\r10%%' >&2; sleep 0.4; printf '\r20%%\n' >&2
else sleep 0.2; [ -t 2 ] || echo is-pipe >&2; fi
END
  script -qec "$parxrun -n 2 sh bar.sh" /dev/null >out </dev/null
  has out '[rank 0] is-terminal'; has out '[rank 1] is-pipe'
  # The other rank's line takes the bar's place, and the bar is drawn again below it.
  tr -d '\r\n' <out | grep -qF $'[rank 0] 10%\x1b[K[rank 1] is-pipe[rank 0] 10%'
  grep -qF '[rank 0] 20%' out
}
log_files_hold_each_ranks_two_streams() {
  run 0 -n 3 --log-dir logs/deep sh -c 'echo out $RANK; echo err $RANK >&2'
  for r in 0 1 2; do [ "$(cat logs/deep/rank_$r.out)" = "out $r" ]; [ "$(cat logs/deep/rank_$r.err)" = "err $r" ]; done
  [ ! -s out ] && [ ! -s err ]
  run 9 -n 2 --log-dir logs sh -c 'echo bad news >&2; [ $RANK = 0 ] && sleep 9; exit 9'
  has err 'logs/rank_1.err'; has err '| bad news'
  touch blocked; run 2 -n 2 --log-dir blocked/x true; has err 'blocked/x'
}
only_rank_0_has_the_standard_input() {
  echo words >input
  timeout 9 "$parxrun" -n 2 sh -c 'cat; echo end' <input >out
  has out '[rank 0] words'; has out '[rank 1] end'
  [ "$(grep -c words out)" = 1 ]
}
the_first_failing_ranks_code_is_parxruns_and_the_others_end_within_a_second() {
  local before; before=$(now)
  run 7 -n 4 sh -c 'echo $$ >pid.$RANK; [ $RANK = 2 ] && { echo "cannot open data" >&2; exit 7; }; sleep 60 & wait'
  [ $(($(now) - before)) -lt 1500 ]
  has err 'rank 2 of 4 failed: exit code 7'; has err '[rank 2] cannot open data'; has err 'ranks 0,1,3: killed by SIGTERM'
  gone $(cat pid.*)
}
its_last_lines_are_shown_again_where_others_have_written_much_after_them() {
  run 7 -n 2 sh -c '[ $RANK = 1 ] && { echo "cannot open data" >&2; sleep 0.2; exit 7; }; for i in $(seq 99); do sleep 0.001; echo $i; done; exec sleep 9'
  has err '    | cannot open data'
}
a_killed_rank_is_reported_by_its_signal() {
  run 137 -n 3 sh -c '[ $RANK = 1 ] && kill -9 $$; exec sleep 60'; has err 'rank 1 of 3 failed: killed by SIGKILL (signal 9)'
  run 134 -n 2 sh -c '[ $RANK = 0 ] && kill -ABRT $$; exec sleep 60'; has err 'rank 0 of 2 failed: killed by SIGABRT'
}
an_answer_that_all_ranks_give_is_no_crash() {
  run 3 -n 3 sh -c 'exit 3'; [ "$(cat err)" = 'parxrun: all 3 ranks ended with exit code 3: sh -c exit 3' ]
  run 3 -n 3 sh -c 'echo why >&2; exit 3'; has err 'of 3 failed: exit code 3'
}
others_may_say_what_they_saw_before_they_are_ended() {
  run 5 -n 2 sh -c '[ $RANK = 1 ] && exit 5; sleep 0.05; echo "lost rank 1" >&2; exit 6'
  has err '[rank 0] lost rank 1'; has err 'rank 1 of 2 failed: exit code 5'
}
# leave.sh CODE BLAMED TEXT: writes the record of a rank's failure, as parx does.
leave_sh='printf "{\"message\": {\"message\": \"%s\", \"extraInfo\": {\"timestamp\": \"1\", \"parx\":
  {\"code\": \"%s\", \"group\": \"world\", \"operation\": \"barrier\", \"rank\": %s, \"blamed\": %s}}}}" "$3" "$1" "$RANK" "$2" >"$TORCHELASTIC_ERROR_FILE"'
a_rank_that_blames_another_is_not_the_cause_although_it_ended_first() {
  echo "$leave_sh" >leave.sh
  cat >echo.sh <<'END'
case $RANK in
  0) sh leave.sh "$CODE" 1 "any sentence"; echo "any words" >&2; exit 1 ;;
  1) sleep 0.1; echo "no data" >&2; exit 7 ;;
  *) exec sleep 60 ;;
esac
END
  for code in aborted peer_lost timeout mismatch; do
    run 7 -n 3 --env CODE=$code sh echo.sh; has err 'rank 1 of 3 failed: exit code 7'; has err '[rank 1] no data'
    run 7 -n 3 --env CODE=$code --env PARX_RECORDER=off sh echo.sh; has err 'rank 1 of 3 failed: exit code 7'
  done
  run 7 -n 3 --env CODE=aborted --log-dir echo_logs sh echo.sh; has err 'rank 1 of 3 failed: exit code 7'; has err 'echo_logs/rank_1.err'
  # It has not failed itself, but is blamed.
  run 1 -n 2 --env CODE=timeout sh -c '[ $RANK = 1 ] && exec sleep 60; exec sh echo.sh'
  has err 'parxrun: rank 1 did not come or did not go on while rank 0 waited for it in barrier on group "world"'
  has err 'told by   rank 0 of 2 failed: exit code 1'
}
a_rank_whose_record_cannot_be_written_is_judged_by_those_of_the_others() {
  echo "$leave_sh" >leave.sh
  run 137 -n 3 sh -c 'case $RANK in 0) echo half >"$TORCHELASTIC_ERROR_FILE"; exit 1 ;; 1) sleep 0.1; kill -9 $$ ;; 2) sh leave.sh peer_lost 1 x; exit 1 ;; esac'
  has err 'rank 1 of 3 failed: killed by SIGKILL'
  mkdir own; export PARX_RECORDER=$PWD/own/flight; touch own/flight  # no directory
  run 7 -n 2 sh -c '[ -z "$TORCHELASTIC_ERROR_FILE" ] || echo set; [ $RANK = 0 ] && exit 7; sleep 60'
  has err 'rank 0 of 2 failed: exit code 7'; ! grep -q set out
}
records_of_an_earlier_job_are_not_read() {
  export PARX_RECORDER=$PWD/records; echo "$leave_sh" >leave.sh
  run 3 -n 2 sh -c 'sh leave.sh aborted 1 x; [ $RANK = 0 ] && exit 3; exit 3'; ls records | grep -q rank_0
  run 5 -n 2 sh -c '[ $RANK = 0 ] && exit 5; exec sleep 60'; has err 'parxrun: rank 0 of 2 failed: exit code 5'
}
what_a_job_without_failures_leaves_is_no_file() {
  export XDG_RUNTIME_DIR=$PWD/runtime; mkdir runtime
  run 0 -n 2 sh -c '[ -d "${TORCHELASTIC_ERROR_FILE%/*}" ]'; [ -z "$(ls runtime)" ]
  run 3 -n 2 sh -c 'exit 3'; [ -z "$(ls runtime)" ]
  run 3 -n 2 --env PARX_RECORDER=off sh -c 'echo >$TORCHELASTIC_ERROR_FILE; exit 3'; [ -z "$(ls runtime)" ]
}
the_error_of_a_python_rank_is_read_from_the_file_that_pytorch_writes() {
  command -v python3 || return 0
  cat >fail.py <<'END'
import json, os, sys, time, traceback
if os.environ["RANK"] == "1":
    time.sleep(60)
try:
    open("no such data")
except OSError as error:  # as torch.distributed.elastic.multiprocessing.errors.ErrorHandler does
    data = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": {
        "py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file: json.dump(data, file)
    sys.exit(1)
END
  run 1 -n 2 python3 fail.py
  has err 'rank 0 of 2 failed: exit code 1'; has err "error     FileNotFoundError: [Errno 2] No such file or directory: 'no such data'"
}
an_error_of_all_ranks_is_printed_once() {
  echo "$leave_sh" >leave.sh
  run 2 -n 4 sh -c 'sh leave.sh io -1 x; sleep 0.2; echo "any words, $RANK of 4: 40, not 7" >&2; sleep 0.3; exit 2'
  [ "$(grep -c '^\[rank .*40, not 7' err)" = 1 ]
  grep -qE '^\[ranks [0-3],?-?[0-3],?[0-3]?\] the same error as rank [0-3]$' err
}
a_mistake_of_all_ranks_takes_few_lines_and_no_second_prefix() {
  [ -x "$hello" ] || { echo "NOT TRIED: a mistake of parx's ranks: there is no $hello" >&3; return 0; }
  run 2 -n 4 --env PARX_THREADS=none "$hello"
  # The error, "the same", and parxrun's two lines.
  [ "$(wc -l <err)" = 4 ]; grep -qE '^\[parx (rank|pid) [0-9]+\] error: .*PARX_THREADS' err; ! grep -qF '] [parx' err
}
ranks_that_ignore_sigterm_are_killed_within_a_second_of_a_failure() {
  local before; before=$(now)
  run 3 -n 3 sh -c 'echo $$ >pid.$RANK; trap "" TERM; [ $RANK = 0 ] && { sleep 0.1; exit 3; }; while :; do sleep 0.2; done'
  [ $(($(now) - before)) -lt 1600 ]
  has err 'ranks 1,2: killed by SIGKILL'; gone $(cat pid.*)
}
a_signal_to_parxrun_reaches_the_ranks_and_what_they_started() {
  for name in INT TERM; do
    rm -f child.*; start -n 2 sh -c "trap 'echo got-$name; exit 0' $name; sleep 60 & echo \$! >child.\$RANK; [ \$RANK = 0 ] && { until [ -e child.1 ]; do sleep 0.02; done; touch ready; }; wait"
    local code=0; kill -$name $job; wait $job || code=$?
    [ $code = $((128 + $(kill -l $name))) ]
    has out "[rank 0] got-$name"; has out "[rank 1] got-$name"; has err "ended by SIG$name"
    gone $(cat child.*)
  done
}
after_the_grace_time_the_ranks_are_killed() {
  start -n 2 --grace 0.3 sh -c 'trap "" INT TERM; echo $$ >pid.$RANK; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; while :; do sleep 0.2; done'
  local before code=0; before=$(now); kill -TERM $job; wait $job || code=$?
  [ $code = 143 ]; [ $(($(now) - before)) -lt 1500 ]; has err 'rank 0,1 did not end within 0.3 s'; gone $(cat pid.*)
}
a_second_signal_does_not_wait_for_the_grace_time() {
  start -n 2 --grace 60 sh -c 'trap "" INT; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; while :; do sleep 0.2; done'
  local before code=0; before=$(now); kill -INT $job; sleep 0.2; kill -INT $job; wait $job || code=$?
  [ $code = 130 ]; [ $(($(now) - before)) -lt 1500 ]; has err 'rank 0,1 was killed on the second signal'
}
ranks_that_have_saved_their_work_say_so_by_75() {
  for name in TERM USR1; do
    start -n 2 sh -c "trap 'sleep 0.3; touch saved.\$RANK; exit 75' $name; [ \$RANK = 0 ] && { sleep 0.2; touch ready; }; while :; do sleep 0.05; done"
    local code=0; kill -$name $job; wait $job || code=$?
    [ $code = 75 ]; [ -e saved.0 ]; [ -e saved.1 ]; has err 'have saved their work'
    ! grep -q failed err; rm saved.*
  done
}
a_rank_gets_the_grace_time_when_another_has_saved_its_work() {
  run 75 -n 2 sh -c '[ $RANK = 0 ] && exit 75; sleep 1.5; touch late; exit 75'; [ -e late ]
  run 75 -n 2 --grace 0.2 sh -c '[ $RANK = 0 ] && exit 75; exec sleep 60'; has err 'rank 1 did not end within 0.2 s'
  run 4 -n 2 sh -c '[ $RANK = 0 ] && exit 75; sleep 0.2; exit 4'; has err 'rank 1 of 2 failed: exit code 4'
}
a_signal_while_the_job_ends_changes_no_exit_code() {
  start -n 2 sh -c 'sleep 9 & touch ready.$RANK; [ -e ready.0 -a -e ready.1 ] && touch ready; exit 0'
  sleep 0.2; kill -TERM $job; local code=0; wait $job || code=$?; [ $code = 0 ]
}
a_signal_that_comes_twice_at_once_is_one() {
  start -n 2 sh -c 'trap "sleep 0.4; touch saved.\$RANK; exit 0" TERM; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; while :; do sleep 0.1; done'
  kill -TERM $job; sleep 0.3; kill -TERM $job; wait $job || true
  [ -e saved.0 ]; [ -e saved.1 ]
}
user_signals_are_passed_on_and_end_nothing() {
  start -n 2 sh -c 'trap "echo saved" USR1; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; sleep 0.6 & wait; wait'
  kill -USR1 $job; wait $job; has out '[rank 0] saved'; has out '[rank 1] saved'
}
a_stopped_job_goes_on_when_it_is_continued() {
  start -n 2 sh -c 'echo $$ >pid.$RANK; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; sleep 1; echo went on'
  kill -TSTP $job
  for p in $job $(cat pid.*); do for _ in $(seq 100); do ! grep -q '^State:.T' /proc/$p/status || continue 2; sleep 0.02; done; return 1; done
  kill -CONT $job; wait $job; has out '[rank 0] went on'; has out '[rank 1] went on'
}
ranks_start_with_the_signals_that_parxrun_was_started_with() {
  local with='env --default-signal --ignore-signal=HUP --block-signal=USR1,CHLD,TERM' show='grep -E ^Sig(Blk|Ign|Cgt) /proc/self/status'
  $with $show >expected
  timeout -s KILL 9 $with "$parxrun" -n 2 --tag-output=false sh -c "[ \$RANK = 1 ] || exec $(printf '%q ' $show)" >out; cmp expected out
  # What was blocked then is heard nevertheless.
  rm -f ready; $with "$parxrun" -n 2 sh -c '[ $RANK = 1 ] || touch ready; exec sleep 60' 2>err & job=$!
  for _ in $(seq 200); do [ ! -e ready ] || break; sleep 0.02; done
  local code=0; kill -TERM $job; sleep 0.2; kill -INT $job; wait $job || code=$?; [ $code = 143 ]
}
ranks_die_with_a_killed_parxrun() {
  start -n 2 sh -c 'echo $$ >pid.$RANK; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; while :; do sleep 0.2; done'
  kill -KILL $job; wait $job || true; gone $(cat pid.*)
}
no_process_outlives_a_killed_parxrun_whatever_stands_between() {
  # Each writes its program's pid to program.RANK.
  local program='sh -c "echo \$\$ >program.\$RANK; exec sleep 60"'
  local wrappers=("env A=1 $program; true" "sh -c '$program; true'" "taskset -c 0 $program; true"
                  "trap '' TERM HUP; $program; $program" "env -i RANK=\$RANK $program; true" "$program & wait" "$program & exec sleep 60" "setsid -w $program; true"
                  "(setsid $program >/dev/null 2>&1 </dev/null &) ; exec sleep 60" "$parxrun -n 1 --env RANK=\$RANK setsid -w $program")
  for wrapper in "${wrappers[@]}"; do
    rm -f program.*; setsid "$parxrun" -n 2 sh -c "$wrapper" >out 2>err & job=$!
    for _ in $(seq 200); do [ ! -s program.0 ] || [[ $wrapper != *parxrun* && ! -s program.1 ]] || break; sleep 0.02; done
    cat program.* >pids; kill -KILL -$job; wait $job || true
    gone $(cat pids) || { echo "behind: $wrapper"; return 1; }
  done
}
no_process_outlives_a_parxrun_that_is_told_to_stop() {
  for name in TERM HUP; do
    start -n 2 --grace 0.3 sh -c '(setsid env -i sh -c "echo \$\$ >'"$work"'/daemon.$RANK; trap \"\" HUP; exec sleep 60" >/dev/null 2>&1 </dev/null &); sleep 0.5; touch ready; exec sleep 60'
    local code=0; kill -$name $job; wait $job || code=$?; [ $code = $((128 + $(kill -l $name))) ]; gone $(cat daemon.*)
  done
}
nothing_is_left_running_when_all_ranks_returned() {
  run 0 -n 2 sh -c 'sleep 60 & echo $! >child.$RANK; (setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $! >daemon.$RANK)'; gone $(cat child.* daemon.*)
  has err 'the ranks have ended and left processes behind, which end now: sleep ('
}
what_ends_right_after_its_rank_may_say_its_last() {
  run 0 -n 2 sh -c '(sleep 0.05; echo late) &'; has out '[rank 0] late'; has out '[rank 1] late'; [ ! -s err ]
}
processes_that_the_job_did_not_start_are_left_alone() {
  sh -c "sleep 60 & echo \$! >other; exec $parxrun -n 2 true"; kill "$(cat other)"
}
parxrun_reaps_what_its_ranks_leave_to_it() {
  start -n 1 sh -c 'for i in 1 2 3 4 5; do (true & true); done; sleep 0.2; touch ready; exec sleep 60'
  local left; left=$(grep -l "^PPid:.$job\$" /proc/[0-9]*/status 2>/dev/null | xargs grep -l '^State:.Z' | wc -l); kill -TERM $job; wait $job || true
  [ "$left" = 0 ]
}
its_guard_ends_with_it() {
  start -n 2 sh -c 'echo $PPID >parent.$RANK; [ $RANK = 0 ] && { sleep 0.2; touch ready; }; exec sleep 60'
  local guard; guard=$(grep -l "^PPid:.$(cat parent.0)\$" /proc/[0-9]*/status 2>/dev/null | xargs grep -l '^Name:.parx_guard' | cut -d/ -f3); [ -d "/proc/$guard" ]
  kill -TERM $job; wait $job || true; gone "$guard"
}
the_port_is_kept_for_the_ranks_and_free_for_a_server_of_theirs() {
  cat >serve.py <<'END'
import os, socket
port = int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    plain = socket.socket()
    try:
        plain.bind(("127.0.0.1", port)); print("stolen")
    except OSError: print("kept")
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
        server = socket.socket(family)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port)); server.listen(); server.close()
    print("served")
END
  command -v python3 || return 0
  run 0 -n 2 python3 serve.py; has out '[rank 0] kept'; has out '[rank 0] served'
}
a_reader_that_leaves_ends_the_job() {
  "$parxrun" -n 2 sh -c 'echo $$ >pid.$RANK; while echo line; do sleep 0.05; done; sleep 60' | head -n 1 >out; gone $(cat pid.*)
}
a_stopped_reader_does_not_keep_parxrun_from_its_signals() {
  mkfifo pipe; sleep 60 <pipe & local reader=$!
  "$parxrun" -n 2 sh -c 'echo $$ >pid.$RANK; yes' >pipe 2>err & job=$!
  sleep 0.5; kill -TERM $job; gone $(cat pid.*)
  kill -TERM $job; local code=0; wait $job || code=$?; kill $reader; [ $code = 143 ]
}
what_parxrun_writes_to_stays_blocking_for_others() {
  mkfifo shared; cat <shared >out & exec 5>shared
  "$parxrun" -n 2 sh -c 'echo line; touch seen; sleep 0.5' >&5 & job=$!
  for _ in $(seq 200); do [ ! -s out ] || break; sleep 0.02; done
  [ $((0$(awk '/^flags/ { print $2 }' /proc/$BASHPID/fdinfo/5) & 04000)) = 0 ]
  wait $job; exec 5>&-; wait; has out '[rank 1] line'
}
wrong_calls_are_explained() {
  run 2 -n 0 true; has err '-n "0": give a whole number from 1 to 4096'
  run 2 -n -3 true; has err '-n "-3": give'
  run 2 -n x true; has err '-n "x": give'
  run 2 --ranks 2x true; has err '-n "2x": give'
  run 2 --grace soon true; has err '--grace "soon": give a number from 0 to 1000000'
  run 2 --tag-output=perhaps true; has err '--tag-output "perhaps": give true or false'
  run 2 -n 2; has err 'no program to run'
  run 2 --bogus true; has err 'bogus'
  run 127 -n 2 ./nothing-here; has err './nothing-here" was not found'
  run 127 -n 2 nothing-here; has err 'was not found in PATH'
  echo echo >my-script; run 126 -n 2 ./my-script; has err 'chmod +x'
  run 126 -n 2 /; has err 'not an executable file'
  run 127 -n 2 my-script; has err "./my-script"
}
a_missing_interpreter_is_named_and_not_the_script() {
  printf '#!/usr/bin/no-python -u\necho\n' >script3; chmod +x script3
  run 126 -n 2 ./script3; has err 'cannot execute "./script3": its first line names the interpreter "/usr/bin/no-python": No such file'
  printf '#! /bin/sh\r\necho\r\n' >script3
  run 126 -n 2 ./script3; has err 'its first line names the interpreter "/bin/sh\x0d": No such file'; has err 'The lines end in CR LF'
  printf '#!./script4\n' >script3; echo >script4; chmod -x script4
  run 126 -n 2 ./script3; has err 'the interpreter "./script4": Permission denied'
  sed 's|/lib64/ld-linux-x86-64.so.2|/lib64/ld-linux-x86-64.so.9|' /bin/true >no-loader; chmod +x no-loader
  run 126 -n 2 ./no-loader; has err 'its loader "/lib64/ld-linux-x86-64.so.9": No such file'
}
a_script_without_an_interpreter_line_runs_as_in_a_shell() {
  echo 'echo rank $RANK "$@"' >script2; chmod +x script2; run 0 -n 2 ./script2 a 'b c'; has out '[rank 1] rank 1 a b c'
}
a_lost_rank_need_not_end_the_others() {
  run 0 -n 3 --on-loss continue sh -c 'if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 1.5; echo done'
  has out '[rank 0] done' && has out '[rank 2] done' && has err 'parxrun: rank 1 was lost (killed by SIGKILL'
}
the_others_are_told_of_a_rank_that_ended_before_all_had_joined() {
  [ -x "$hello" ] || { echo "NOT TRIED: a rank that ends early: there is no $hello" >&3; return 0; }
  run 3 -n 3 --on-loss continue sh -c '[ $RANK = 1 ] && { sleep 0.2; exit 3; }; exec "$0"' "$hello"
  has err 'rank 1 of 3 failed: exit code 3'; has err 'rank 1 ended (exit code 3) before all ranks had joined the job'
}
where_parxrun_keeps_the_store_other_programs_have_a_port_of_their_own() {
  cat >listen.py <<'END'
import os, socket
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))); server.listen(); print("listens")
END
  command -v python3 || return 0
  run 0 -n 2 --on-loss continue sh -c '[ $RANK = 1 ] || { [ $MASTER_PORT != $PARX_MASTER_PORT ] && exec python3 listen.py; }'; has out '[rank 0] listens'
}
it_does_without_the_descriptors_that_its_parent_has_closed() {
  for closed in '0<&- 1>&- 2>&-' '1>&- 2>&-' '0<&- 2>&-' '0<&- 1>&-'; do
    eval "timeout 20 '$parxrun' -n 2 sh -c 'touch was_\$RANK' $closed"
    rm was_0 was_1
  done
}
a_full_disk_behind_its_messages_changes_no_exit_code() {
  local code=0; "$parxrun" -n 0 true 2>/dev/full || code=$?; [ "$code" = 2 ]
  code=0; "$parxrun" -n 2 ./nothing-here 2>/dev/full || code=$?; [ "$code" = 127 ]
}
a_limit_on_file_sizes_does_not_end_it() {
  local code=0; (ulimit -f 0; exec "$parxrun" -n 2 sh -c 'exit 3' >/dev/null 2>&1) || code=$?; [ "$code" = 3 ]
}
a_port_is_found_where_the_kernel_has_none_to_choose() {
  unshare -rn true 2>unshared && command -v python3 || return 0
  unshare -rn python3 - "$parxrun" >out 2>err <<'END'
import socket, subprocess, sys
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as limits: limits.write("40000 40001")
held = [socket.socket(), socket.socket()]
for i in (0, 1): held[i].bind(("", 40000 + i))
sys.exit(subprocess.call([sys.argv[1], "-n", "2", "sh", "-c", "echo port $MASTER_PORT"]))
END
  grep -qE '^\[rank 1\] port (2|3[0-2])[0-9]{3,4}$' out
}
ranks_meet_on_loopback_whichever_family_it_has() {
  [ -x "$hello" ] || { echo "NOT TRIED: parxrun without IPv4 or IPv6: there is no $hello" >&3; return 0; }
  local without_v4='ip addr del 127.0.0.1/8 dev lo' without_v6='echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
  unshare -rn sh -c "ip link set lo up && $without_v4 && $without_v6" 2>unshared ||
    { echo "NOT TRIED: parxrun without IPv4 or IPv6: $(tail -n 1 unshared)" >&3; return 0; }
  cat >network.sh <<'END'
set -e
# both VARIABLE...: two ranks with these variables; @ is a rank's number.
# By their numbers: "wait -n" finds nothing to wait for where both have ended at the same moment.
both() {
  local r ranks=()
  for r in 0 1; do env PARX_TRANSPORT=tcp PARX_RENDEZVOUS_TIMEOUT=9 "${@//@/$r}" "$hello" & ranks+=($!); done
  for r in "${ranks[@]}"; do wait "$r"; done
}
ip link set lo up; eval "$1"
"$parxrun" -n 2 "$hello"
PARX_TRANSPORT=tcp "$parxrun" -n 2 "$hello"
"$parxrun" -n 2 --on-loss continue "$hello"
both PMI_RANK=@ PMI_SIZE=2 MPI_LOCALRANKID=@ MPI_LOCALNRANKS=2 PARX_RUN_ID=x
both RANK=@ WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1716
[ -n "${2:-}" ] || exit 0
for address in '[::1] MASTER_PORT=1717' '::1 MASTER_PORT=1718' '[::1]:1719'; do both RANK=@ WORLD_SIZE=2 MASTER_ADDR=$address; done
END
  export parxrun hello
  timeout 60 unshare -rn bash network.sh "$without_v4" v6 >out 2>err
  timeout 60 unshare -rn bash network.sh "$without_v6" >out 2>err
}
a_job_of_one_host_has_no_connection_with_itself() {
  command -v strace || { echo "NOT TRIED: the connections of parxrun: there is no strace" >&3; return 0; }
  for more in '' '--max-restarts 1'; do
    strace -f -o calls -e trace=connect,accept,accept4 "$parxrun" -n 2 $more true; has calls 'exited with 0'; ! grep -E '(connect|accept4?)\(' calls
  done
  strace -f -o calls -e trace=listen "$parxrun" -n 2 true; ! grep -F 'listen(' calls
}
a_number_of_ranks_after_the_program_is_warned_of() {
  run 0 printf '%s\n' -n 4; has out 4
  has err 'parxrun: starts 1 rank: -n 4 comes after the program, so it is an argument of it; write parxrun -n 4 printf'
  run 0 echo a -np 2; has err 'write parxrun -np 2 echo'
  run 0 -n 1 echo -n 4; [ ! -s err ]
  run 0 echo -n four; [ ! -s err ]
}
options_of_the_program_are_the_programs() { run 0 -n 2 echo -n 5 --env --help; has out '[rank 0] 5 --env --help'; }

for name in $(declare -F | cut -d' ' -f3 | grep -vE '^(claim|run|start|has|gone|now)$'); do claim "$name"; done
echo "$((claims - failures)) of $claims claims hold"
[ "$failures" = 0 ]
