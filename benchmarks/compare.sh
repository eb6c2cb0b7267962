#!/usr/bin/env bash
# Compares parx with its peers: the same operations, checks and clocks, in alternating rounds on this host.
#
#   bash benchmarks/compare.sh                        all_reduce at 2 and 4 ranks, 4 B to 64 MiB, five rounds
#   RANKS="2 8" ROUNDS=9 bash benchmarks/compare.sh --op broadcast -b 1K -e 16M -f 8
#   bash benchmarks/compare.sh --plot pictures        also pictures/all_reduce-2.svg, ...: a line a contender
#
# parx over TCP is compared with peers restricted to TCP, and parx with its defaults (shared memory inside a host;
# parx-shared: in its own shared buffers) with peers with their defaults. The head of compare.awk explains the
# tables. --algo is for parx alone; other arguments go to parx-bench and to the peers' programs.
#   BUILD      folder with bin/parx-bench (build/release of the repository)
#   RANKS      worlds to measure (2 4)
#   ROUNDS     rounds (5)
#   KEEP       folder that receives all rows as JSON; without it they are deleted
#   LIMIT      seconds after which one contender's round is given up (600)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
ranks=${RANKS:-2 4}
rounds=${ROUNDS:-5}
limit=${LIMIT:-600}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rows=${KEEP:-$scratch/rows}
mkdir -p "$rows"
points=$scratch/points
touch "$points"

arguments=(-b 4 -e 64M -f 4 --budget 0.2)
for_parx=()
operation=all_reduce
pictures=
while [[ $# -gt 0 ]]; do
  case $1 in
    --plot) pictures=${2:?--plot needs a folder}; shift 2 ;;
    --algo) for_parx=(--algo "${2:?--algo needs names}"); shift 2 ;;
    --op) operation=${2:?--op needs a name}; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

if [[ ! -x $bin/parx-bench || ! -x $bin/parxrun || ! -x $bin/bench-plot ]]; then
  echo "compare.sh: $bin lacks parx-bench, bench-plot or parxrun; build them first:" >&2
  echo "  cmake --preset release && cmake --build build/release --target parx-bench bench-plot parxrun" >&2
  exit 2
fi

# A contender is a function start_NAME(world, arguments...) and a line "NAME:kind:role" below.
under_parxrun() {
  local world=$1; shift
  timeout "$limit" "$bin/parxrun" -n "$world" --tag-output=false "$@"
}
start_parx() {
  local world=$1; shift
  under_parxrun "$world" "$bin/parx-bench" --op "$operation" "${for_parx[@]}" "$@"
}
start_parx-shared() { start_parx "$@" --shared; }
start_parx-tcp() { PARX_TRANSPORT=tcp start_parx "$@"; }

# Gloo falls into stalls on connections that have carried other traffic, so each operation, and each of its
# algorithms for all_reduce, has a process of its own.
gloo() {
  local world=$1 code=0; shift
  BENCH_STORE=$(mktemp -d "$scratch/store.XXXXXX")
  export BENCH_STORE
  under_parxrun "$world" "$bin/peer-gloo" "$@" || code=$?
  return $code
}
start_gloo() {
  local world=$1 each; shift
  local wanted=$operation
  [[ $wanted != all ]] || wanted="all_reduce all_gather broadcast reduce gather scatter all_to_all send_recv barrier"
  for each in $wanted; do
    case $each in
      all_reduce)
        local algorithm
        for algorithm in ring bcube halving_doubling; do
          gloo "$world" --op all_reduce --algo "$algorithm" "$@" || return
        done ;;
      reduce_scatter) ;;  # its result is not where that of the others is
      scan | exscan) ;;   # Gloo has none
      *) gloo "$world" --op "$each" "$@" || return ;;
    esac
  done
}

