#!/usr/bin/env bash
# How much of fsdp's communication over a slow link is hidden behind computation: overlap_training.sh for fsdp.
#
#   sudo bash benchmarks/overlap_sharded.sh [parx-bench-fsdp arguments...]
#     RATE     speed of the link in Mbit/s; without it such that communication takes as long as computation
#     BUILD    folder with bin/parx-bench-fsdp (build/release of the repository)
#
# Two "hosts" (two_hosts.sh) train twelve equal layers, first each alone, then sharded over both: values are
# gathered twice in a step and gradients reduced once. Prints, for each number of units gathered ahead: the time of a
# step, its ratio to the longer of computation and communication (bytes over the link's speed), and the fraction of
# the communication that was hidden, which is what does not add to the time of computation.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
[[ -x $bin/parx-bench-fsdp ]] || { echo "overlap_sharded.sh: build $bin/parx-bench-fsdp first" >&2; exit 2; }
. "$here/two_hosts.sh"
two_hosts_burst=256kb
export OMP_NUM_THREADS=1
field() { grep -oE "\"$1\": [0-9.]+" "$two_hosts_work/0.out" | grep -oE '[0-9.]+$'; }
arguments=(--model deep --batch 2560 --seconds 6 --json "$@")
sharded() { on_both "$bin/parx-bench-fsdp" --ways gathered "${arguments[@]}" "$@"; }

two_hosts "${RATE:-10000}"
# Each rank alone, but at the same time, so that both share the machine's memory and caches in both measurements.
on_both env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT "$bin/parx-bench-fsdp" --ways ddp "${arguments[@]}"
compute=$(field step_ms)
sharded --seconds 1
mib=$(field sent_mib)
# A frame of 1514 bytes, as tbf counts it, has 1448 of payload.
rate=${RATE:-$(awk -v mib="$mib" -v ms="$compute" 'BEGIN { printf "%.0f", mib * 1048576 * 8 * 1514 / 1448 / ms / 1e3 }')}
link_speed "$rate"
for ahead in 0 1 2; do
  sharded --prefetch "$ahead"
  awk -v mib="$mib" -v rate="$rate" -v compute="$compute" -v step="$(field step_ms)" -v ahead="$ahead" 'BEGIN {
    wire = mib * 1048576 * 8 * 1514 / 1448 / rate / 1e3
    longer = compute > wire ? compute : wire
    if (ahead == 0) printf "%.2f MiB a step and rank, link %d Mbit/s: computation %.1f ms, communication %.1f ms\n", mib, rate, compute, wire
    hidden = 1 - (step - compute) / wire
    printf "%d units gathered ahead: step %.1f ms, %.2f of the longer of the two; %.0f %% of the communication hidden\n", ahead, step, step / longer, 100 * (hidden < 0 ? 0 : hidden)
  }'
done
