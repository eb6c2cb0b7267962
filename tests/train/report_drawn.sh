#!/bin/bash
# What a browser draws of parx_report's page is what the log says:   report_drawn.sh PARX_REPORT
set -u
command -v chromium >/dev/null || { echo "SKIPPED: no chromium, the browser of Debian's package"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$(dirname "$0")/report_drawn.py" "$1" "$folder"
