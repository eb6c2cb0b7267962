#!/bin/bash
# Starts a private Slurm on this machine: one slurmctld and NODES slurmd, with their own configuration,
# ports and folder. Nothing under /etc, /run or /var is read or written.
#
#   up.sh DIR [NODES=3] [CPUS_PER_NODE=8]
#   . DIR/env.sh                                    # SLURM_CONF, and SLURM_TEST_MODE as below
#   srun -N 3 --ntasks-per-node=2 hostname
#   down.sh DIR
#
# As root, where unshare is permitted (mode "hosts"), each node has a host name of its own, nodeI, which
# resolves to 127.0.1.I. Otherwise (mode "plain", any user) the nodes share this machine's name, and
# node1 does not resolve.
# Further lines of slurm.conf come from PARX_SLURM_CONF.
# Authentication is auth/none, or a munged of its own with PARX_SLURM_AUTH=munge.
set -euo pipefail
dir=$1 nodes=${2:-3} cpus=${3:-8} auth=${PARX_SLURM_AUTH:-none}
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin
[ ! -e "$dir/slurm.conf" ] || { echo "$dir is in use: $here/down.sh $dir" >&2; exit 1; }
mkdir -p "$dir"/{log,run,state,spool}
dir=$(cd "$dir" && pwd)
give_up() {
  local code=$?
  [ $code = 0 ] && return
  tail -n 20 "$dir"/log/* >&2 || true
  "$here/down.sh" "$dir"
  exit $code
}
trap give_up EXIT
trap 'exit 1' TERM INT

mode=plain
if [ "$(id -u)" = 0 ] && unshare --uts --mount --pid --fork true 2>/dev/null; then mode=hosts; fi

# A row of ports on which nobody listens.
is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for _ in $(seq 50); do
  port=$((16000 + RANDOM % 3000)) free=yes
  for i in $(seq 0 "$nodes"); do is_free $((port + i)) || free=no; done
  [ $free = no ] || break
done

if [ "$auth" = munge ]; then
  (umask 077; dd if=/dev/urandom of="$dir/run/munge.key" bs=128 count=1 status=none)
  mkdir -m 711 "$dir/munge"
  munged --key-file "$dir/run/munge.key" --socket "$dir/munge/socket" --pid-file "$dir/run/munged.pid" \
         --log-file "$dir/log/munged.log" --seed-file "$dir/run/munged.seed" --force --num-threads 2
  auth_lines="AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge"
else
  auth_lines="AuthType=auth/none
CredType=cred/none"
fi

# proctrack/linuxproc and task/none: cgroups need a freshly booted, unshared machine.
# config_overrides: the nodes have more CPUs than this machine.
cat >"$dir/slurm.conf" <<END
ClusterName=parxtest
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
$auth_lines
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=2
InactiveLimit=0
SchedulerType=sched/builtin
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmdSpoolDir=$dir/spool/%n
TmpFS=$dir/spool/%n
StateSaveLocation=$dir/state
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
END
printf '127.0.0.1 localhost\n127.0.0.1 %s\n' "$(hostname)" >"$dir/hosts"
for i in $(seq "$nodes"); do
  address=127.0.0.1
  [ $mode = plain ] || address=127.0.1.$i
  echo "NodeName=node$i NodeHostname=localhost NodeAddr=$address Port=$((port + i)) CPUs=$cpus RealMemory=1000 State=UNKNOWN" >>"$dir/slurm.conf"
  echo "127.0.1.$i node$i" >>"$dir/hosts"
  echo "node$i" >"$dir/node$i.hostname"
  mkdir -p "$dir/spool/node$i"
done
echo "PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
${PARX_SLURM_CONF:-}" >>"$dir/slurm.conf"
printf 'export SLURM_CONF=%q SLURM_TEST_MODE=%q\n' "$dir/slurm.conf" $mode >"$dir/env.sh"
export SLURM_CONF=$dir/slurm.conf

# -D: in the foreground of a process whose pid is known to down.sh.
slurmctld -D -c -f "$SLURM_CONF" </dev/null >"$dir/log/slurmctld.out" 2>&1 &
controller=$!
echo $controller >"$dir/run/slurmctld.launcher"
for i in $(seq "$nodes"); do
  if [ $mode = plain ]; then
    slurmd -D -N "node$i" </dev/null >"$dir/log/node$i.out" 2>&1 &
  else
    unshare --uts --mount --pid --fork --kill-child --propagation private bash -c '
      mount -t proc proc /proc
      mount --bind "$1/hosts" /etc/hosts
      hostname "$2"
      slurmd -D -N "$2" & trap "kill $!" TERM; wait' node "$dir" "node$i" \
      </dev/null >"$dir/log/node$i.out" 2>&1 &
  fi
  echo $! >"$dir/run/node$i.launcher"
done
idle=0 end=$((SECONDS + 30))
while [ $SECONDS -lt $end ] && kill -0 $controller 2>/dev/null; do
  idle=$(timeout 3 sinfo -h -t idle -o %D 2>/dev/null || true)
  [ "${idle:-0}" = "$nodes" ] && break
  sleep 0.1
done
[ "${idle:-0}" = "$nodes" ] || { echo "only ${idle:-0} of $nodes nodes came up" >&2; exit 1; }
echo "Slurm $(sinfo --version | cut -d' ' -f2) is up: $nodes nodes, mode $mode, auth/$auth"
