#!/usr/bin/env bash
# Compares training with parx and with PyTorch's DDP: the same models, batches and optimizers, the same number of
# threads a rank, in alternating rounds on this host.
#
#   bash benchmarks/compare_training.sh                         all four models at 1 and 2 ranks
#   MODELS=bert RANKS=2 ROUNDS=7 bash benchmarks/compare_training.sh --dropout 0.1
#
# A line for each model and world: samples/s of parx (median of the rounds, and their spread), of PyTorch as it
# comes and with gradient_as_bucket_view=True, parx's ratio to the better of the two, both peak memories a rank and
# their ratio. Below it, what the ddp wrapper costs in a world of one, and samples/s at 2 ranks against
# twice those of one rank on one core. Other arguments go to both programs.
#   ZERO=1     bert or gpt with the optimizer's state cut over 2 ranks or more: parx-bench-fsdp's zero1 against
#              PyTorch's ZeroRedundancyOptimizer
#   BUILD      folder with bin/parx-bench-train and bin/parxrun (build/release of the repository)
#   MODELS     models to train (bert mlp cnn gpt)
#   RANKS      worlds to measure (1 2)
#   THREADS    threads of a rank (1)
#   ROUNDS     rounds (3)
#   SECONDS_EACH  length of one measurement (4)
#   PYTHON     an interpreter with PyTorch (/usr/bin/python3)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
python=${PYTHON:-/usr/bin/python3}
models=${MODELS:-${ZERO:+bert gpt}}
models=${models:-bert mlp cnn gpt}
worlds=${RANKS:-${ZERO:+2}}
worlds=${worlds:-1 2}
rounds=${ROUNDS:-3}
length=${SECONDS_EACH:-4}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

if [[ ! -x $bin/parx-bench-train || ! -x $bin/parxrun ]]; then
  echo "compare_training.sh: $bin lacks parx-bench-train or parxrun; build them first:" >&2
  echo "  cmake --preset release && cmake --build build/release --target parx-bench-train parxrun" >&2
  exit 2
fi
with_torch=yes
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "# without PyTorch: $python cannot import torch (apt-get install python3-torch)" >&2
  with_torch=
fi

export OMP_NUM_THREADS=${THREADS:-1}
# record CONTENDER COMMAND...: its JSON line, marked with the contender.
record() {
  local contender=$1 line; shift
  if ! line=$(timeout 300 "$@" 2>&1); then
    echo "# $contender failed: $line" >&2
    return
  fi
  grep -F '"samples_per_s"' <<<"$line" | sed "s/^{/{\"contender\": \"$contender\", /" >>"$rows"
}
zero=${ZERO:-}
parx() {
  local contender=$1 world=$2; shift 2
  if [[ -n $zero ]]; then
    record "$contender" "$bin/parxrun" -n "$world" --tag-output=false "$bin/parx-bench-fsdp" --ways zero1 --json --seconds "$length" "$@"
    return
  fi
  record "$contender" "$bin/parxrun" -n "$world" --tag-output=false "$bin/parx-bench-train" --seconds "$length" "$@"
}
torch() {
  local contender=$1 world=$2; shift 2
  [[ -z $with_torch ]] || record "$contender" "$python" "$here/peers/torch_train.py" --world "$world" --seconds "$length" ${zero:+--zero} "$@"
}

for ((round = 1; round <= rounds; round++)); do
  for model in $models; do
    for world in $worlds; do
      parx parx "$world" --model "$model" "$@"
      torch torch "$world" --model "$model" "$@"
      if [[ $world -gt 1 ]]; then torch torch-view "$world" --model "$model" --bucket-view "$@"; fi
      if [[ $world == 1 ]]; then
        parx bare "$world" --model "$model" --parallel bare "$@"
        record pinned taskset -c 0 "$bin/parx-bench-train" --seconds "$length" --model "$model" "$@"
      fi
    done
    echo "# round $round of $rounds: $model" >&2
  done
done
awk -f "$here/compare_training.awk" "$rows"
