#!/bin/bash
# Random faults in jobs of real processes:   run.sh [TRIALS [BIN_DIR [OPTION...]]]
#   bash tests/chaos/run.sh 1000                                     the long form
#   bash tests/chaos/run.sh 0 build/ci/bin --seed 3 --trial 17     one trial of it again
# What it tries and counts is told in chaos.py. BIN_DIR, build/ci/bin unless said, holds
# chaos_worker and parxrun. Exit code 77: namespaces are not permitted here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
trials=${1:-40}
bin=${2:-$here/../../build/ci/bin}
export PATH=$PATH:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1
for command in python3 unshare ip; do
  command -v "$command" >/dev/null || { echo "SKIPPED: no $command, so no faults were tried"; exit 77; }
done
exec python3 "$here/chaos.py" --bin "$bin" --trials "$trials" "${@:3}"