open_mpi_run=$(command -v mpirun.openmpi || command -v mpirun || true)
open_mpi() {
  local world=$1; shift
  local as_root=(); [[ $(id -u) -ne 0 ]] || as_root=(--allow-run-as-root)
  timeout "$limit" "$open_mpi_run" --oversubscribe "${as_root[@]}" "${mca[@]}" -np "$world" "$bin/peer-open-mpi" \
    --op "$operation" "$@"
}
start_open-mpi-tcp() {
  local mca=(-x BENCH_NETWORK=tcp --mca pml ob1 --mca btl "tcp,self" --mca btl_tcp_if_include lo)
  open_mpi "$@"
}
start_open-mpi() { local mca=(); open_mpi "$@"; }

mpich_run=$(command -v mpirun.mpich || true)
start_mpich() {
  local world=$1; shift
  timeout "$limit" "$mpich_run" -np "$world" "$bin/peer-mpich" --op "$operation" "$@"
}
# Debian's MPICH talks through UCX: NOLOCAL turns its own shared memory off, UCX_TLS that of UCX.
start_mpich-tcp() {
  BENCH_NETWORK=tcp MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo start_mpich "$@"
}

contenders=(parx:default:parx parx-shared:default:parx parx-tcp:tcp:parx)
# add_peer NAME KIND PROGRAM LAUNCHER
add_peer() {
  if [[ -x $bin/$3 && -n $4 ]]; then
    contenders+=("$1:$2:peer")
  else
    echo "# without $1: $bin/$3 or its launcher is missing" >&2
  fi
}
add_peer gloo         tcp     peer-gloo     "$bin/parxrun"
add_peer open-mpi-tcp tcp     peer-open-mpi "$open_mpi_run"
add_peer mpich-tcp    tcp     peer-mpich    "$mpich_run"
add_peer open-mpi     default peer-open-mpi "$open_mpi_run"
add_peer mpich        default peer-mpich    "$mpich_run"

# Sets clock to "time, processor seconds of this host, of this shell's children" so far. A subshell has children
# of its own only, so times writes into a file.
read_clock() {
  times > "$scratch/times"
  clock="$(date +%s.%N) $(awk -v ticks="$(getconf CLK_TCK)" '/^cpu / { print ($2 + $3 + $4) / ticks }' /proc/stat) $(
    awk 'NR == 2 { gsub(/[ms]/, " "); print 60 * $1 + $2 + 60 * $3 + $4 }' "$scratch/times")"
}

failed=()
files=()
foreign=()
for ((round = 1; round <= rounds; ++round)); do
  for world in $ranks; do
    for contender in "${contenders[@]}"; do
      name=${contender%%:*}
      echo "# round $round of $rounds: $name, $world ranks" >&2
      file=$rows/$name.$world.$round.json
      code=0
      read_clock
      before=$clock
      "start_$name" "$world" "${arguments[@]}" --format json > "$file" || code=$?
      files+=("$file")
      read_clock
      foreign+=("$(echo "$before $clock" |
        awk '{ cores = ($5 - $2 - $6 + $3) / ($4 - $1); printf "%.2f", (cores > 0 ? cores : 0) }')")
      [[ $code -eq 0 ]] || failed+=("$name with $world ranks in round $round (exit code $code)")
    done
  done
done

awk -v contenders="${contenders[*]}" -v points="$points" -f "$here/compare.awk" "${files[@]}"

printf '%s\n' "${foreign[@]}" | sort -n | awk '
  { cores[NR] = $1; busy += $1 > 0.25 }
  END {
    printf "\nOther programs used %.2f cores of this host in the median run, %.2f in the worst; %d of %d runs lost more " \
           "than 0.25.\n", cores[int((NR + 1) / 2)], cores[NR], busy, NR
  }'

if [[ -n $pictures ]]; then
  mkdir -p "$pictures"
  cut -f1,2 "$points" | sort -u | while IFS=$'\t' read -r op world; do
    picture=$pictures/$op-$world.svg
    awk -F'\t' -v OFS='\t' -v op="$op" -v world="$world" '$1 == op && $2 == world { print $3, $4, $5 }' "$points" |
      "$bin/bench-plot" "$op, $world ranks on one host" "median of $rounds rounds" > "$picture"
    echo "# drew $picture" >&2
  done
fi

if [[ ${#failed[@]} -gt 0 ]]; then
  printf '# FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
