#!/bin/bash
# Every whole program in the READMEs compiles:   readme.sh README.md[,README.md...] COMPILER [FLAG...]
# A whole program is a block of ```cpp with a main in it. The first README has at most 180 lines of 100
# columns.
set -eu
IFS=, read -ra readmes <<<"$1"; shift
awk -v name="${readmes[0]}" 'length($0) > 100 { print name ":" NR ": more than 100 columns"; wrong = 1 }
  END { if (NR > 180) { print name " has " NR " lines, more than 180"; wrong = 1 } exit wrong }' "${readmes[0]}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for readme in "${readmes[@]}"; do
  awk -v work="$work/$(dirname "$readme" | tr / _)" '
    /^```cpp/ { inside = 1; text = ""; next }
    /^```/ { if (inside && text ~ /int main/) { name = sprintf("%s_%02d.cpp", work, ++count); print text > name; close(name) } inside = 0; next }
    inside { text = text $0 "\n" }' "$readme"
done
programs=$(find "$work" -name '*.cpp' | sort)
[ -n "$programs" ] || { echo "${readmes[*]}: no whole program"; exit 1; }
for program in $programs; do
  "$@" -std=c++20 -fsyntax-only "$program" || { echo "does not compile:"; cat "$program"; exit 1; }
done
echo "$(echo "$programs" | wc -l) programs of the READMEs compile"
