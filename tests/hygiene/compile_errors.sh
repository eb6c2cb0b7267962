#!/bin/bash
# A wrong call is told the way out in one sentence:   compile_errors.sh COMPILER [FLAG...]
set -u
# With -DWRONG every line is an error, and without it none.
program() {
  cat <<'END'
#include <vector>
#include <parx/comm.hpp>
#include <parx/data/loader.hpp>
struct score { float loss; int rank; };
struct samples {  // one at a time, as PyTorch's
  std::size_t size() const { return 4; }
  float operator[](std::size_t row) const { return static_cast<float>(row); }
};
struct rows : samples {
  struct batch { parx::tensor<float> weights; };
  batch fetch(std::span<const std::size_t>) const { return {}; }
};
float lesser(float a, float b) { return a < b ? a : b; }
void calls(parx::process_group& world) {
  int k = 1;
  std::vector<float> x(4), y(4);
  std::vector<score> scores(4);
  const std::vector<float>& fixed = x;
#ifdef WRONG
  parx::all_reduce(world, k);
  parx::all_reduce(world, k, {.op = parx::reduce_op::max});
  parx::all_reduce(world, x, [](float a, float b) { return a < b ? a : b; });
  parx::all_reduce(world, scores);
  parx::all_reduce(world, scores, parx::user_op([](int a, int b) { return a + b; }));
  parx::all_reduce(world, fixed);
  parx::reduce(world, x, lesser);
  parx::scan(world, scores);
  parx::all_reduce(world, x, parx::reduce_op::max);
  parx::reduce(world, x, 0);
  parx::reduce_scatter(world, x, fixed);
  parx::all_gather(world, k, x);
  parx::broadcast(world, k);
  std::vector<bool> bits(4);
  parx::broadcast(world, bits);
  parx::async_all_reduce(world, fixed).wait();
  parx::async_reduce(world, k).wait();
  parx::async_scan(world, x, lesser).wait();
  parx::async_reduce_scatter(world, scores, scores).wait();
  parx::async_all_gather(world, x, fixed).wait();
  parx::async_broadcast(world, fixed).wait();
  auto in_flight = parx::async_all_reduce(world, std::vector<float>(4));
  parx::async_broadcast(world, std::vector<int>(4)).wait();
  parx::async_reduce(world, std::vector<double>(4)).wait();
  parx::async_scan(world, std::vector<short>(4)).wait();
  samples one_by_one;
  parx::data::loader loader{one_by_one, {.batch_size = 2}};
#else
  rows whole;
  parx::data::loader loader{whole, {.batch_size = 2}};
  float array[4] = {}, sum[4] = {};
  parx::all_reduce(world, array, sum);
  parx::reduce(world, array, sum);
  parx::scan(world, fixed, parx::view_of(y));
  parx::reduce_scatter(world, x, std::span(&y[0], 4), parx::user_op(lesser));
  parx::all_gather(world, std::span(&k, 1), std::span(&k, 1));
  parx::broadcast(world, scores, {.root = 1});
  parx::async_all_reduce(world, std::span(&k, 1)).wait();
  parx::async_broadcast(world, parx::view_of(x)).wait();
#endif
}
END
}
said=$(program | "$@" -std=c++20 -fsyntax-only -x c++ - 2>&1) || { echo "$said"; exit 1; }
case $1 in *clang*) set -- "$@" -ferror-limit=0 ;; esac  # it stops at 20
said=$(program | "$@" -std=c++20 -fsyntax-only -DWRONG -x c++ - 2>&1) && { echo "it compiles"; exit 1; }
errors() { grep 'error:' <<<"$said"; }
told() {  # told TIMES WORDS
  [ "$(errors | grep -c -e "$2")" = "$1" ] || { echo "not said $1 times: $2"; echo "$said"; exit 1; }
}
# Of calls that are wrong in the same way with the same types, compilers tell the first.
told 5 'a single value k goes as std::span'
told 3 'goes as parx::user_op(function)'
told 3 'how two structs combine'
told 1 'the operation is one of the options'
told 1 'a root is one of the options'
told 4 'this buffer is a temporary'
told 1 'does not take two elements'
told 4 'written to const elements'
told 1 'a data set has size() and fetch'
# Beside the sentence, that no loader can be made.
[ "$(errors | grep -v 'loader' | grep -c .)" = 23 ] || { echo "$said"; exit 1; }
