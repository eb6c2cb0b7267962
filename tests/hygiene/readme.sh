#!/bin/bash
# Every whole program in README.md compiles:   readme.sh README.md COMPILER [FLAG...]
# A whole program is a block of ```cpp with a main in it.
set -eu
readme=$1; shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v work="$work" '
  /^```cpp/ { inside = 1; text = ""; next }
  /^```/ { if (inside && text ~ /int main/) { name = sprintf("%s/program_%02d.cpp", work, ++count); print text > name; close(name) } inside = 0; next }
  inside { text = text $0 "\n" }' "$readme"
programs=$(find "$work" -name 'program_*.cpp' | sort)
[ -n "$programs" ] || { echo "$readme shows no whole program"; exit 1; }
for program in $programs; do
  "$@" -std=c++20 -fsyntax-only "$program" || { echo "does not compile:"; cat "$program"; exit 1; }
done
echo "$(echo "$programs" | wc -l) programs of the README compile"
