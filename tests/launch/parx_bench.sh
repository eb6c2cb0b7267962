#!/bin/bash
# What parx-bench does with flags that make no sense and with files that cannot be written:
#   parx_bench.sh PARX_BENCH
set -u
bench=$1
failed=0
wrong() { echo "FAILED: $*"; failed=1; }

# refused TEXT FLAGS...: exit code 2, and TEXT in what it says.
refused() {
  local text=$1 said code
  shift
  said=$("$bench" "$@" 2>&1)
  code=$?
  [[ $code = 2 && $said = *"$text"* ]] || wrong "parx-bench $*: exit $code, $(head -n 2 <<< "$said")"
}
refused "at least one byte" -b 0
refused "beyond the last" -b 64 -e 4
refused "at least 2" -f 1
refused "cannot be negative" -n -1
refused "the operations are" --op frobnicate
refused "no such datatype" -d complex
refused "not defined for float" -o band
refused "no such rank in a world of 8" --simulate --ranks 8 -r 99 --op broadcast
refused "no schedules to simulate" --simulate --ranks 8 --op send_recv
refused "the algorithms of all_reduce are" --simulate --ranks 8 --algo tre
refused "a table of its own" --simulate --ranks 8 --json /dev/null

# A disk that is full.
for full in "--json /dev/full" "--plot /dev/full"; do
  said=$("$bench" -n 1 -e 16 $full 2>&1 >/dev/null) && wrong "parx-bench $full: exit 0"
  [[ $said = *"not all of it could be written"* ]] || wrong "parx-bench $full: $said"
done
said=$("$bench" -n 1 -e 16 2>&1 >/dev/full) && wrong "parx-bench > /dev/full: exit 0"
[[ $said = *"not all of the output could be written"* ]] || wrong "parx-bench > /dev/full: $said"

# Sizes that no element fits into, or a whole number of them.
"$bench" -n 1 -b 1 -e 17 -d double >/dev/null || wrong "sizes that are no multiple of the type"
"$bench" --simulate --ranks 4 -e 16 >/dev/null || wrong "fewer ranks than hosts by default"
said=$(timeout 60 "$bench" --simulate --ranks 4096 --hosts 512 -b 1K -e 64M -f 8) ||
  wrong "4096 simulated ranks take longer than a minute"
[[ $said = *" hierarchical "* ]] || wrong "the simulation left an algorithm out"
exit $failed
