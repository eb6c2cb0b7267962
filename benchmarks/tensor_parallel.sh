#!/usr/bin/env bash
# The speedup of training one GPT with its layers cut over two ranks, compared with one rank; one thread per rank.
#
#   bash benchmarks/tensor_parallel.sh [parx-bench-train arguments...]
#
# Prints a line for each width and way, measured in alternating rounds: samples/s (median of the rounds, and their
# spread), the ratio to one rank, MiB of parameters and of all memory of a rank, and the last loss, which must be
# that of one rank.
#   WIDTHS     features of the model (512 1024)
#   ROUNDS     rounds (3)
#   BUILD      folder with bin/parx-bench-train and bin/parxrun (build/release of the repository)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
[[ -x $bin/parx-bench-train && -x $bin/parxrun ]] || { echo "tensor_parallel.sh: build parx-bench-train and parxrun in $bin first" >&2; exit 2; }
export OMP_NUM_THREADS=1
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
record() {  # record WIDTH WAY COMMAND...: "width way samples/s parameters memory loss"
  local width=$1 way=$2
  shift 2
  local line
  line=$("$@" --model gpt --heads 8 --layers 2 --batch 4 --seconds 0 --warm-up 2 --width "$width" "${arguments[@]}")
  field() { grep -oE "\"$1\": [0-9.]+" <<<"$line" | grep -oE '[0-9.]+$'; }
  echo "$width $way $(field samples_per_s) $(field gradient_mib) $(field peak_mib) $(field last_loss)" >>"$rows"
}
arguments=("$@")
two=("$bin/parxrun" -n 2 --tag-output=false "$bin/parx-bench-train")
for width in ${WIDTHS:-512 1024}; do
  for _ in $(seq "${ROUNDS:-3}"); do
    record "$width" one taskset -c 0 "$bin/parx-bench-train" --parallel ddp
    for way in tp tp-sp; do
      record "$width" "$way" "${two[@]}" --parallel "$way"
      PARX_TRANSPORT=tcp record "$width" "$way,tcp" "${two[@]}" --parallel "$way"
    done
  done
done
awk '{ key = $1 " " $2; if (!(key in n)) order[++keys] = key
       rate[key, ++n[key]] = $3; part[key] = $4; peak[key] = $5; loss[key] = $6 }
  function median(key,   i, j, t, v) {
    for (i = 1; i <= n[key]; i++) v[i] = rate[key, i]
    for (i = 1; i <= n[key]; i++) for (j = i + 1; j <= n[key]; j++) if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t }
    spread = 100 * (v[n[key]] - v[1]) / v[int((n[key] + 1) / 2)]
    return v[int((n[key] + 1) / 2)]
  }
  END { printf "%6s %-10s %10s %7s %6s %12s %9s %8s\n", "width", "way", "samples/s", "spread", "ratio", "parameters", "MiB", "loss"
    for (k = 1; k <= keys; k++) { key = order[k]; split(key, of, " "); m = median(key)
      printf "%6d %-10s %10.1f %6.0f%% %6.2f %12.2f %9.1f %8.4f\n", of[1], of[2], m, spread, m / median(of[1] " one"), part[key], peak[key], loss[key] } }' "$rows"
