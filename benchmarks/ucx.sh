#!/usr/bin/env bash
# What two hosts give over UCX: ucx_perftest, parx over TCP and over UCX, and an MPI over UCX, one below the
# other. Prints what is missing instead of failing. About three minutes.
#
#   bash benchmarks/ucx.sh HOST1 HOST2                   # both see this folder; started by ssh
#   RUN="srun -N1 -n1 -w" bash benchmarks/ucx.sh n1 n2   # inside an allocation of Slurm
#   RUN=here UCX_TLS=tcp bash benchmarks/ucx.sh here here   # two emulated hosts on this machine, to try it out
#
#   BUILD      folder with bin/parx-bench (build/release of the repository)
#   RUN        how a command is started on a host (ssh)
#   ADDRESS    by which HOST2 reaches HOST1 (what HOST1 says itself); PORT (17170) and the 20 ports after it
#   UCX_TLS, UCX_NET_DEVICES, UCX_IB_GID_INDEX   as the job would have them
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
first=${1:?two hosts} second=${2:?two hosts}
bin=${BUILD:-$here/../build/release}/bin
run=${RUN:-ssh}
port=${PORT:-17170}
settings=()
for name in UCX_TLS UCX_NET_DEVICES UCX_IB_GID_INDEX; do
  [[ -z ${!name:-} ]] || settings+=("$name=${!name}")
done
on() { # HOST COMMAND...
  local host=$1; shift
  if [[ $run == here ]]; then env "${settings[@]}" "$@"; else $run "$host" env "${settings[@]}" "$@"; fi
}
address=${ADDRESS:-}
if [[ -z $address ]]; then
  if [[ $run == here ]]; then address=127.0.0.1; else address=$(on "$first" hostname -I | awk '{ print $1 }'); fi
fi

echo "== $first ($address) and $second; ${settings[*]:-as UCX chooses}"
for host in "$first" "$second"; do
  on "$host" bash -c '
    echo "-- $(hostname): $(ucx_info -v 2>/dev/null | head -n 1), locked memory $(ulimit -l) KiB"
    for port in /sys/class/infiniband/*/ports/*; do
      [ -e "$port/state" ] && echo "   ${port#/sys/class/infiniband/}: $(cat "$port/state"), $(cat "$port/rate"), $(cat "$port/link_layer")"
    done
    [ -d /dev/infiniband ] || echo "   no /dev/infiniband"'
done

echo "== ucx_perftest"
perftest() { # TEST BYTES TIMES
  port=$((port + 1))
  on "$first" timeout 60 ucx_perftest -p "$port" -t "$1" -s "$2" -n "$3" -w 100 -f >/dev/null 2>&1 &
  local server=$!
  sleep 1
  on "$second" timeout 60 ucx_perftest "$address" -p "$port" -t "$1" -s "$2" -n "$3" -w 100 -f 2>/dev/null |
    awk -v what="$1 $2" 'NF >= 8 { us = $2; rate = $6 }
      END { print what " B: " (us == "" ? "NOT MEASURED" : what ~ /_lat/ ? us " us" : rate " MB/s") }'
  wait "$server" 2>/dev/null
}
if on "$first" sh -c 'command -v ucx_perftest' >/dev/null; then
  for test in ucp_am_lat tag_lat; do perftest "$test" 8 5000; done
  for test in ucp_am_bw tag_bw; do perftest "$test" 262144 1000; perftest "$test" 4194304 100; done
else
  echo "NOT MEASURED: ucx_perftest is not installed (Debian: ucx-utils)"
fi

echo "== parx: all_reduce of float, us a call"
parx() { # TRANSPORT
  port=$((port + 1))
  local rank host both=()
  for rank in 0 1; do
    host=$first; [[ $rank == 0 ]] || host=$second
    on "$host" RANK=$rank WORLD_SIZE=2 MASTER_ADDR="$address" MASTER_PORT=$port PARX_HOST_ID=$rank \
      PARX_TRANSPORT="$1" timeout 120 "$bin/parx-bench" -b 4 -e 16M -f 4 --budget 0.1 2>&1 |
      awk -v rank=$rank -v what="$1" 'rank == 0 && $1 ~ /^[0-9]+$/ { printf "%s %s B: %s\n", what, $1, $10 } /error|usage/ { print }' &
    both+=($!)
  done
  wait "${both[@]}"
}
parx tcp
parx ucx

echo "== an MPI over UCX"
peer=$bin/peer-mpich mpirun=$(command -v mpirun.mpich || command -v mpiexec.mpich || true)
if [[ -x $peer && -n $mpirun ]]; then
  hosts=(-hosts "$first,$second"); [[ $run != here ]] || hosts=()
  local_memory=(); [[ $run != here ]] || local_memory=(MPIR_CVAR_NOLOCAL=1)
  env "${settings[@]}" "${local_memory[@]}" timeout 120 "$mpirun" "${hosts[@]}" -np 2 "$peer" -b 4 -e 16M -f 4 --budget 0.1 |
    awk '$1 ~ /^[0-9]+$/ { print "MPICH " $1 " B: " $10 }'
else
  echo "NOT MEASURED: $peer or MPICH's mpirun is missing (libmpich-dev, mpich); or start the site's MPI by hand"
fi
