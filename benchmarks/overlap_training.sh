#!/usr/bin/env bash
# How much of the gradients' communication over a slow link ddp hides behind backward.
#
#   sudo bash benchmarks/overlap_training.sh [parx-bench-train arguments...]      (--batch 2560: a slower, usual link)
#     RATE     speed of the link in Mbit/s; without it such that communication takes as long as backward
#     BUCKET   MiB of a gradient bucket (1)
#     BUILD    folder with bin/parx-bench-train (build/release of the repository)
#
# Two "hosts" (two_hosts.sh) train twelve equal layers, once each alone and once with ddp. Prints the times of one
# step's computation and of its communication (bytes of gradients over the link's speed), the time of the step with
# both, its ratio to the longer of the two, and the fraction of the communication that was hidden. The last bucket
# is sent when backward ends, so a perfect overlap of equal times hides all but that bucket.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
bucket=${BUCKET:-1}
[[ -x $bin/parx-bench-train ]] || { echo "overlap_training.sh: build $bin/parx-bench-train first" >&2; exit 2; }
. "$here/two_hosts.sh"
two_hosts_burst=256kb
export OMP_NUM_THREADS=1
field() { grep -oE "\"$1\": [0-9.]+" "$two_hosts_work/0.out" | grep -oE '[0-9.]+$'; }
bench() { on_both "$bin/parx-bench-train" --model deep --bucket-mib "$bucket" "${arguments[@]}" "$@"; }
arguments=("$@")

# Each rank alone, but at the same time, so that both share the machine's memory and caches in both measurements.
two_hosts "${RATE:-10000}"
bench --parallel bare
compute=$(field step_ms) backward=$(field backward_ms)
bench --seconds 1
mib=$(field gradient_mib)
# Both directions carry all gradients once; a frame of 1514 bytes, as tbf counts it, has 1448 of payload.
rate=${RATE:-$(awk -v mib="$mib" -v ms="$backward" 'BEGIN { printf "%.0f", mib * 1048576 * 8 * 1514 / 1448 / ms / 1e3 }')}
link_speed "$rate"
bench
awk -v mib="$mib" -v rate="$rate" -v compute="$compute" -v backward="$backward" -v step="$(field step_ms)" -v hidden="$(field hidden)" 'BEGIN {
  wire = mib * 1048576 * 8 * 1514 / 1448 / rate / 1e3
  longer = compute > wire ? compute : wire
  printf "gradients %.2f MiB, link %d Mbit/s\n", mib, rate
  printf "computation %.1f ms (backward %.1f), communication %.1f ms\n", compute, backward, wire
  printf "step with both %.1f ms: %.2f of the longer of the two; %.0f %% of the communication hidden\n", step, step / longer, 100 * hidden
}'
