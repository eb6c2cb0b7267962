// Every rank contributes its number; every rank prints the sum.
//   parxrun -n 4 build/release/bin/hello_all_reduce
//   srun -N 2 --ntasks-per-node=2 build/release/bin/hello_all_reduce
#include <parx/comm.hpp>
#include <parx/launch.hpp>

int main() {
  return parx::run([](parx::world& world) {
    std::vector<float> x(4, static_cast<float>(world.rank()));
    parx::all_reduce(world, x, {.op = parx::reduce_op::sum});
    fmt::print("[RANK {}] WORLD_SIZE={} sum of ranks = {}\n", world.rank(), world.size(), x[0]);
  });
}
