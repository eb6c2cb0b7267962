#!/bin/bash
# What parxrun --hosts promises:   ssh.sh PATH_TO_PARXRUN [CLAIM]
# Over a real sshd on each of three hosts, which are namespaces of this machine; where these are not permitted, over a
# script in ssh's place. Each claim is a function; it fails when one of its commands does.
set -u
. "$(dirname "$0")/hosts.sh"
hosts_enter "$0" "$@"
set -m
parxrun=$(realpath "$1")
hello=$(dirname "$parxrun")/hello_all_reduce
base=$(mktemp -d)
trap 'hosts_down; rm -rf "$base"' EXIT
trap 'exit 1' TERM INT
for name in $(compgen -e | grep -E '^(SLURM|PARX_|TORCHELASTIC_|PET_)'); do [ $name = PARX_HOSTS_INSIDE ] || unset "$name"; done
mode=real
if ! hosts_up "$base" 3; then
  mode=fake
  cat >"$base/fake_ssh" <<'END'
#!/bin/bash
env -i PATH="$PATH" HOME="$HOME" PARX_HOST_ID="${@: -2:1}" sh -c "${@: -1}" < <(exec cat)
END
  chmod +x "$base/fake_ssh"
  hosts_ssh=$base/fake_ssh
  export PARX_SSH_ENDPOINT=127.0.0.1
