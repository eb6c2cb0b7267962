// Two ranks, threads of this process, add up what they have.
#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>

#include <cstdio>
#include <vector>

int main() {
  parx::run_threads(2, [](parx::process_group& group) {
    std::vector<float> x{1, static_cast<float>(group.rank())};
    parx::all_reduce(group, x);
    if (group.rank() == 0) std::printf("sum: %g %g\n", x[0], x[1]);
  });
}
