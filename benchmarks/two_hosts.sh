# Two "hosts" on this machine: network namespaces joined by a veth pair, each direction shaped by tbf. To be
# sourced; needs root. Everything is taken down when the shell ends.
#
#   . two_hosts.sh
#   two_hosts RATE_MBIT [DELAY_MS]      makes them; exits with 77 and says why where they are not to be had
#   link_speed RATE_MBIT                changes the speed of the link
#   in_host 0|1 COMMAND...              runs a command on one
#   on_both COMMAND...                  runs it as rank 0 and 1 of a world of two, over TCP through the link, each
#                                       with one core, as two hosts would not share one;
#                                       standard output goes to $two_hosts_work/0.out and 1.out
two_hosts_prefix=parx$$
two_hosts_work=$(mktemp -d)
two_hosts_port=29517
two_hosts_started=()

two_hosts_take_down() {
  local pid host
  for pid in "${two_hosts_started[@]}"; do kill "$pid" 2>/dev/null || true; done
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
# What passes at once is not throttled, so latencies are true with a small burst. One below 64 KiB makes tbf cut
# every packet that the kernel has put together into frames, at the cost of the processor that is to compute:
# network cards do that themselves.
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
  ip link add eth0 netns "$two_hosts_prefix-0" type veth peer name eth0 netns "$two_hosts_prefix-1" 2>"$why" ||
    not_measured "no veth pair: $(<"$why")"
  for host in 0 1; do
    in_host $host ip link set lo up
    in_host $host ip addr add "10.213.77.$((host + 1))/30" dev eth0
    in_host $host ip link set eth0 up
    in_host $host tc qdisc add dev eth0 root handle 1: $(shaped_to "$rate") 2>"$why" ||
      not_measured "no tbf in this kernel: $(<"$why")"
    [[ $delay == 0 ]] ||
      in_host $host tc qdisc add dev eth0 parent 1:1 netem delay "${delay}ms" limit 20000 2>"$why" ||
      not_measured "no netem in this kernel, so the delay must be 0: $(<"$why")"
  done
}
on_both() {
  local host pid
  for host in 0 1; do
    RANK=$host WORLD_SIZE=2 MASTER_ADDR=10.213.77.1 MASTER_PORT=$two_hosts_port PARX_TRANSPORT=tcp \
      PARX_SOCKET_IFNAME=eth0 in_host $host taskset -c "$((host % $(getconf _NPROCESSORS_ONLN)))" timeout "${LIMIT:-180}" "$@" >"$two_hosts_work/$host.out" &
    two_hosts_started+=($!)
  done
  for pid in "${two_hosts_started[@]}"; do
    wait "$pid" || { echo "$(basename "$0"): a rank failed, see above" >&2; exit 1; }
  done
  two_hosts_started=()
}
