#!/usr/bin/env bash
# delayed_link.sh FOLDER_OF_PROGRAMS: whether benchmarks/throttled.sh measures a link with a delay: nothing comes
# sooner than the link allows, and what it measures is of the order of its prediction (the machine may be busy).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$1
report=$(mktemp)
trap 'rm -f "$report"' EXIT
fail() { echo "FAILED: $1"; cat "$report"; exit 1; }

status=0
BUILD=${bin%/bin} RATE=200 DELAY=10 CONGESTION=reno bash "$here/../../benchmarks/throttled.sh" -e 256K >"$report" 2>&1 || status=$?
[[ $status != 77 ]] || { sed 's/^/NOT TRIED: /' "$report"; exit 77; }
[[ $status == 0 ]] || fail "throttled.sh ended with $status"
grep -q '^# all_reduce, 2 hosts, 200 Mbit/s and 10 ms a direction: mean us' "$report" || fail "no heading"
grep -q '^# wrong elements: 0$' "$report" || fail "no word about wrong elements"
# 10 ms for each of the messages that wait for each other; 8 bits a byte at 200 Mbit/s, but for tbf's bursts.
awk '$1 == "doubling" || $1 == "ring" {
       ++rows
       latency = ($1 == "ring" ? 2 : 1) * 10000
       transfer = 10000 + ($2 - 65536) * 8 / 200
       if ($3 < 0.98 * latency || $3 < 0.98 * transfer || $5 > 10) { print "FAILED: " $0; wrong = 1 }
     }
     END { exit wrong || rows < 8 }' "$report" || fail "what it measured is not what this link does"

"$bin/delayed-link" 2>/dev/null && fail "delayed-link without arguments"
"$bin/delayed-link" 1x eth0 a b 2>/dev/null && fail "delayed-link with a delay that is no number"
said=$("$bin/delayed-link" 1 eth0 no-such-network other 2>&1) && fail "delayed-link between networks that do not exist"
[[ $said == *"cannot open /run/netns/no-such-network: No such file or directory"* ]] || fail "it said: $said"
echo "measured over a link with a delay"
