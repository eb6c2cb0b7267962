#!/usr/bin/env bash
# Prints what including parx costs: seconds of a debug build (-O0), the lines that the preprocessor hands to
# the compiler, and which other libraries they come from. For launch, ddp and parx the program is hello
# world (join the job, all_reduce, print), for the other chapters it only includes them.
#
#   bash benchmarks/compile_time.sh [chapter...]          CXX=clang++ and REPEAT=5 are honoured
#
# The figure is the fastest of REPEAT builds: a busy machine only ever adds to it.
set -euo pipefail
include=$(cd "$(dirname "${BASH_SOURCE[0]}")/../include" && pwd)
compiler=${CXX:-g++}
flags=(-std=c++20 -O0 -I"$include" -isystem /usr/include/eigen3)
repeat=${REPEAT:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() {
  local header=parx/$1.hpp
  [[ $1 != parx ]] || header=parx.hpp
  case $1 in
    nothing) echo 'int main() {}' ;;
    fmt) printf '#include <fmt/format.h>\nint main() { fmt::print("{}\\n", 1); }\n' ;;
    launch | ddp | parx) cat <<CODE ;;
#include <vector>
#include <parx/comm.hpp>
#include <$header>
int main() {
  return parx::run([](parx::world& world) {
    std::vector<float> x(4, 1.0f);
    parx::all_reduce(world, x);
    parx::print0(world, "{}\\n", x[0]);
  });
}
CODE
    *) printf '#include <%s>\nint main() {}\n' "$header" ;;
  esac
}

if [[ $# -gt 0 ]]; then
  chapters=("$@")
else
  chapters=(nothing fmt core types store transport comm launch tensor autograd data nn optim ddp parx)
fi

printf '# %s -O0, fastest of %s; thousand preprocessed lines\n' "$("$compiler" --version | head -1)" "$repeat"
printf '%-12s %8s %8s %8s %8s %8s %8s\n' chapter seconds klines parx std fmt eigen
for chapter in "${chapters[@]}"; do
  [[ $chapter == nothing || $chapter == fmt || $chapter == parx || -e $include/parx/$chapter.hpp ]] || continue
  program "$chapter" > "$work/main.cpp"
  best=
  failed=
  for ((i = 0; i < repeat; ++i)); do
    start=$(date +%s%N)
    "$compiler" "${flags[@]}" -c "$work/main.cpp" -o "$work/main.o" 2> "$work/errors" || { failed=1; break; }
    took=$((($(date +%s%N) - start) / 1000000))
    [[ -n $best && $best -le $took ]] || best=$took
  done
  if [[ -n $failed ]]; then
    printf '%-12s does not compile: %s\n' "$chapter" "$(grep -m1 error "$work/errors" || head -1 "$work/errors")"
    continue
  fi
  "$compiler" "${flags[@]}" -E "$work/main.cpp" |
    awk -v chapter="$chapter" -v ms="$best" '
      /^# [0-9]+ "/ {
        place = "std"
        if ($3 ~ /\/fmt\//) place = "fmt"
        else if ($3 ~ /eigen3/) place = "eigen"
        else if ($3 ~ /\/parx\//) place = "parx"
        next
      }
      NF > 0 { ++lines[place]; ++all }
      END {
        printf "%-12s %8.2f %8.1f %8.1f %8.1f %8.1f %8.1f\n", chapter, ms / 1000, all / 1000,
               lines["parx"] / 1000, lines["std"] / 1000, lines["fmt"] / 1000,
               lines["eigen"] / 1000
      }'
done
