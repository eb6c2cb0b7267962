#!/bin/bash
# What parxrun promises over several nodes, here of one host by PARX_HOST_ID:   nodes.sh PATH_TO_PARXRUN
# Each claim is a function; it fails when one of its commands does.
set -u -m
parxrun=$1
hello=$(dirname "$1")/hello_all_reduce
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for name in $(compgen -e | grep -E '^(SLURM|PARX_|TORCHELASTIC_|PET_)'); do unset "$name"; done
claims=0 failures=0
port=$((10000 + RANDOM % 5000))  # below those that other jobs of parx take

claim() {
  local code
  claims=$((claims + 1)) port=$((port + 1))
  rm -rf ./*
  (set -eu; "$1") >"$work/log" 2>&1
  code=$?
  [ $code != 0 ] || return 0
  failures=$((failures + 1))
  echo "FAILED: ${1//_/ }"
  (cd "$work"; tail -n 40 log ./*.out ./*.err ./*.code 2>/dev/null | sed 's/^/    /')
}
# node NAME ARGUMENT...: parxrun on the node NAME, in the background; its output goes to NAME.out and NAME.err, its exit
# code to NAME.code, its pid to NAME.pid.
node() {
  local name=$1; shift
  (PARX_HOST_ID=$name env --default-signal timeout -k 1 30 "$parxrun" "$@" >"$name.out" 2>"$name.err" </dev/null & echo $! >"$name.pid"; s=0; wait $! || s=$?; echo $s >"$name.code") &
}
# nodes "NAME..." ARGUMENT...: one on each, and waits for them all.
nodes() { local name names=$1; shift; for name in $names; do node "$name" "$@"; done; wait; }
keep() { node coordinator --coordinator "$@"; within 5 eval '(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null'; }
at() { echo "--nnodes $1 --rdzv-endpoint 127.0.0.1:$port --rdzv-id job"; }
has() { grep -qF -- "$2" "$1" || { echo "no \"$2\" in $1"; return 1; }; }
code() { [ "$(cat "$1.code")" = "$2" ] || { echo "$1: exit code $(cat "$1.code"), not $2"; return 1; }; }
within() { local i; for i in $(seq $(($1 * 50))); do "${@:2}" && return; sleep 0.02; done; echo "not within $1 s: ${*:2}"; return 1; }
agent_of() { pgrep -P "$(cat "$1.pid")" parxrun; }  # below timeout(1)
gone() { local p; for p in "$@"; do within 3 eval "[ ! -d /proc/$p ] || grep -q '^State:.Z' /proc/$p/status" || return 1; done; }
now() { date +%s%3N; }

parxrun_on_three_nodes_is_one_world() {
  nodes "a b c" $(at 3) -n 2 "$hello"
  for n in a b c; do code $n 0; done
  [ "$(cat ./*.out | grep -c 'WORLD_SIZE=6 sum of ranks = 15')" = 6 ]
}
it_starts_as_fast_as_on_one() {
  node b $(at 2) -n 2 true; node c $(at 2) -n 2 true
  local before; before=$(now); wait; [ $(($(now) - before)) -lt 1000 ]; code b 0; code c 0
}
the_ranks_of_a_node_are_consecutive_in_the_order_of_node_ranks() {
  for n in 2 0 1; do node n$n $(at 3) --rdzv-backend static --node-rank $n --nproc_per_node $((n + 1)) sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE'; done; wait
  has n0.out '[rank 0 on n0] 0/6 0/1 0/3'; has n1.out '[rank 2 on n1] 2/6 1/2 1/3'; has n2.out '[rank 5 on n2] 5/6 2/3 2/3'
}
a_rank_has_the_environment_that_torchrun_gives_it() {
  nodes "a b" $(at 2) --max-restarts 3 --role trainer -n 2 sh -c '[ $RANK = 3 ] || exit 0; env | grep -E "^(RANK|LOCAL_|WORLD_|GROUP_|ROLE_|MASTER_|TORCH|PARX_)" | sort >rank3'
  sed -E 's/(MASTER_PORT)=[0-9]{4,5}$/\1=PORT/; s/(AGENT|COORDINATOR)=[0-9a-f]{32}$/\1=HEX/; s/^(PARX_SECRET_FILE)=.*/\1=FILE/; s/^(TORCHELASTIC_ERROR_FILE)=.*/\1=FILE/; s/(PARX_HOST_ID|GROUP_RANK|PARX_NODE_RANK)=.*/\1/' rank3 | grep -v TORCHELASTIC_ERROR_FILE >got
  cat >expected <<END
GROUP_RANK
GROUP_WORLD_SIZE=2
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=127.0.0.1
MASTER_PORT=PORT
PARX_AGENT=HEX
PARX_ATTEMPT=0
PARX_COORDINATOR=HEX
PARX_GENERATION=1
PARX_HOST_ID
PARX_LOCAL_RANK=1
PARX_LOCAL_WORLD_SIZE=2
PARX_MASTER_ADDR=127.0.0.1
PARX_MASTER_PORT=PORT
PARX_NODE_RANK
PARX_RANK=3
PARX_RUN_ID=job.1
PARX_SECRET_FILE=FILE
PARX_STORE_HOSTED_BY=parxrun
PARX_WORLD_SIZE=4
RANK=3
ROLE_NAME=trainer
ROLE_RANK=3
ROLE_WORLD_SIZE=4
TORCHELASTIC_MAX_RESTARTS=3
TORCHELASTIC_RESTART_COUNT=0
TORCHELASTIC_RUN_ID=job
TORCHELASTIC_USE_AGENT_STORE=False
TORCH_NCCL_ASYNC_ERROR_HANDLING=1
WORLD_SIZE=4
END
  diff expected got
  [ "$(grep -c "PORT=$(sed -n 's/^MASTER_PORT=//p' rank3)$" rank3)" = 1 ]  # two ports
}
the_port_for_other_programs_is_free_for_rank_0() {
  command -v python3 || return 0
  cat >serve.py <<'END'
import os, socket, time
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(where); server.listen(); server.accept(); print("met")
else:
    for i in range(100):
        try: socket.create_connection(where); break
        except OSError: time.sleep(0.05)
END
  nodes "a b" $(at 2) serve.py; cat ./*.out | grep -q 'met'; code a 0; code b 0
}
a_failing_rank_ends_the_job_with_its_code_on_all_nodes_and_one_report() {
  local before; before=$(now)
  nodes "a b c" $(at 3) -n 2 sh -c 'echo $$ >rank.$RANK; [ $RANK = 4 ] && { sleep 0.2; echo "no data" >&2; exit 7; }; exec sleep 60'
  [ $(($(now) - before)) -lt 2500 ]
  for n in a b c; do code $n 7; done
  cat ./*.err >all; has all 'rank 4 of 6 failed: exit code 7'; has all '    | no data'; has all 'ranks 0-3,5: killed by SIGTERM'
  [ "$(grep -c 'failed: exit code 7' all)" = 1 ]; grep -qE '^  node      [abc]$' all; gone $(cat rank.*)
}
a_killed_rank_gives_137_on_all_nodes() {
  nodes "a b" $(at 2) -n 2 sh -c '[ $RANK = 3 ] && kill -9 $$; exec sleep 60'; code a 137; code b 137
}
a_program_that_is_missing_on_one_node_ends_the_job() {
  printf '#!/bin/sh\nexec sleep 20\n' >prog; chmod +x prog
  node a $(at 2) ./prog; node b $(at 2) ./progg; wait; code b 127; code a 127; has b.err './progg" was not found: No such'
  cat ./*.err | grep -q 'ended on node b: program "./progg" was not found'
}
two_parxrun_on_one_node_are_refused() {
  node a $(at 2) sleep 20; within 3 eval 'agent_of a >/dev/null'; sleep 0.2
  local status=0; PARX_HOST_ID=a timeout 10 "$parxrun" $(at 2) true >two.out 2>two.err || status=$?
  [ $status = 1 ]; has two.err 'node a has a parxrun of this job already'; kill "$(agent_of a)"; wait
}
two_jobs_at_one_endpoint_are_told_apart() {
  node a $(at 2) sleep 20; within 3 eval 'agent_of a >/dev/null'; sleep 0.2
  local status=0; PARX_HOST_ID=b timeout 10 "$parxrun" --nnodes 2 --rdzv-endpoint "127.0.0.1:$port" --rdzv-id other true >two.out 2>two.err || status=$?
  [ $status = 1 ]; has two.err 'the job there is "job", not "other"'; kill "$(agent_of a)"; wait
}
another_secret_or_another_number_of_nodes_is_refused() {
  export PARX_SECRET=0123456789abcdef0
  node a $(at 2) sleep 20; within 3 eval 'agent_of a >/dev/null'; sleep 0.2
  local status=0; PARX_SECRET=0123456789abcdef1 PARX_HOST_ID=b timeout 10 "$parxrun" $(at 2) true 2>two.err || status=$?
  [ $status = 1 ]; has two.err 'secret'
  status=0; PARX_HOST_ID=b timeout 10 "$parxrun" $(at 3) true 2>two.err || status=$?
  [ $status = 1 ]; has two.err '--nnodes 2:2, and this one with --nnodes 3:3'; kill "$(agent_of a)"; wait
}
an_endpoint_that_cannot_be_met_at_is_explained_at_once() {
  local status
  explained() { status=0; timeout 5 "$parxrun" "${@:2}" true >out 2>one.err || status=$?; [ $status = 2 ] || [ $status = 1 ]; has one.err "$1"; }
  explained "127.0.0.1 is each node's own address" --nnodes 2 --rdzv-endpoint 127.0.0.1:$port
  explained "localhost is each node's own address" --nnodes 2 --rdzv-endpoint localhost
  explained 'needs a meeting point' --nnodes 2
  explained 'is no address of it' --nnodes 2 --master-addr 192.0.2.7 --node-rank 0
  explained 'cannot be resolved' --nnodes 2 --rdzv-endpoint nobody.invalid:29400
  explained '--nnodes "3:2"' --nnodes 3:2 --rdzv-endpoint x
  explained '--rdzv-backend etcd' --nnodes 2 --rdzv-backend etcd --rdzv-endpoint x
  explained 'came within 1 s: a' --nnodes 2 --rdzv-endpoint 127.0.0.1:$port --rdzv-conf join_timeout=1 --env A=1 -- env PARX_HOST_ID=a || true
}
an_endpoint_outside_the_step_is_refused_at_once() {
  local status=0 before; before=$(now)
  SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST='localhost' SLURM_PROCID=1 SLURM_NODEID=1 \
    timeout 9 "$parxrun" --rdzv-endpoint 192.0.2.7:29400 -n 2 true 2>one.err || status=$?
  [ $status = 2 ]; has one.err "192.0.2.7 is the address of none of the step's nodes localhost"; [ $(($(now) - before)) -lt 1000 ]
}
tasks_of_srun_without_ntasks_per_node_are_refused() {
  local status=0
  SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST='n[1-2]' SLURM_PROCID=0 "$parxrun" -n 2 true 2>one.err || status=$?
  [ $status = 2 ]; has one.err 'srun has started 4 tasks on 2 nodes'; has one.err '--ntasks-per-node=1'
  SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST='n[1-2]' SLURM_PROCID=0 "$parxrun" --standalone -n 2 true
}
a_signal_to_one_parxrun_ends_the_job_on_all_nodes() {
  node a $(at 2) -n 1 sh -c 'trap "echo got; exit 75" TERM; touch ready.$RANK; while :; do sleep 0.05; done'
  node b $(at 2) -n 1 sh -c 'trap "echo got; exit 75" TERM; touch ready.$RANK; while :; do sleep 0.05; done'
  within 5 test -e ready.0 -a -e ready.1; kill -TERM "$(agent_of b)"; wait
  code a 75; code b 75; has a.out got; has b.out got
  nodes_that_do_not_save() { node a $(at 2) sh -c 'touch on.$RANK; exec sleep 60'; node b $(at 2) sh -c 'touch on.$RANK; exec sleep 60'; within 5 test -e on.0 -a -e on.1; kill -INT "$(agent_of a)"; wait; }
  port=$((port + 500)); nodes_that_do_not_save; code a 130; code b 130
}
a_failed_rank_is_restarted_and_counted_once() {
  nodes "a b" $(at 2) -n 2 --max-restarts 2 sh -c 'echo $RANK $TORCHELASTIC_RESTART_COUNT $PARX_GENERATION $PARX_RUN_ID >>starts; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 3 ] && exit 5; exec sleep 60'
  code a 0; code b 0; [ "$(sort starts | tr '\n' ';')" = "$(for r in 0 1 2 3; do for g in 1 2 3; do echo "$r $((g - 1)) $g job.$g"; done; done | sort | tr '\n' ';')" ]
  cat ./*.err >all; has all 'rank 3 ended (exit code 5)'; has all 'restart 2 of 2'
}
each_restart_has_its_cause_and_the_report_is_of_the_last_attempt() {
  nodes "a b" $(at 2) -n 2 --max-restarts 1 sh -c '[ $RANK = 2 ] && sleep 0.3 && exit 0; [ $TORCHELASTIC_RESTART_COUNT$RANK = 03 ] && { echo first >&2; exit 5; }; [ $TORCHELASTIC_RESTART_COUNT$RANK = 11 ] && { sleep 0.1; echo second >&2; exit 6; }; exec sleep 60'
  code a 6; code b 6; cat ./*.err >all; [ "$(grep -cE '^parxrun: rank 3 ended \(exit code 5\) on [ab]; restart 1 of 1$' all)" = 1 ]
  [ "$(grep -cE '^parxrun: record .*"goes_on": true, .*"rank": 3, ' all)$(grep -cE '^parxrun: record .*"goes_on": false, "code": 6, .*"rank": 1, ' all)" = 11 ]
  [ "$(grep -cE '^parxrun: rank . of 4 failed' all)" = 1 ]; has all 'rank 1 of 4 failed: exit code 6'; has all '    | second'; ! grep -q '| first' all
}
one_node_alone_restarts_as_well() {
  "$parxrun" -n 2 --max-restarts 1 sh -c 'echo $RANK $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3' >out 2>err
  has out '[rank 1] 1 1'
  local status=0; "$parxrun" -n 2 --max-restarts 1 sh -c 'exit 3' >out 2>one.err || status=$?; [ $status = 3 ]; has one.err 'all 2 ranks ended with exit code 3'
}
a_killed_parxrun_takes_its_ranks_along_and_the_rest_goes_on() {
  local program='echo $$ >rank.$PARX_HOST_ID; touch g$PARX_GENERATION.$RANK.of.$WORLD_SIZE; [ $WORLD_SIZE = 2 ] && exit 0; exec sleep 60'
  for n in a b c; do node $n $(at 2:3) --max-restarts 1 sh -c "$program"; done
  within 9 test -e g1.0.of.3 -a -e g1.1.of.3 -a -e g1.2.of.3
  local victim; for victim in a b c; do kill -0 "$(agent_of $victim)"; [ -z "$(ss -Hltnp "sport = :$port" 2>/dev/null | grep "pid=$(agent_of $victim),")" ] && break; done
  local before; before=$(now); kill -9 "$(agent_of $victim)"; gone "$(cat rank.$victim)"
  within 9 test -e g2.0.of.2 -a -e g2.1.of.2; [ $(($(now) - before)) -lt 6000 ]; wait
  for n in a b c; do [ $n = $victim ] || code $n 0; done
  cat ./*.err >all; has all "node $victim was lost"
}
a_node_that_joins_stops_the_ranks_as_planned() {
  local program='trap "touch saved.$PARX_GENERATION.$RANK; exit 75" USR1; touch on.$PARX_GENERATION.$RANK; [ $WORLD_SIZE = 3 ] && { echo $TORCHELASTIC_RESTART_COUNT >count; exit 0; }; while :; do sleep 0.02; done'
  node a $(at 2:3) sh -c "$program"; node b $(at 2:3) sh -c "$program"
  within 9 test -e on.1.0 -a -e on.1.1; sleep 0.1; node c $(at 2:3) sh -c "$program"; wait
  [ -e saved.1.0 ]; [ -e saved.1.1 ]; [ "$(cat count)" = 0 ]; for n in a b c; do code $n 0; done
}
without_the_first_parxrun_all_end_with_75() {
  local program='trap "touch saved.$PARX_HOST_ID; exit 75" TERM; touch on.$RANK; while :; do sleep 0.02; done'
  node a $(at 2) --rdzv-conf is_host=1 sh -c "$program"; node b $(at 2) --rdzv-conf is_host=0 sh -c "$program"
  within 5 test -e on.0 -a -e on.1; local before; before=$(now); kill -9 "$(agent_of a)"; wait
  code b 75; [ -e saved.b ]; [ $(($(now) - before)) -lt 5000 ]; has b.err 'has lost the job'
}
it_is_said_how_many_nodes_are_left_and_their_saved_work_counts() {
  local program='trap "exit 75" TERM; touch on.$RANK; while :; do sleep 0.02; done'
  node a $(at 2) --max-restarts 1 --rdzv-conf is_host=1,join_timeout=1 sh -c "$program"
  node b $(at 2) --max-restarts 1 --rdzv-conf is_host=0 sh -c "$program"
  within 9 test -e on.0 -a -e on.1; kill -9 "$(agent_of b)"; wait; code a 75
  has a.err '1 of the 2 nodes that the job needs is here: a; waits up to 1 s for others'
  has a.err 'parxrun: node b was lost: it closed the connection; then 1 of 2 nodes came within 1 s: a; the ranks on a have saved their work (exit code 75), of those on b nothing is known'
}
a_lost_task_of_srun_ends_the_job_since_it_does_not_return() {
  export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=127.0.0.1
  local where="--rdzv-endpoint 127.0.0.1:$port --rdzv-id job --max-restarts 3" before
  SLURM_PROCID=0 SLURM_NODEID=0 node a $where sh -c 'touch on.$RANK; exec sleep 60'
  SLURM_PROCID=1 SLURM_NODEID=1 node b $where --rdzv-conf is_host=0 sh -c 'touch on.$RANK; exec sleep 60'
  within 9 test -e on.0 -a -e on.1; before=$(now); kill -9 "$(agent_of b)"; wait; code a 1; [ $(($(now) - before)) -lt 9000 ]
  has a.err 'node b was lost: it closed the connection; then 1 of 2 nodes came within 5 s: a'; has a.err '  parxrun exits with code 1'
}
a_signal_within_the_lease_of_a_cut_is_not_lost() {
  command -v python3 || return 0
  # b talks to the coordinator through this; while the file "cut" is there all is lost on the way. It ends with the coordinator.
  cat >proxy.py <<'END'
import os, selectors, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
watched, other = selectors.DefaultSelector(), {}
watched.register(server, selectors.EVENT_READ)
while True:
    for key, _ in watched.select():
        cut, one = os.path.exists("cut"), key.fileobj
        if one is server:
            one = server.accept()[0]
            if cut: one.close(); continue
            two = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
            other[one], other[two] = two, one
            for each in (one, two): watched.register(each, selectors.EVENT_READ)
            continue
        try: data = one.recv(65536)
        except OSError: data = b""
        if not data: watched.unregister(one)
        if cut: continue
        try: other[one].sendall(data) if data else other[one].shutdown(socket.SHUT_WR)
        except OSError: pass
END
  python3 proxy.py $((port + 400)) $port & local proxy=$!
  local program='trap "exit 75" TERM; touch on.$PARX_GENERATION.$RANK; while :; do sleep 0.02; done'
  node a $(at 2) --max-restarts 3 --rdzv-conf is_host=1 sh -c "$program"
  node b --nnodes 2 --rdzv-endpoint 127.0.0.1:$((port + 400)) --rdzv-id job --max-restarts 3 --rdzv-conf is_host=0 sh -c "$program"
  within 9 test -e on.1.0 -a -e on.1.1; touch cut; sleep 0.3; kill -TERM "$(agent_of b)"
  within 9 has a.err 'node b was lost: no word of it'; rm cut; within 25 test -e b.code -a -e a.code; kill $proxy 2>/dev/null || true; wait; code a 75; code b 75; has a.err 'ended as asked'
}
a_stranger_who_listens_at_the_endpoint_is_not_obeyed() {
  command -v python3 || return 0
  cat >stranger.py <<'END'
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
text = b'{"end":{"code":0}}'
open("listens", "w")
one = server.accept()[0]  # of the parxrun that looks whether somebody listens
while True: one = server.accept()[0]; one.sendall(len(text).to_bytes(4, "little") + text)
END
  python3 stranger.py $port & local stranger=$!; within 9 test -e listens
  node a $(at 2) true; within 20 test -e a.code; kill $stranger; wait; code a 1; has a.err 'something else than parxrun answers there; there listens process'
}
a_silent_stranger_at_the_endpoint_is_named_and_its_place_taken_when_it_goes() {
  command -v python3 || return 0
  python3 -c "import socket, time; s = socket.create_server(('127.0.0.1', $port)); open('listens', 'w'); time.sleep(60)" & local stranger=$!
  within 9 test -e listens; node a $(at 2) touch done.a; node b $(at 2) touch done.b
  within 20 has a.err "does not answer); there listens process $stranger of this host ("; has a.err '-c import socket, time; s = socket.create_server'
  kill $stranger; within 25 test -e a.code -a -e b.code; wait; code a 0; code b 0
}
a_parxrun_that_was_stopped_says_once_that_it_has_lost_the_first() {
  local program='touch on.$PARX_GENERATION.$RANK; [ $PARX_GENERATION = 2 ] && exit 0; exec sleep 60' stopped
  node a $(at 2) --max-restarts 3 --rdzv-conf is_host=1 sh -c "$program"; node b $(at 2) --max-restarts 3 --rdzv-conf is_host=0 sh -c "$program"
  within 9 test -e on.1.0 -a -e on.1.1; stopped=$(agent_of b); kill -STOP $stopped; within 20 has a.err 'node b was lost: no word of it'; sleep 0.3; kill -CONT $stopped
  wait; code a 0; code b 0; [ "$(grep -c 'has lost the job' b.err)" = 1 ]
}
a_spare_node_does_not_stop_a_full_job_and_is_told_so() {
  local program='trap "touch stopped; exit 75" USR1; touch on.$RANK; until [ -e finish ]; do sleep 0.02; done'
  node a $(at 2) sh -c "$program"; node b $(at 2) sh -c "$program"; within 9 test -e on.0 -a -e on.1
  node c $(at 2) sh -c "$program"; within 9 has c.err 'node c waits: the job runs on 2 nodes without it, and takes it in when one is lost or all stop'
  sleep 0.3; touch finish; wait; for n in a b c; do code $n 0; done; [ ! -e stopped ]; has c.err 'node c: the job has ended, and did without this node'
}
a_node_that_cannot_start_its_ranks_says_why() {
  node a $(at 2) --rdzv-conf is_host=1 sleep 20; (ulimit -n 40; node b $(at 2) --rdzv-conf is_host=0 -n 32 sleep 20)
  within 20 test -e b.code; wait; code a 1; has a.err 'parxrun: the job has ended: on node b: cannot make a pipe: Too many open files'
}
a_coordinator_alone_counts_the_restarts() {
  local program='echo $$ >rank.$PARX_HOST_ID; touch g$PARX_GENERATION.$RANK.of.$WORLD_SIZE; [ $WORLD_SIZE = 1 ] && exit 0; exec sleep 60'
  node coordinator --coordinator $(at 1:2)
  for n in a b; do node $n $(at 1:2) --max-restarts 1 --rdzv-conf is_host=0 sh -c "$program"; done
  within 9 test -e g1.0.of.2 -a -e g1.1.of.2
  # The restarts are the coordinator's to count: it has none left.
  kill -9 "$(agent_of a)"; wait; code b 1; code coordinator 1; has coordinator.err 'node a was lost'; gone $(cat rank.a rank.b)
}
a_coordinator_alone_restarts_without_the_node_of_rank_0() {
  local program='touch g$PARX_GENERATION.$PARX_HOST_ID; [ $WORLD_SIZE = 1 ] && exit 0; exec sleep 60'
  keep $(at 1:2) --max-restarts 1
  node a $(at 1:2) --node-rank 0 sh -c "$program"; node b $(at 1:2) --node-rank 1 sh -c "$program"
  within 9 test -e g1.a -a -e g1.b; kill -9 "$(agent_of a)"; wait; code b 0; code coordinator 0; [ -e g2.b ]
}
a_signal_to_the_coordinator_ends_the_job() {
  keep $(at 2)
  for n in a b; do node $n $(at 2) sh -c 'trap "exit 75" TERM; touch on.$RANK; while :; do sleep 0.02; done'; done
  within 5 test -e on.0 -a -e on.1; kill -TERM "$(agent_of coordinator)"; wait; for n in coordinator a b; do code $n 75; done
  local status=0; timeout 5 "$parxrun" --coordinator 2>one.err || status=$?; [ $status = 2 ]; has one.err 'give their number by --nnodes'
}
the_ranks_go_on_without_a_lost_one() {
  nodes "a b" $(at 2) -n 2 --on-loss continue sh -c '[ $RANK = 1 ] && exit 3; [ $RANK = 3 ] && kill -9 $$; sleep 0.3; exit 0'
  code a 0; code b 0; cat ./*.err >all; has all 'was lost (exit code 3); the others go on'; has all 'was lost (killed by SIGKILL (signal 9)); the others go on'
}
they_end_with_the_code_of_the_last_one_where_all_are_lost() {
  nodes "a b" $(at 2) -n 2 --on-loss continue sh -c 'sleep 0.$RANK; exit 7'; code a 7; code b 7
}
they_go_on_without_the_node_of_rank_0_beside_a_coordinator() {
  local program='echo $$ >rank.$RANK; [ $RANK -lt 2 ] && exec sleep 60; until [ -e finish ]; do sleep 0.02; done'
  keep $(at 2) --on-loss continue
  node a $(at 2) -n 2 --node-rank 0 sh -c "$program"; node b $(at 2) -n 2 --node-rank 1 sh -c "$program"
  within 9 test -e rank.0 -a -e rank.1 -a -e rank.2 -a -e rank.3; sleep 0.2
  kill -9 "$(agent_of a)"; gone $(cat rank.0 rank.1); kill -0 $(cat rank.2 rank.3)
  within 5 has coordinator.err "node a was lost: it closed the connection; the others go on"; touch finish; wait; code b 0; code coordinator 0
}
logs_of_attempts_are_kept_apart() {
  local program='echo out $RANK; echo err >&2; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK = 1 ] && exit 3; exec sleep 20; }'
  nodes "a b" $(at 2) --rdzv-backend c10d -n 1 --max-restarts 1 --log-dir logs sh -c "$program"
  code a 0; [ "$(cat logs/job/attempt_0.1/n1.r1.out)" = 'out 1' ]; [ "$(cat logs/job/attempt_1.2/n0.r0.out)" = 'out 0' ]
  python3 - logs/job/report.json <<'END'
import json, sys
first, last = json.load(open(sys.argv[1]))["generations"]
outcome, [failed] = first["outcome"], [each for node in first["nodes"] for each in node["ranks"] if each["rank"] == 1]
assert outcome["goes_on"] and outcome["rank"] == 1 and outcome["restarts"] == 1, outcome
assert outcome["node"] == first["members"][1]["node"], first
assert failed["status"] == {"code": 3, "signal": 0} and failed["last_lines"] == ["err"], failed
assert failed["log_file"].endswith("attempt_0.1/n1.r1.err"), failed
assert not last["outcome"]["has_failed"] and last["outcome"]["code"] == 0 and last["end"] > last["start"], last
END
  nodes "a b" $(at 2) -n 1 --max-restarts 1 --log-dir logs sh -c "$program"  # a turn later
  [ "$(wc -l <logs/job/attempt_0.1/n1.r1.err)" = 2 ]
}
output_goes_to_files_the_console_or_both() {
  local program='echo out $RANK; echo err $RANK >&2' status=0
  "$parxrun" -n 2 --log-dir logs --tee 1 sh -c "$program" >out 2>one.err; has out '[rank 1] out 1'; has one.err '[rank 1] err 1'; [ "$(cat logs/rank_1.out)" = 'out 1' ]; [ ! -e logs/rank_1.err ]
  "$parxrun" -n 2 --log-dir more -r 3 -t 2 sh -c "$program" >out 2>one.err; [ ! -s out ]; has one.err '[rank 0] err 0'; [ "$(cat more/rank_1.err)" = 'err 1' ]
  "$parxrun" -n 3 --show-ranks 0,2 sh -c "$program" >out 2>one.err; has out '[rank 2] out 2'; has one.err '[rank 0] err 0'; ! grep -q 'rank 1' out one.err
  "$parxrun" --nproc_per_node=2 --local-ranks-filter=1 sh -c "$program" >out; [ "$(cat out)" = '[rank 1] out 1' ]
  "$parxrun" -n 2 --tee 3 true 2>one.err || status=$?; [ $status = 2 ]; has one.err '--log-dir DIR'
}

gpt=$(dirname "$parxrun")/train_gpt
# train FOLDER "OPTION OF PARXRUN..." ARGUMENT...: on a and b, in the background.
train() {
  local n folder=$1 options=$2; shift 2
  export OMP_NUM_THREADS=1
  for n in a b; do
    node $n $options "$gpt" --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --eval-batch-size 512 --sample 8 --max-steps 60 \
      --logging-steps 20 --eval-strategy no --disable-progress --save-strategy steps --save-steps 10 --resume --output-dir "$folder" "$@"
  done
}
ranks_of() { pgrep -P "$(agent_of "$1")" train_gpt; }
training_goes_on_in_the_same_bits_after_a_killed_rank() {
  [ -x "$gpt" ] || return 0
  train whole "$(at 2) --max-restarts 1"; wait; code a 0
  train killed "$(at 2) --max-restarts 1"; within 9 compgen -G 'killed/checkpoint-*'; kill -9 "$(pgrep -f -- "^$gpt .*--output-dir killed" | head -n 1)"; wait
  code a 0; code b 0; cmp whole/model/model.safetensors killed/model/model.safetensors
  [ "$(cat ./*.err | grep -c '^parxrun: .*restart 1 of 1')" = 1 ]
}
training_goes_on_without_the_node_of_rank_0() {
  [ -x "$gpt" ] || return 0
  keep $(at 2) --on-loss continue
  train shrunk "$(at 2) --on-loss continue -n 2" --on-loss shrink --logging-steps 1 --max-steps 4000 --save-steps 1000
  within 9 eval 'grep -q "loss" a.out || grep -q loss b.out'
  local lost=a rest=b before lines; grep -q 'rank 0 on a' a.out || { lost=b rest=a; }
  before=$(now); kill -9 "$(agent_of $lost)"
  within 5 grep -q "'loss'" $rest.out; echo "next step after $(($(now) - before)) ms"; [ $(($(now) - before)) -lt 1500 ]
  kill -TERM "$(agent_of $rest)"; wait; code $rest 75; compgen -G 'shrunk/checkpoint-*' >/dev/null
}
without_its_coordinator_every_rank_saves_and_a_new_one_goes_on() {
  [ -x "$gpt" ] || return 0
  local before
  train whole "$(at 2)" --max-steps 800; wait; code a 0
  port=$((port + 500)); keep $(at 2)
  train saved "$(at 2)" --max-steps 800; within 9 compgen -G 'saved/checkpoint-*'
  before=$(now); kill -9 "$(agent_of coordinator)"; wait; code a 75; code b 75; [ $(($(now) - before)) -lt 5000 ]
  cat a.err b.err >all; has all 'checkpoint in saved/checkpoint-'
  port=$((port + 1)); keep $(at 2); train saved "$(at 2)" --max-steps 800; wait; for n in coordinator a b; do code $n 0; done
  cmp whole/model/model.safetensors saved/model/model.safetensors
}
a_node_that_was_stopped_commits_nothing_once_others_have_begun() {
  [ -x "$gpt" ] || return 0
  keep $(at 1:2) --max-restarts 1
  train out "$(at 1:2)" --max-steps 3000 --save-total-limit 0 --save-steps 5
  within 9 compgen -G 'out/checkpoint-*'
  local first=a rest=b agent rank; [ "$(sed -n 's/^process \([0-9]*\) on .*/\1/p' out/.parx-run-lock)" = "$(ranks_of a)" ] || { first=b rest=a; }
  agent=$(agent_of $first) rank=$(ranks_of $first); kill -STOP $agent $rank
  within 9 grep -q 'generation 2' coordinator.err; within 9 eval 'grep -q " 2$" out/.parx-run-lock'
  # It has no agent that could end it, and still can neither write nor stay.
  kill -CONT $rank; within 12 eval "[ ! -d /proc/$rank ] || grep -q '^State:.Z' /proc/$rank/status"
  # In this order: it would join again, and new ranks do not save yet.
  kill -TERM "$(agent_of $rest)"; within 9 test -e $rest.code; kill -CONT $agent; wait; code $rest 75
  grep -q " 2$" out/.parx-run-lock; [ -z "$(find out -name '.parx-claim-*')" ]
}

