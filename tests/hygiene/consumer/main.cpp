#include <parx/ddp.hpp>

#include <vector>

#ifdef BOOST_CONFIG_HPP
#error "parx includes Boost, which only parxrun and the tests may need"
#endif

int main() {
  return parx::run([](parx::world& world) {
    std::vector<float> x(4, 1.5F);
    parx::all_reduce(world, x, {.op = parx::reduce_op::sum});
    fmt::print("rank {} of {}: {}\n", world.rank(), world.size(), x[0]);
  });
}
