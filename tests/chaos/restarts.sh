#!/bin/bash
# Ranks that train, killed at random:   restarts.sh [TRIALS [BIN_DIR [OPTION...]]]
#   restarts.sh 200 build/ci/bin --second 1    a second fault during each recovery
#   restarts.sh 0 build/ci/bin --changes 25    nodes that come and go;   --stops 20: that stand still
# What a trial is, is told in restarts.py. Exit code 77: there is no python3, or no train_gpt.
set -u
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "SKIPPED: no python3, so no restarts were tried"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/restarts.py" --trials "${1:-20}" --bin "${2:-$here/../../build/ci/bin}" "${@:3}"
