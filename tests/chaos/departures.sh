#!/bin/bash
# Ranks that leave while others wait for what they have sent:   departures.sh [RUNS [BIN_DIR [OPTION...]]]
#   departures.sh 2000 build/ci/bin --busy 4       departures.sh 0 build/ci/bin --seed 3 --only 17
# What is tried is told in departures.py. Exit code 77: there is no python3.
set -u
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "SKIPPED: no python3, so no departures were tried"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/departures.py" --runs "${1:-30}" --bin "${2:-$here/../../build/ci/bin}" "${@:3}"
