#!/usr/bin/env bash
# Measures the compile time of programs that use parx: processor seconds and peak memory, header-only
# and by the libraries (parx::models'), at -O0 and -O2.
#
#   bash benchmarks/compile_time.sh [--against COMMIT] [PROGRAM...]
#
#   hello      README's first program        comm    all_reduce with parx/comm.hpp and parx/launch.hpp
#   training   README's training program     src     parx::parx itself, as one file
#   CHAPTER    includes parx/CHAPTER.hpp and does nothing with it
#
# Without PROGRAM: all of them. With --against, the same sources are also compiled with the headers of
# COMMIT, alternating with those of the working tree. Prints the medians of ROUNDS=3 rounds and their
# range: processor seconds also increase when other programs use the caches.
# CXX=clang++, LEVELS="-O0 -O2" and FLAGS=-march=native are honoured. Needs Debian's package `time`.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
compiler=${CXX:-g++}
read -ra levels <<<"${LEVELS:--O0 -O2}"
read -ra flags <<<"${FLAGS--march=native}"
rounds=${ROUNDS:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x /usr/bin/time ] || { echo "needs /usr/bin/time (Debian: apt-get install time)" >&2; exit 1; }

declare -A include=([now]=$root/include)
trees=(now)
if [[ ${1:-} == --against ]]; then
  mkdir "$work/before"
  git -C "$root" archive "$2" include | tar -x -C "$work/before"
  include[before]=$work/before/include
  trees+=(before)
  shift 2
fi

# README's whole program that has the given text in it.
of_readme() {
  awk -v text="$1" '
    /^```cpp/ { inside = 1; code = ""; next }
    /^```/ { if (inside && index(code, text) && code ~ /int main/) { printf "%s", code; exit } inside = 0 }
    inside { code = code $0 "\n" }' "$root/README.md"
}

source_of() {
  case $1 in
    hello) of_readme parx::print0 ;;
    training) of_readme "parx::parallel model{" ;;
    comm)
      printf '#include <parx/comm.hpp>\n#include <parx/launch.hpp>\n'
      of_readme parx::print0 | grep -v '#include <parx/' ;;
    *) printf '#include <parx/%s.hpp>\n' "$1" ;;
  esac
}

# compile TREE LEVEL FORM PROGRAM: appends "seconds megabytes" to the figures of these four.
compile() {
  local definition=() figures=$work/$1$2$3$4
  if [[ $3 == compiled ]]; then definition=(-DPARX_{SEPARATE_COMPILATION,COMPILED_MODELS}); fi
  if ! /usr/bin/time -q -o "$work/time" -f '%U %S %M' \
      "$compiler" -std=c++20 "$2" "${flags[@]}" "${definition[@]}" -I"${include[$1]}" \
      -isystem /usr/include/eigen3 -c "$work/$4.cpp" -o "$work/out.o" 2>"$work/errors"; then
    touch "$figures.failed"
    cp "$work/errors" "$figures.errors"
    return
  fi
  awk '{ printf "%.2f %.0f\n", $1 + $2, $3 / 1024 }' "$work/time" >>"$figures"
}

# median, range and memory of a file of figures, 24 columns wide.
summary() {
  if [[ -e $1.failed ]]; then
    printf ' %24s' "does not compile"
    return
  fi
  sort -n "$1" | awk '
    { seconds[NR] = $1; if ($2 > memory) memory = $2 }
    END {
      middle = (seconds[int((NR + 1) / 2)] + seconds[int(NR / 2) + 1]) / 2
      printf " %7.2f %11s %4d", middle, sprintf("%.2f-%.2f", seconds[1], seconds[NR]), memory
    }'
}

if [[ $# -gt 0 ]]; then
  programs=("$@")
else
  programs=(hello comm training)
  for header in "$root"/include/parx/*.hpp; do
    [[ $header == */comm.hpp ]] || programs+=("$(basename "$header" .hpp)")
  done
fi

echo "# $("$compiler" --version | head -1), ${flags[*]}, $rounds rounds; processor seconds: median, range; MB"
printf '%-16s %-5s %-9s' program level form
for tree in "${trees[@]}"; do printf ' %24s' "$tree"; done
echo
for program in "${programs[@]}"; do
  source_of "$program" >"$work/$program.cpp"
  [[ -s $work/$program.cpp ]] || { echo "README has no program \"$program\" any more" >&2; exit 1; }
  for level in "${levels[@]}"; do
    for form in header compiled; do
      [[ $program$form != srcheader ]] || continue
      for ((round = 0; round < rounds; ++round)); do
        for tree in "${trees[@]}"; do compile "$tree" "$level" "$form" "$program"; done
      done
      printf '%-16s %-5s %-9s' "$program" "$level" "$form"
      for tree in "${trees[@]}"; do summary "$work/$tree$level$form$program"; done
      echo
    done
  done
done
cat "$work"/*.errors 2>/dev/null | grep -m 3 error >&2 || true
