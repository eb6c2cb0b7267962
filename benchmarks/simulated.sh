#!/usr/bin/env bash
# Validates the simulator: runs collectives on 2, 4 and 8 "hosts" whose network is as slow as a real one, predicts
# the same runs with parx-bench --simulate, and prints measured / predicted for every algorithm.
#
#   sudo bash benchmarks/simulated.sh
#     HOSTS    numbers of hosts ("2 4 8")
#     OPS      operations ("all_reduce all_gather broadcast reduce_scatter all_to_all")
#     SIZES    smallest and largest size, factor ("4K 256K 8")
#     RATE     speed of each direction in Mbit/s (20)
#     BUILD    folder with bin/parx-bench (build/release of the repository)
#
# The hosts are network namespaces, one rank each, on one bridge; tbf shapes what each sends and receives. The
# model gets two figures: the payload rate at RATE, and one latency, fitted to the fastest all_reduce of 4 bytes
# between two hosts. Eight ranks on few cores also wait for processor time, which the model ignores. Everything is
# removed at the end. Without namespaces or tbf nothing is measured, and the exit code is 77.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BUILD:-$here/../build/release}/bin
rate=${RATE:-20}
read -r smallest largest factor <<< "${SIZES:-4K 256K 8}"
prefix=parxs$$
port=29519
limit=120

not_measured() {
  echo "simulated.sh: NOT MEASURED: $1" >&2
  exit 77
}
[[ -x $bin/parx-bench ]] || { echo "simulated.sh: build $bin/parx-bench first" >&2; exit 2; }
[[ $(id -u) -eq 0 ]] || not_measured "network namespaces need root"
for tool in ip tc; do
  command -v $tool >/dev/null || not_measured "$tool is missing (package iproute2)"
done
most=2
for hosts in ${HOSTS:-2 4 8}; do [[ $hosts -le $most ]] || most=$hosts; done

work=$(mktemp -d)
started=()
take_down() {
  local pid host
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  # A namespace takes its end of each veth pair with it.
  for ((host = 0; host < most; ++host)); do ip netns del "$prefix-$host" 2>/dev/null || true; done
  ip netns del "$prefix-switch" 2>/dev/null || true
  rm -rf "$work"
}
trap take_down EXIT
trap 'exit 130' INT TERM

shape() {
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "${rate}mbit" burst 2kb limit 16mb 2>"$work/why" ||
    not_measured "no tbf in this kernel: $(<"$work/why")"
}
ip netns add "$prefix-switch" 2>"$work/why" || not_measured "no network namespace: $(<"$work/why")"
ip -n "$prefix-switch" link add switch type bridge 2>"$work/why" || not_measured "no bridge: $(<"$work/why")"
ip -n "$prefix-switch" link set switch up
for ((host = 0; host < most; ++host)); do
  ip netns add "$prefix-$host"
  ip link add eth0 netns "$prefix-$host" type veth peer name "port$host" netns "$prefix-switch" 2>"$work/why" ||
    not_measured "no veth pair: $(<"$work/why")"
  ip -n "$prefix-switch" link set "port$host" master switch up
  ip -n "$prefix-$host" link set lo up
  ip -n "$prefix-$host" addr add "10.213.78.$((host + 1))/24" dev eth0
  ip -n "$prefix-$host" link set eth0 up
  shape "$prefix-$host" eth0
  shape "$prefix-switch" "port$host"
done

# measure HOSTS FILE arguments...: rank 0's rows.
measure() {
  local hosts=$1 file=$2 host pid
  shift 2
  started=()
  for ((host = 0; host < hosts; ++host)); do
    RANK=$host WORLD_SIZE=$hosts MASTER_ADDR=10.213.78.1 MASTER_PORT=$port PARX_TRANSPORT=tcp \
      PARX_SOCKET_IFNAME=eth0 ip netns exec "$prefix-$host" timeout "$limit" "$bin/parx-bench" \
      --budget 0.1 --format json "$@" > "$work/rank$host.json" &
    started+=($!)
  done
  for pid in "${started[@]}"; do
    wait "$pid" || { echo "simulated.sh: a rank failed, see above" >&2; exit 1; }
  done
  started=()
  cp "$work/rank0.json" "$file"
}

# A frame of 1514 bytes, as tbf counts it, carries 1448 of payload (timestamps on).
bandwidth=$(awk -v rate="$rate" 'BEGIN { print rate / 8 * 1448 / 1514 / 1000 }')
measure 2 "$work/latency.json" --op all_reduce --algo doubling -b 4 -e 4
latency=$(grep -m1 -o '"in_place":{[^}]*}' "$work/latency.json" | grep -o '"min_us":[0-9.e+-]*' | cut -d: -f2)
printf '# %s Mbit/s = %s GB/s of payload; latency %s us\n' "$rate" "$bandwidth" "$latency"
printf '%-15s %6s %-15s %10s %12s %12s %7s\n' operation hosts algorithm bytes measured predicted ratio
for hosts in ${HOSTS:-2 4 8}; do
  for op in ${OPS:-all_reduce all_gather broadcast reduce_scatter all_to_all}; do
    sizes=(--op "$op" -b "$smallest" -e "$largest" -f "$factor")
    "$bin/parx-bench" --simulate --ranks "$hosts" --hosts "$hosts" --link-latency "$latency" \
      --link-bandwidth "$bandwidth" "${sizes[@]}" | grep -v '^#' > "$work/predicted"
    algorithms=$(awk '{ print $3 }' "$work/predicted" | sort -u | paste -sd,)
    measure "$hosts" "$work/measured.json" "${sizes[@]}" --algo "$algorithms"
    awk -v hosts="$hosts" '
      function number_of(text, key) {
        if (!match(text, "\"" key "\":[-0-9.e+]+")) return 0
        return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
      }
      FILENAME ~ /predicted$/ { predicted[$2, $3] = $4; next }
      {
        match($0, /"algorithm":"[^"]*"/)
        algorithm = substr($0, RSTART + 13, RLENGTH - 14)
        match($0, /"operation":"[^"]*"/)
        match($0, /"out_of_place":\{[^}]*\}/) || match($0, /"in_place":\{[^}]*\}/)
        measured = number_of(substr($0, RSTART, RLENGTH), "median_us")
        size = number_of($0, "size")
        if (!((size, algorithm) in predicted) || predicted[size, algorithm] !~ /^[0-9]/) next
        printf "%-15s %6d %-15s %10d %12.1f %12.1f %7.2f\n", op, hosts, algorithm, size, measured,
               predicted[size, algorithm], measured / predicted[size, algorithm]
      }' op="$op" "$work/predicted" "$work/measured.json" | tee -a "$work/all"
  done
done
sort -k7,7n "$work/all" | awk '{ ratio[NR] = $7 }
  END { printf "# %d rows: measured / predicted median %.2f, from %.2f to %.2f\n", NR, ratio[int((NR + 1) / 2)],
               ratio[1], ratio[NR] }'
