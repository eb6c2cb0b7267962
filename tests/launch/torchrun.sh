#!/bin/bash
# parxrun beside the real torchrun:   torchrun.sh PATH_TO_PARXRUN short|all [CLAIM]
# A program finds the same variables under both; PyTorch's gloo meets under parxrun; parx programs meet under torchrun.
# Each claim is a function; it fails when one of its commands does.
set -u -m
parxrun=$(realpath "$1") form=$2
hello=$(dirname "$parxrun")/hello_all_reduce
python=/usr/bin/python3
$python -c 'import torch.distributed.run' 2>/dev/null || { echo "SKIPPED: no PyTorch for $python, so nothing was compared with torchrun"; exit 77; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 1
for name in $(compgen -e | grep -E '^(SLURM|PARX_|TORCHELASTIC_|PET_|OMP_)'); do unset "$name"; done
port=$((15000 + RANDOM % 1000)) claims=0 failures=0
# torchrun 1.13 under Python 3.11 reads its --redirects wrongly: the enumeration lost members.
cat >"$work/torchrun.py" <<'END'
from torch.distributed.elastic.multiprocessing.api import Std
Std.from_str = classmethod(lambda cls, v: {int(i): cls(int(s)) for i, s in (m.split(":") for m in v.split(","))} if ":" in v else cls(int(v)))
from torch.distributed.run import main
main()
END
claim() {
  local code
  claims=$((claims + 1)) port=$((port + 1))
  find . -mindepth 1 ! -name torchrun.py -delete
  (set -eu; "$1") >log 2>&1
  code=$?
  [ $code != 0 ] || return 0
  failures=$((failures + 1)); echo "FAILED: ${1//_/ }"; tail -n 40 log ./*.out ./*.err 2>/dev/null | sed 's/^/    /'
}
both() { local n; for n in a b; do PARX_HOST_ID=$n timeout -k 1 60 "$@" >$n.out 2>$n.err </dev/null & done; wait; }
has() { grep -qF -- "$2" "$1" || { echo "no \"$2\" in $1"; return 1; }; }
within() { local i; for i in $(seq $(($1 * 20))); do "${@:2}" && return; sleep 0.05; done; echo "not within $1 s: ${*:2}"; return 1; }

# The variables that both set, of each rank, but for those whose values are named here.
same_variables() {  # FOLDER_OF_TORCHRUN FOLDER_OF_PARXRUN RANKS
  local r
  for r in $(seq 0 $(($3 - 1))); do
    # A port, a file and an address are each start's own; the threads parxrun takes from the cores.
    local differ='MASTER_ADDR|MASTER_PORT|TORCHELASTIC_ERROR_FILE|OMP_NUM_THREADS'
    # torch's old name of TORCH_NCCL_ASYNC_ERROR_HANDLING; Python's own.
    grep -vE "^(NCCL_ASYNC_ERROR_HANDLING|LC_CTYPE)=" "$1/$r" | sed -E "s/^($differ)=.*/\1/" | sort >"theirs.$r"
    grep -vE "^(PARX_|TORCH_NCCL_ASYNC_ERROR_HANDLING=)" "$2/$r" | sed -E "s/^($differ)=.*/\1/" | sort >"ours.$r"
    diff "theirs.$r" "ours.$r"
  done
}
the_variables_of_a_rank_are_those_of_torchrun() {
  mkdir theirs ours
  local clean="env -i PATH=$PATH HOME=$HOME" options="--nnodes 2 --nproc_per_node 2 --rdzv_id job --rdzv_endpoint 127.0.0.1:$port --max_restarts 3 --role trainer"
  both $clean $python torchrun.py $options --rdzv_backend c10d --no_python sh -c 'env | grep -v ^_= >theirs/$RANK'
  port=$((port + 20)) options=${options/:$port/:$((port + 20))}
  both sh -c 'exec env -i PATH="$PATH" HOME="$HOME" PARX_HOST_ID=$PARX_HOST_ID "$@"' sh "$parxrun" ${options/127.0.0.1:[0-9]*/127.0.0.1:$port} --max_restarts 3 --role trainer --no_python sh -c 'env | grep -v ^_= >ours/$RANK'
  [ "$(ls theirs)" = "$(ls ours)" ]; same_variables theirs ours 4
}
so_are_those_of_one_host_with_on_loss_continue() {
  mkdir theirs ours
  env -i PATH="$PATH" HOME="$HOME" $python torchrun.py --standalone --nproc_per_node 2 --no_python sh -c 'env | grep -v ^_= >theirs/$RANK'
  env -i PATH="$PATH" HOME="$HOME" "$parxrun" -n 2 --on-loss continue sh -c 'env | grep -v ^_= >ours/$RANK'
  sed -i 's/^TORCHELASTIC_RUN_ID=.*/TORCHELASTIC_RUN_ID=/' theirs/* ours/*  # random in both
  same_variables theirs ours 2
  for r in 0 1; do [ "$(grep -c "PORT=$(sed -n 's/^MASTER_PORT=//p' ours/$r)$" ours/$r)" = 1 ]; done  # parx has another port
}
gloo_script() {
  cat >sum.py <<'END'
import os, sys, torch, torch.distributed as dist
if os.environ["TORCHELASTIC_RESTART_COUNT"] < os.environ.get("FAILS_UNTIL", "0") and os.environ["RANK"] == "1":
    sys.exit(3)
assert dist.is_torchelastic_launched() if hasattr(dist, "is_torchelastic_launched") else True
dist.init_process_group("gloo")
x = torch.ones(3) * dist.get_rank()
dist.all_reduce(x)
print("sum", int(x[0]), "of", dist.get_world_size(), "restarts", os.environ["TORCHELASTIC_RESTART_COUNT"])
END
}
a_gloo_script_meets_under_parxrun() {
  gloo_script
  PYTHON_EXEC=$python both "$parxrun" --nnodes 2 --rdzv-endpoint 127.0.0.1:$port --rdzv-id job -n 2 sum.py
  [ "$(cat a.out b.out | grep -c 'sum 6 of 4 restarts 0')" = 4 ]
  PYTHON_EXEC=$python timeout 60 "$parxrun" -n 2 --on-loss continue sum.py >one.out; [ "$(grep -c 'sum 1 of 2' one.out)" = 2 ]
}
it_meets_again_after_a_restart() {
  gloo_script; export FAILS_UNTIL=1
  PYTHON_EXEC=$python both "$parxrun" --nnodes 2 --rdzv-endpoint 127.0.0.1:$port --rdzv-id job -n 1 --max-restarts 1 sum.py
  [ "$(cat a.out b.out | grep -c 'sum 1 of 2 restarts 1')" = 2 ]
}
parx_meets_under_torchrun_after_an_agent_has_come_back() {
  [ "$form" = all ] || return 0
  cat >worker.sh <<END
echo \$\$ >pid.\$AGENT
$hello >reduced.\$AGENT 2>&1 || exit 1
grep -q WORLD_SIZE=2 reduced.\$AGENT && : >met.\$AGENT.\$TORCHELASTIC_RESTART_COUNT
until [ -e finish ]; do [ \$AGENT\$TORCHELASTIC_RESTART_COUNT = a0 ] && [ -e lost ] && exit 5; sleep 0.1; done
END
  agent() { AGENT=$1 timeout -k 1 100 $python torchrun.py --nnodes 1:2 --nproc_per_node 1 --rdzv_id job --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:$port --rdzv_conf "is_host=$2,last_call_timeout=20,join_timeout=90" --max_restarts 3 --monitor_interval 0.2 --no_python sh worker.sh >$1.out 2>$1.err & }
  agent a 1; within 20 eval '(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null'; agent b 0
  within 40 test -e met.a.0 -a -e met.b.0
  # Node b is lost, so the rank of a fails; b comes back. Its count begins anew, and that of a does not.
  kill -9 $(pgrep -f "torchrun.py .*127.0.0.1:$port .*is_host=0") $(cat pid.b); rm met.*; touch lost; agent b 0
  within 70 test -e met.a.1 -a -e met.b.0; touch finish; wait
}
for name in $(declare -F | cut -d' ' -f3 | grep -vE '^(claim|both|has|within|same_variables|gloo_script|agent)$'); do
  [ $# -lt 3 ] || [[ $name =~ $3 ]] || continue
  claim "$name"
done
echo "$((claims - failures)) of $claims claims hold"
[ "$failures" = 0 ]
