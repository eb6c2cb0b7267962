#!/usr/bin/env bash
# Measures all_reduce between two "hosts" whose link is as slow as a real network's, and prints it beside the
# prediction of the alpha-beta model:
#
#   doubling  alpha + S beta           2 ranks exchange the whole vector once
#   ring      alpha + S beta, and no   2 (P-1) messages of S/P bytes: the second leaves as the first
#             less than 2 alpha + S/2 beta                        arrives
#
# beta is the reciprocal of the link's speed for payload; alpha is fitted to one figure, the fastest batch of 4
# bytes with doubling (load only ever increases it), and every row's median is a test. If other programs run, the
# medians, and so the ratios, depend on them more than on the link.
#
# Over a link with a delay, means over consecutive calls are compared, also the 4 bytes for alpha: a rank that
# enters a call late by the delay finds the other's message there and is done at once, and the other waits for it
# in the next call, so single calls alternately take no time and twice the delay.
#
#   sudo bash benchmarks/throttled.sh [parx-bench arguments...]
#     RATE     speed of each direction in Mbit/s (200)
#     DELAY    added to each direction in ms (0)
#     CONGESTION  TCP's congestion control (the system's). The model ignores it: with bbr, which measures the link
#              while it sends, consecutive calls of several sizes take up to twice as long
#     BUILD    folder with bin/parx-bench (build/release of the repository)
#
# two_hosts.sh makes the hosts. If that is not possible, nothing is measured, and the exit code is 77.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
rate=${RATE:-200}
delay=${DELAY:-0}
[[ -x $bin/parx-bench ]] || { echo "throttled.sh: build $bin/parx-bench first" >&2; exit 2; }
. "$here/two_hosts.sh"
two_hosts "$rate" "$delay"
calls=()
[[ $delay == 0 ]] || calls=(-w 10 -n 40)
on_both "$bin/parx-bench" -b 4 -e 1M -f 16 --budget 0.1 "${calls[@]}" "$@" \
  --op all_reduce --algo doubling,ring --format json

awk -v rate="$rate" -v delay="$delay" '
  function number_of(text, key) {
    if (!match(text, "\"" key "\":[-0-9.e+]+")) return 0
    return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
  }
  BEGIN {
    # A frame of 1514 bytes, as tbf counts it, carries 1448 of payload (timestamps on).
    beta = 8 / rate * 1514 / 1448
    key = delay > 0 ? "time_us" : "median_us"
    fitted = delay > 0 ? "time_us" : "min_us"
    printf "# all_reduce, 2 hosts, %s Mbit/s and %s ms a direction: %s us, in place\n",
      rate, delay, (delay > 0 ? "mean" : "median")
  }
  {
    algorithm = /"algorithm":"ring"/ ? "ring" : "doubling"
    size = number_of($0, "size")
    match($0, /"in_place":\{[^}]*\}/)
    column = substr($0, RSTART, RLENGTH)
    measured = number_of(column, key)
    wrong += number_of(column, "wrong")
    if (NR == 1) {
      alpha = number_of(column, fitted) - size * beta
      printf "# alpha %.1f us (of the first row), beta %.5f us/byte\n", alpha, beta
      printf "%-10s %10s %12s %12s %9s\n", "algorithm", "bytes", "measured", "predicted", "ratio"
    }
    predicted = alpha + size * beta
    # The second half leaves as the first arrives, so that only what it has to wait for comes on top.
    if (algorithm == "ring" && alpha > size / 2 * beta) predicted += alpha - size / 2 * beta
    printf "%-10s %10d %12.1f %12.1f %9.2f\n", algorithm, size, measured, predicted, measured / predicted
  }
  END {
    printf "# wrong elements: %d\n", wrong
    exit wrong > 0 || NR == 0
  }' "$two_hosts_work/0.out"
