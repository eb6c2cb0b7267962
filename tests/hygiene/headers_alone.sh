#!/bin/bash
# Every header compiles when it is the only one included:   headers_alone.sh INCLUDE_DIR COMPILER [FLAG...]
set -u
include=$1; shift
cd "$include" || exit 1
failed=$(find . -name '*.hpp' -printf '%P\n' | sort |
  xargs -P "$(nproc)" -I{} sh -c '"$@" -std=c++20 -O0 -I. -fsyntax-only -x c++ -include {} /dev/null >&2 || echo {}' sh "$@")
count=$(find . -name '*.hpp' | wc -l)
[ -z "$failed" ] || { printf 'does not compile alone: %s\n' $failed; exit 1; }
echo "$count headers compile alone"
