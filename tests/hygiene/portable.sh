#!/bin/bash
# Programs that a user starts first run on every x86-64 processor:   portable.sh PROGRAM...
# Tried on one without AVX, as far as qemu-user plays it; else their code is looked at.
set -u
[ "$(uname -m)" = x86_64 ] || { echo "NOT TRIED: the processors here are those of x86-64"; exit 77; }
failures=0
for program in "$@"; do
  if command -v qemu-x86_64 >/dev/null; then
    qemu-x86_64 -cpu Nehalem "$program" --help >/dev/null 2>&1 && continue
    echo "FAILED: $program --help does not end well on a processor without AVX"
  else
    # parx_plan has code for this machine's processor, which it calls only there.
    [[ $program != */parx_plan ]] || continue
    objdump -d --no-show-raw-insn "$program" | grep -qE '%[yz]mm' || continue
    echo "FAILED: $program has AVX instructions"
  fi
  failures=$((failures + 1))
done
echo "$(($# - failures)) of $# programs are portable"
[ $failures = 0 ]
