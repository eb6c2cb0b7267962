#!/usr/bin/env bash
# Runs libFuzzer on every target of fuzz/targets.hpp, under address and undefined-behaviour
# sanitizers. Needs clang++ with its runtime libraries.
#
#   bash tests/fuzz/run.sh [SECONDS [TARGET...]]     60 seconds each, all targets
#
# What it finds stays in build/fuzz-finds/ of the repository: run.sh ends with 1 then.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
  mapfile -t targets < <(grep -oE '^      \{"[a-z]+"' "$here/targets.hpp" | tr -d ' {"')
finds=$here/../../build/fuzz-finds
mkdir -p "$finds"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$here/.." -I"$here/../../include" \
  "$here/libfuzzer.cpp" -o "$work/fuzz" -lfmt -lz -lpthread
failed=0
for target in "${targets[@]}"; do
  mkdir -p "$work/$target"
  if PARX_FUZZ_TARGET=$target "$work/fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=8192 -print_final_stats=1 -artifact_prefix="$finds/$target-" "$work/$target" \
    >"$work/$target.log" 2>&1; then
    echo "$target: $(grep -oE 'number_of_executed_units: [0-9]+' "$work/$target.log"), nothing found"
  else
    failed=1
    echo "$target: FOUND"
    grep -vE '^(#|INFO)' "$work/$target.log" | head -40
  fi
done
rmdir "$finds" 2>/dev/null || true
exit $failed