# ends_as_uninterrupted PROGRAM LAYOUT MODEL STEPS ARGUMENT...: on four nodes, three, four and two it makes the model of two.
ends_as_uninterrupted() {
  local program layout=$2 model=$3 steps=$4; program=$(dirname "$parxrun")/$1; shift 4
  [ -x "$program" ] || return 0
  export OMP_NUM_THREADS=1
  arguments=(--batch-size 2 --parallel "$layout,replicas=8" --max-steps "$steps" --logging-steps 1 --eval-strategy no --disable-progress
             --save-strategy steps --save-steps $((steps / 15)) --resume "$@")
  on() {  # FOLDER NODES NAME...: in the background
    local n folder=$1 many=$2; shift 2
    for n in "$@"; do node $n $(at $many) --max-restarts 1 -n 1 "$program" "${arguments[@]}" --output-dir "$folder"; done
  }
  step() { tail -n 1 broken/train.jsonl | grep -oE '^."step": [0-9]+' | grep -oE '[0-9]+$' || echo 0; }
  further() { local from; from=$(step); within 9 eval "[ \$(step) -gt $((from + steps / 50)) ]"; }
  on whole 2 a b; wait; code a 0; port=$((port + 500))
  on broken 2:4 a b c d; within 9 compgen -G 'broken/checkpoint-*'; kill -9 "$(agent_of d)"   # 4 -> 3
  within 9 grep -qF 'generation 2 on' a.err b.err c.err; further; on broken 2:4 d               # 4 again
  within 9 grep -qF 'generation 3 on' a.err b.err c.err; further
  kill -TERM "$(agent_of a)"; wait; code b 75; port=$((port + 500)); on broken 2 b c; wait    # 2
  code b 0; cmp "whole/$model" "broken/$model"
}
training_of_replicas_is_the_uninterrupted_run_whatever_nodes_come_and_go() {
  ends_as_uninterrupted train_gpt ddp model/model.safetensors 1500 --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --eval-batch-size 512 \
    --sample 8 --dropout 0.1
}
so_is_that_of_tables_cut_by_rows() {
  ends_as_uninterrupted train_tinybert zero=2 model/model.safetensors 300 --hidden-size 16 --num-hidden-layers 1 --intermediate-size 16
}
so_is_that_of_shards_with_statistics_of_batches() {
  ends_as_uninterrupted train_cnn fsdp model.safetensors 300 --channels 2 --shift 1
}

# Half a minute, or what has to wait for time limits.
long='^(so_is_that|a_signal_within_the_lease|a_silent_stranger|a_parxrun_that_was_stopped)'
for name in $(declare -F | cut -d' ' -f3 | grep -vE '^(claim|node|nodes|at|has|code|within|agent_of|gone|now|train|keep|ranks_of|ends_as_uninterrupted)$'); do
  [ $# -lt 2 ] || [[ $name =~ $2 ]] || continue
  [ $# = 2 ] || [[ ! $name =~ $long ]] || continue  # when asked for
  claim "$name"
done
echo "$((claims - failures)) of $claims claims hold"
[ "$failures" = 0 ]
