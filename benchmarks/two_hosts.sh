# Two "hosts" on this machine: network namespaces joined by a veth pair or, for a link with a delay, by
# delayed-link (delayed_link.cpp), each direction shaped by tbf. Source this file, with $bin set to the folder of
# the programs; needs root. Everything is removed when the shell ends.
#
#   . two_hosts.sh
#   two_hosts RATE_MBIT [DELAY_MS]      makes them; if that is not possible, exits with 77 and says why.
#                                       CONGESTION names TCP's congestion control (default: the system's)
#   link_speed RATE_MBIT                changes the speed of the link
#   in_host 0|1 COMMAND...              runs a command on one of them
#   on_both COMMAND...                  runs it as ranks 0 and 1 of a world of two, over TCP through the link, each
#                                       on a core of its own;
#                                       standard output goes to $two_hosts_work/0.out and 1.out
two_hosts_prefix=parx$$
two_hosts_work=$(mktemp -d)
two_hosts_port=29517
two_hosts_started=()
two_hosts_link=()

two_hosts_take_down() {
  local pid host
  for pid in "${two_hosts_started[@]}" "${two_hosts_link[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  # A namespace takes its end of the veth pair with it.
  for host in 0 1; do ip netns del "$two_hosts_prefix-$host" 2>/dev/null || true; done
  rm -rf "$two_hosts_work"
}
trap two_hosts_take_down EXIT
trap 'exit 130' INT TERM

not_measured() {
  echo "$(basename "$0"): NOT MEASURED: $1" >&2
  exit 77
}
in_host() {
  local host=$1; shift
  ip netns exec "$two_hosts_prefix-$host" "$@"
}
# A burst passes unthrottled, so latencies are only true with a small one. But below 64 KiB tbf cuts the kernel's
# large packets (GSO) into frames, which takes processor time from the ranks; network cards do that themselves.
two_hosts_burst=32kb
shaped_to() { echo "tbf rate ${1}mbit burst $two_hosts_burst latency 50ms"; }
link_speed() {
  local host
  # shellcheck disable=SC2046  # words
  for host in 0 1; do in_host $host tc qdisc change dev eth0 root handle 1: $(shaped_to "$1"); done
}
two_hosts() {
  local rate=$1 delay=${2:-0} host tool why=$two_hosts_work/why
  [[ $(id -u) -eq 0 ]] || not_measured "network namespaces need root"
  for tool in ip tc; do
    command -v $tool >/dev/null || not_measured "$tool is missing (package iproute2)"
  done
  for host in 0 1; do
    ip netns add "$two_hosts_prefix-$host" 2>"$why" || not_measured "no network namespace: $(<"$why")"
  done
  if [[ $delay == 0 ]]; then
    ip link add eth0 netns "$two_hosts_prefix-0" type veth peer name eth0 netns "$two_hosts_prefix-1" 2>"$why" ||
      not_measured "no veth pair: $(<"$why")"
  else
    two_hosts_delayed "$delay"
  fi
  for host in 0 1; do
    [[ -z ${CONGESTION:-} ]] || in_host $host sysctl -q "net.ipv4.tcp_congestion_control=$CONGESTION" 2>"$why" ||
      not_measured "no $CONGESTION here (net.ipv4.tcp_allowed_congestion_control names what is): $(<"$why")"
    in_host $host ip link set lo up
    in_host $host ip addr add "10.213.77.$((host + 1))/30" dev eth0
    in_host $host ip link set eth0 up
    # shellcheck disable=SC2046  # words
    in_host $host tc qdisc add dev eth0 root handle 1: $(shaped_to "$rate") 2>"$why" ||
      not_measured "no tbf in this kernel: $(<"$why")"
  done
}
two_hosts_delayed() {
  local said=$two_hosts_work/link.out why=$two_hosts_work/why status=0
  : >"$said"
  [[ -x $bin/delayed-link ]] || { echo "$(basename "$0"): build $bin/delayed-link first" >&2; exit 2; }
  "$bin/delayed-link" "$1" eth0 "$two_hosts_prefix-0" "$two_hosts_prefix-1" >"$said" 2>"$why" &
  two_hosts_link=($!)
  until grep -q ready "$said"; do
    if ! kill -0 "${two_hosts_link[0]}" 2>/dev/null; then
      wait "${two_hosts_link[0]}" || status=$?
      [[ $status -eq 1 ]] || { echo "$(basename "$0"): delayed-link ended with $status" >&2; exit 1; }
      not_measured "no link with a delay: $(<"$why")"
    fi
    sleep 0.05
  done
}
on_both() {
  local host pid
  # Without in_host: in the background that is a shell, whose end would leave the rank running.
  for host in 0 1; do
    RANK=$host WORLD_SIZE=2 MASTER_ADDR=10.213.77.1 MASTER_PORT=$two_hosts_port PARX_TRANSPORT=tcp \
      PARX_SOCKET_IFNAME=eth0 ip netns exec "$two_hosts_prefix-$host" taskset -c "$((host % $(getconf _NPROCESSORS_ONLN)))" timeout "${LIMIT:-180}" "$@" >"$two_hosts_work/$host.out" &
    two_hosts_started+=($!)
  done
  for pid in "${two_hosts_started[@]}"; do
    wait "$pid" || { echo "$(basename "$0"): a rank failed, see above" >&2; exit 1; }
  done
  two_hosts_started=()
}
