# Sourced: hosts of one machine, each with its own network, name, processes and sshd, for as long as
# the caller runs.
#   hosts_up DIR N      makes h1 ... hN, 10.79.0.1 ..., and this machine's side, 10.79.0.254. Returns
#                       77, and says why, where that is not permitted.
#   on HOST COMMAND...  runs it there;  unplug HOST and plug HOST: a silent partition;  hosts_down
#   $hosts_ssh          the ssh with the hosts' port and key
hosts_dir= hosts_inits=()
# The first program that is missing here.
hosts_lack() {
  local i
  for i in unshare ip nsenter ssh ssh-keygen /usr/sbin/sshd; do command -v $i >/dev/null || { echo $i; return; }; done
}
hosts_up() {
  local i host init child
  hosts_dir=$1
  i=$(hosts_lack); [ -z "$i" ] || { echo "SKIPPED: no $i, so there are no hosts to log in to"; return 77; }
  # A private set of namespaces for this machine's side as well: nothing of the real one is touched.
  [ "${PARX_HOSTS_INSIDE:-}" = 1 ] || { echo "SKIPPED: namespaces are not permitted here"; return 77; }
  ssh-keygen -q -t ed25519 -N '' -f "$hosts_dir/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$hosts_dir/key"
  cp "$hosts_dir/key.pub" "$hosts_dir/authorized_keys"
  cat >"$hosts_dir/sshd_config" <<END
Port 2222
HostKey $hosts_dir/host_key
AuthorizedKeysFile $hosts_dir/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
END
  hosts_ssh="ssh -F none -p 2222 -i $hosts_dir/key -o IdentitiesOnly=yes -o UserKnownHostsFile=$hosts_dir/known -o LogLevel=ERROR"
  mkdir -p /run/sshd
  { echo "127.0.0.1 localhost"; echo "10.79.0.254 starter"; for i in $(seq "$2"); do echo "10.79.0.$i h$i"; done; } >"$hosts_dir/hosts"
  mount --bind "$hosts_dir/hosts" /etc/hosts; hostname starter; ip link set lo up
  ip link add hostsbr type bridge forward_delay 0; ip address add 10.79.0.254/24 dev hostsbr; ip link set hostsbr up
  for i in $(seq "$2"); do
    host=h$i
    unshare --net --uts --ipc --mount --pid --fork --kill-child --propagation private sh -c '
      mount -t proc proc /proc; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; cat /proc/sys/kernel/random/uuid >"$2.boot"
      mount --bind "$2.boot" /proc/sys/kernel/random/boot_id
      hostname "$1"; ip link set lo up; : >"$2.ready"
      until ip -br address show dev eth0 2>/dev/null | grep -q 10.79; do sleep 0.01; done
      /usr/sbin/sshd -f "$3/sshd_config" -E "$2.sshd"; trap "exit 0" TERM; while :; do sleep 1000 & wait; done' \
      init "$host" "$hosts_dir/$host" "$hosts_dir" </dev/null >"$hosts_dir/$host.log" 2>&1 &
    hosts_inits+=($!); disown $!
    until [ -e "$hosts_dir/$host.ready" ]; do kill -0 $! 2>/dev/null || { cat "$hosts_dir/$host.log"; return 1; }; sleep 0.01; done
    init=$(cat "/proc/$!/task/$!/children"); init=${init%% *}; echo "$init" >"$hosts_dir/$host.pid"
    ip link add "c$host" type veth peer name eth0 netns "$init"
    ip link set "c$host" master hostsbr up
    nsenter -t "$init" -n sh -c "ip address add 10.79.0.$i/24 dev eth0; ip link set eth0 up"
  done
  echo "[h*]:2222,[10.79.0.*]:2222 $(cat "$hosts_dir/host_key.pub")" >"$hosts_dir/known"
  for i in $(seq "$2"); do until (exec 3<>"/dev/tcp/h$i/2222") 2>/dev/null; do sleep 0.02; done; done
}
on() { local p; p=$(cat "$hosts_dir/$1.pid"); shift; nsenter -t "$p" -n -u -i -m -p -- "$@"; }
unplug() { ip link set "c$1" nomaster; }
plug() { ip link set "c$1" master hostsbr; }
hosts_down() { local p; for p in "${hosts_inits[@]}"; do kill -9 "$p" 2>/dev/null; done; }
# Runs the caller again within namespaces of its own, where that is permitted.
hosts_enter() {
  [ -z "${PARX_HOSTS_INSIDE:-}" ] || return 0
  # Without hosts in it, a network namespace would not even have a loopback interface that is up.
  if [ -z "$(hosts_lack)" ] && unshare --net --uts --ipc --mount --pid --fork --kill-child true 2>/dev/null; then
    PARX_HOSTS_INSIDE=1 exec unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc --propagation private bash "$@"
  fi
  export PARX_HOSTS_INSIDE=0
}
