#!/bin/bash
# A wrong call is told the way out in one sentence:   compile_errors.sh COMPILER [FLAG...]
set -u
said=$("$@" -std=c++20 -fsyntax-only -x c++ - 2>&1 <<'END'
#include <vector>
#include <parx/comm/collectives/all_reduce.hpp>
struct score { float loss; int rank; };
void wrong(parx::process_group& world) {
  int k = 1;
  std::vector<float> x(4);
  std::vector<score> scores(4);
  parx::all_reduce(world, k);
  parx::all_reduce(world, k, {.op = parx::reduce_op::max});
  parx::all_reduce(world, x, [](float a, float b) { return a < b ? a : b; });
  parx::all_reduce(world, scores);
  parx::all_reduce(world, scores, parx::user_op([](int a, int b) { return a + b; }));
  parx::all_reduce(world, static_cast<const std::vector<float>&>(x));
}
END
) && { echo "it compiles"; exit 1; }
count() { grep 'error:' <<<"$said" | grep -c -e "$1"; }
[ "$(count .)" = 5 ] && for words in 'a single value k goes as std::span' 'goes as parx::user_op(function)' \
  'how two structs combine' 'does not take two elements' 'written to const elements'; do
  [ "$(count "$words")" = 1 ] || { echo "not said once: $words"; echo "$said"; exit 1; }
done || { echo "$said"; exit 1; }
