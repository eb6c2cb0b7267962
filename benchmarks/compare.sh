#!/usr/bin/env bash
# Compares parx with its peers: the same operations, checks and clocks, in alternating rounds on this host.
#
#   bash benchmarks/compare.sh                        all_reduce at 2 and 4 ranks, 4 B to 64 MiB, five rounds
#   RANKS="2 8" ROUNDS=9 bash benchmarks/compare.sh --op broadcast -b 1K -e 16M -f 8
#
# Arguments go to parx-bench and to the peers' programs. Each cell is the median over rounds of a
# round's median batch in microseconds [smallest..largest round], in place where the operation has that.
# A ratio below 1 means that parx is faster; it is in brackets where the rounds' ranges overlap.
#   BUILD      folder with bin/parx-bench (build/release of the repository)
#   RANKS      worlds to measure (2 4)
#   ROUNDS     rounds (5)
#   KEEP       folder that receives all rows as JSON; without it they are thrown away
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
ranks=${RANKS:-2 4}
rounds=${ROUNDS:-5}
rows=${KEEP:-$(mktemp -d)}
mkdir -p "$rows"
[[ -n ${KEEP:-} ]] || trap 'rm -rf "$rows"' EXIT
arguments=(-b 4 -e 64M -f 4 --budget 0.2 "$@")

if [[ ! -x $bin/parx-bench || ! -x $bin/parxrun ]]; then
  echo "compare.sh: $bin has no parx-bench and parxrun; build them first:" >&2
  echo "  cmake --preset release && cmake --build build/release --target parx-bench parxrun" >&2
  exit 2
fi

# A contender is a function start_NAME(world, arguments...) and, for a peer, a line below.
start_parx() {
  local world=$1; shift
  "$bin/parxrun" -n "$world" --tag-output=false "$bin/parx-bench" "$@"
}
start_parx-tcp() {
  PARX_TRANSPORT=tcp start_parx "$@"
}
open_mpi() {
  local world=$1; shift
  local as_root=(); [[ $(id -u) -ne 0 ]] || as_root=(--allow-run-as-root)
  mpirun --oversubscribe "${as_root[@]}" "${mca[@]}" -np "$world" "$bin/peer-open-mpi" "$@"
}
start_open-mpi-tcp() {
  local mca=(-x BENCH_NETWORK=tcp --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo)
  open_mpi "$@"
}
start_open-mpi() { local mca=(); open_mpi "$@"; }

contenders=(parx parx-tcp)
# add_peer NAME PROGRAM LAUNCHER
add_peer() {
  if [[ -x $bin/$2 ]] && command -v "$3" >/dev/null; then
    contenders+=("$1")
  else
    echo "# without $1: $bin/$2 or $3 is missing" >&2
  fi
}
add_peer open-mpi-tcp peer-open-mpi mpirun
add_peer open-mpi     peer-open-mpi mpirun

for ((round = 1; round <= rounds; ++round)); do
  for world in $ranks; do
    for name in "${contenders[@]}"; do
      echo "# round $round of $rounds: $name, $world ranks" >&2
      "start_$name" "$world" "${arguments[@]}" --format json > "$rows/$name.$world.$round.json"
    done
  done
done

# "op ranks size name median" for each row of each round.
for name in "${contenders[@]}"; do
  cat "$rows/$name".*.json |
    sed -nE -e 's/"out_of_place":(.*),"in_place":null/"in_place":\1/' \
      -e 's/.*"ranks":([0-9]+),"op":"([a-z_]+)".*"size":([0-9]+),.*"in_place":\{"time_us":[0-9.]+,"median_us":([0-9.]+).*/\2 \1 \3 '"$name"' \4/p'
done |
  sort -k1,1 -k2,2n -k3,3n -k4,4 -k5,5n |
  awk -v names="${contenders[*]}" '
    function number(x) { return x < 100 ? sprintf("%.1f", x) : sprintf("%.0f", x) }
    function size_text(b) {
      if (b >= 1048576 && b % 1048576 == 0) return b / 1048576 " MiB"
      if (b >= 1024 && b % 1024 == 0) return b / 1024 " KiB"
      return b " B"
    }
    function flush_row(   i, line, peer, ratio) {
      if (row == "") return
      line = sprintf("%-9s", size_text(row_size))
      for (i = 1; i <= n; ++i) {
        peer = name[i]
        if (!(peer in count)) { line = line sprintf("  %28s", "-"); continue }
        middle[peer] = count[peer] % 2 ? value[peer, (count[peer] + 1) / 2] \
                                       : (value[peer, count[peer] / 2] + value[peer, count[peer] / 2 + 1]) / 2
        line = line sprintf("  %28s", number(middle[peer]) " [" number(value[peer, 1]) ".." number(value[peer, count[peer]]) "]")
        if (i == 1 || !("parx" in count)) continue
        ratio = sprintf("%.2f", middle["parx"] / middle[peer])
        if (value["parx", 1] <= value[peer, count[peer]] && value[peer, 1] <= value["parx", count["parx"]])
          ratio = "(" ratio ")"
        line = line sprintf(" %6s", ratio)
      }
      print line
      delete count
    }
    BEGIN { n = split(names, name, " ") }
    {
      if ($1 " " $2 != table) {
        flush_row(); row = ""
        table = $1 " " $2
        printf "\n%s, %d ranks: median us [spread over rounds], ratio parx/peer\n%-9s", $1, $2, "size"
        for (i = 1; i <= n; ++i) printf i == 1 ? "  %28s" : "  %28s  ratio", name[i]
        print ""
      }
      if ($1 " " $2 " " $3 != row) { flush_row(); row = $1 " " $2 " " $3; row_size = $3 }
      value[$4, ++count[$4]] = $5
    }
    END { flush_row() }'
