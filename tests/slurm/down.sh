#!/bin/bash
# Stops the Slurm that up.sh started in DIR and removes DIR. Safe to run twice, and after a failed start.
#   down.sh DIR
set -u
dir=$1
[ -d "$dir" ] || exit 0
export PATH=$PATH:/usr/sbin:/sbin SLURM_CONF=$dir/slurm.conf
# Neither gone nor a zombie: in a container, process 1 may reap nothing.
alive() { [ -n "${1:-}" ] && grep -q '^State:[^ZX]*$' "/proc/$1/status" 2>/dev/null; }
# All descendants of a process, deepest first.
tree() { local child; for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do tree "$child"; echo "$child"; done; }
kill_tree() { local all; all="$(tree "$1") $1"; kill -9 $all 2>/dev/null; }

controller=$(cat "$dir/run/slurmctld.launcher" 2>/dev/null)
if alive "$controller"; then
  jobs=$(timeout 5 squeue -h -o %A 2>/dev/null)
  if [ -n "$jobs" ]; then
    timeout 5 scancel $jobs
    for _ in $(seq 50); do [ -z "$(timeout 5 squeue -h -o %A 2>/dev/null)" ] && break; sleep 0.1; done
  fi
  timeout 5 scontrol shutdown >/dev/null 2>&1   # slurmctld and every slurmd
fi
launchers=$(cat "$dir"/run/*.launcher 2>/dev/null)
for _ in $(seq 50); do
  left=
  for pid in $launchers; do alive "$pid" && left="$left $pid"; done
  [ -n "$left" ] || break
  sleep 0.1
done
for pid in $left; do kill_tree "$pid"; done
# A slurmstepd outlives its slurmd on purpose. Ours have their log under DIR open.
for exe in /proc/[0-9]*/exe; do
  case $(readlink "$exe" 2>/dev/null) in */slurmstepd*)
    pid=${exe#/proc/} pid=${pid%/exe}
    readlink "/proc/$pid/fd/"* 2>/dev/null | grep -qF "$dir/" && kill_tree "$pid" ;;
  esac
done
munged=$(cat "$dir/run/munged.pid" 2>/dev/null)
if alive "$munged"; then
  kill "$munged"
  for _ in $(seq 50); do alive "$munged" || break; sleep 0.05; done
fi
rm -rf "$dir"