fi
work=$base/work; mkdir "$work"; cd "$work" || exit 1
claims=0 failures=0
claim() {
  local code
  claims=$((claims + 1)); rm -rf "$work"/*
  (set -eu; "$1") >"$work/log" 2>&1
  code=$?
  [ $code != 0 ] || return 0
  failures=$((failures + 1)); echo "FAILED: ${1//_/ }"
  (cd "$work"; tail -n 40 log out err code 2>/dev/null | sed 's/^/    /')
}
# go ARGUMENT...: parxrun by ssh; its output goes to out and err, its exit code to code, its pid to pid.
go() { start "$@"; wait $! || true; }
start() {
  (env --default-signal timeout -k 1 40 "$parxrun" --ssh "$hosts_ssh" ${PARX_SSH_ENDPOINT:+--rdzv-endpoint $PARX_SSH_ENDPOINT} "$@" >out 2>err </dev/null & echo $! >pid; s=0; wait $! || s=$?; echo $s >code) &
}
starter() { pgrep -P "$(cat pid)" parxrun; }  # below timeout(1)
has() { grep -qF -- "$2" "$1" || { echo "no \"$2\" in $1"; return 1; }; }
code() { [ "$(cat code)" = "$1" ] || { echo "exit code $(cat code), not $1"; return 1; }; }
within() { local i; for i in $(seq $(($1 * 50))); do "${@:2}" && return; sleep 0.02; done; echo "not within $1 s: ${*:2}"; return 1; }
gone() { within "$1" eval '! pgrep -f "$2" >/dev/null' - "$2"; }
none_left() { within 5 eval "! pgrep -f '$1' >/dev/null" || { pgrep -af "$1"; false; }; }
now() { date +%s%3N; }

three_hosts_are_one_world() {
  go --hosts h1,h2,h3 -n 2 "$hello"; code 0
  [ "$(grep -c 'WORLD_SIZE=6 sum of ranks = 15' out)" = 6 ]; has out '[rank 0 on h1] '; has out '[rank 5 on h3] '
}
the_ranks_start_within_a_second_of_the_last_parxrun() {
  local last
  go --hosts h1,h2,h3 -n 2 sh -c 'date +%s%3N >began.$RANK; echo $PPID >agent.$RANK; cp /proc/$PPID/stat stat.$RANK; cp /proc/uptime up.$RANK'
  code 0
  for r in 0 2 4; do awk -v up="$(cut -d' ' -f1 up.$r 2>/dev/null || sed 's/ .*//' up.$r)" '{print int((up - $22 / 100) * 1000)}' stat.$r >age.$r; done
  cat age.*; last=$(sort -n age.0 age.2 age.4 | head -n 1); [ "$last" -lt 1000 ]
}
a_hosts_file_gives_the_order_and_the_numbers_of_ranks() {
  printf '# two\nh2 slots=2\nh1:1\n' >file
  go --hostfile file -n 5 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK'; code 0
  has out '[rank 1 on h2] 1/3 1/2 0'; has out '[rank 2 on h1] 2/3 0/1 1'
}
folder_and_variables_travel_and_the_secret_is_on_no_command_line() {
  export PARX_SECRET=0123456789abcdef0 PARX_TIMEOUT=77 OMP_NUM_THREADS=3 DATA=/d OTHER=x
  start --hosts h1,h2 --export DATA sh -c 'pwd; echo $PARX_TIMEOUT $OMP_NUM_THREADS $DATA ${OTHER:-none} ${PARX_SECRET:-hidden}; touch on.$RANK; until [ -e go ]; do sleep 0.02; done'
  within 9 test -e on.0 -a -e on.1
  if grep -slF "$PARX_SECRET" /proc/[0-9]*/cmdline; then false; fi
  # Nor in the environment that a parxrun on a host was started with.
  local p; for p in $(pgrep -f -- --agent-of-hosts); do if grep -qF "$PARX_SECRET" "/proc/$p/environ"; then echo "in the environment of $p"; false; fi; done
  touch go; wait; code 0; has out "[rank 1 on h2] $work"; has out '[rank 0 on h1] 77 3 /d none hidden'
}
a_failing_rank_ends_the_job_with_its_code_and_one_report() {
  go --hosts h1,h2,h3 -n 2 sh -c '[ $RANK = 3 ] && { echo "no data" >&2; exit 7; }; exec sleep 60'
  code 7; has err 'rank 3 of 6 failed: exit code 7'; [ "$(grep -c 'failed: exit code 7' err)" = 1 ]; grep -qE '^  node      h2$' err
}
a_signal_reaches_the_ranks_of_all_hosts() {
  start --hosts h1,h2 -n 1 sh -c 'trap "echo got; exit 75" TERM; touch on.$RANK; while :; do sleep 0.02; done'
  within 9 test -e on.0 -a -e on.1; kill -TERM "$(starter)"; wait; code 75; has out '[rank 0 on h1] got'; has out '[rank 1 on h2] got'
  start --hosts h1,h2 -n 1 sh -c 'trap "echo one" USR1; trap "exit 3" INT; touch two.$RANK; while :; do sleep 0.02; done'
  within 9 test -e two.0 -a -e two.1; kill -USR1 "$(starter)"; within 5 eval '[ "$(grep -c one out)" = 2 ]'; kill -INT "$(starter)"; wait; code 130
}
a_lost_ssh_ends_its_parxrun_and_the_rest_goes_on() {
  start --hosts h1,h2,h3 --nnodes 2:3 --max-restarts 1 sh -c 'touch $WORLD_SIZE.$RANK; [ $WORLD_SIZE = 2 ] && exit 0; exec sleep 61.7'
  within 9 test -e 3.0 -a -e 3.1 -a -e 3.2
  kill -9 "$(pgrep -P "$(starter)" -f ' h2 exec')"; wait; code 0; [ -e 2.0 ]; [ -e 2.1 ]; none_left 'sleep 61.7'
}
too_few_hosts_end_the_job_at_once() {
  local before; before=$(now)
  start --hosts h1,h2 sh -c 'touch $RANK; exec sleep 62.7'
  within 9 test -e 0 -a -e 1; kill -9 "$(pgrep -P "$(starter)" -f ' h2 exec')"; wait; code 1; [ $(($(now) - before)) -lt 8000 ]; none_left 'sleep 62.7'
}
a_killed_starter_lets_the_ranks_save_and_leaves_none() {
  start --hosts h1,h2 -n 2 sh -c 'trap "touch saved.$RANK; exit 75" TERM; touch on.$RANK; : 63.7; while :; do sleep 0.02; done'
  within 9 eval '[ "$(ls on.* | wc -l)" = 4 ]'; kill -9 "$(starter)"; wait
  within 5 eval '[ "$(ls saved.* | wc -l)" = 4 ]'; none_left ': 63.7'; none_left 'agent-of-hosts'
}
two_names_of_one_host_are_refused() {
  if [ $mode = fake ]; then return 0; fi
  local before; before=$(now)
  go --hosts h1,10.79.0.1 sleep 20; code 1; has err 'node h1 has a parxrun of this job already'; has err 'ended since host'; [ $(($(now) - before)) -lt 5000 ]
}
what_is_wrong_with_a_host_is_one_sentence() {
  local before
  explained() { before=$(now); go "${@:3}"; code "$1"; has err "$2"; [ $(($(now) - before)) -lt 9000 ]; none_left 'agent-of-hosts'; }
  explained 127 'program "./missing" was not found' --hosts h1,h2 ./missing
  explained 2 '"n1:x" is no host' --hosts n1:x true
  explained 2 'missing cannot be read' --hostfile missing true
  explained 2 '--nnodes 3, but --hosts names 2' --hosts h1,h2 --nnodes 3 true
  explained 127 'program "no_ssh" was not found' --ssh no_ssh --hosts h1,h2 true
  if [ $mode = fake ]; then return 0; fi
  explained 1 'host h9 has a name that cannot be resolved here' --hosts h1,h9 true
  explained 1 'host starter cannot be reached by ssh (ssh: connect to host starter port 2222: Connection refused)' --hosts h1,starter true
  explained 1 'host h1 has a key that is not known here' --ssh "${hosts_ssh/known/none}" --hosts h1 true
  ssh-keygen -q -t ed25519 -N '' -f other_key
  explained 1 'host h1 does not let this user in by a key' --ssh "${hosts_ssh/$base\/key/other_key}" --hosts h1 true
  cp "$parxrun" ./mine; for h in h2; do on $h mount -t tmpfs none "$work"; done
  local real=$parxrun; parxrun=$work/mine
  explained 1 "host h2 has no $work/mine that can be executed" --hosts h1,h2 true
  parxrun=$real; mkdir here; cd here
  explained 1 "the folder $work/here cannot be entered on host h2" --hosts h1,h2 true
  cd ..; on h2 umount "$work"
  # The host is off: nothing answers.
  unplug h3; explained 1 'host h3 cannot be reached by ssh' --ssh "$hosts_ssh -o ConnectTimeout=2" --hosts h1,h3 true; plug h3
}
a_host_that_cannot_be_reached_is_done_without_where_it_may_be() {
  go --hosts h1,h9,h2 --nnodes 2:3 --ssh "$hosts_ssh" sh -c 'echo $RANK of $WORLD_SIZE' || true
  if [ $mode = fake ]; then return 0; fi
  code 0; has out '[rank 1 on h2] 1 of 2'; has err 'host h9 has a name'
}
a_host_that_is_cut_off_is_gone_on_without() {
  if [ $mode = fake ]; then return 0; fi
  start --hosts h1,h2,h3 --nnodes 2:3 --max-restarts 1 sh -c 'touch $WORLD_SIZE.$RANK.$(hostname); [ $WORLD_SIZE = 2 ] && exit 0; exec sleep 64.7'
  within 9 test -e 3.0.h1 -a -e 3.1.h2 -a -e 3.2.h3
  local before; before=$(now); unplug h1; within 9 test -e 2.0.h2 -a -e 2.1.h3; [ $(($(now) - before)) -lt 6000 ]
  none_left 'sleep 64.7'; wait; plug h1; code 0
}
training_goes_on_without_the_host_of_rank_0_that_is_cut_off() {
  gpt_beside_a_cut 0
  gpt_reaches_h1_again
  gpt_beside_a_cut 1.2
}
so_does_training_over_ucx() {
  /sbin/ldconfig -p | grep -q libucp || { echo "NOT TRIED: a cut under UCX, which is not installed"; return; }
  (export PARX_TRANSPORT=ucx UCX_TLS=tcp,self; gpt_beside_a_cut 0 --export UCX_TLS)
}
gpt_reaches_h1_again() {  # from each side: none may remember that there was no way
  [ $mode = real ] || return 0
  local try='exec 3<>/dev/tcp/h1/2222'
  for h in h2 h3; do within 9 on $h bash -c "$try"; done 2>/dev/null
  within 9 bash -c "$try" 2>/dev/null
}
# gpt_beside_a_cut PAUSE ARGUMENT...: for so many seconds, after the cut, the job's store answers nobody.
gpt_beside_a_cut() {
  local gpt; gpt=$(dirname "$parxrun")/train_gpt
  if [ $mode = fake ] || [ ! -x "$gpt" ]; then return 0; fi
  start --hosts h1,h2,h3 --on-loss continue "${@:2}" "$gpt" --on-loss shrink --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --eval-batch-size 512 \
    --max-steps 1000000 --logging-steps 1 --eval-strategy no --disable-progress --output-dir "cut_$1" --save-steps 100000
  within 20 grep -q "^.rank 0 on h1.*'loss'" out
  local before; before=$(now); unplug h1
  if [ $1 != 0 ]; then sleep 1; kill -STOP "$(starter)"; sleep $1; kill -CONT "$(starter)"; fi
  # The lease and its margin are 3.6 s.
  within 7 grep -q "^.rank 1 on h2.*'loss'" out; echo "next step after $(($(now) - before)) ms"; [ $(($(now) - before)) -lt 7000 ]
  within 5 eval '! on h1 pgrep train_gpt >/dev/null'
  kill -TERM "$(starter)"; wait; plug h1; code 75
}
for name in $(declare -F | cut -d' ' -f3 | grep -vE '^(claim|go|start|starter|has|code|within|gone|none_left|now|on|unplug|plug|hosts_.*|explained|gpt_.*)$'); do
  [ $# -lt 2 ] || [[ $name =~ $2 ]] || continue
  claim "$name"
done
echo "$((claims - failures)) of $claims claims hold, over $mode ssh"
[ "$failures" = 0 ] || exit 1
