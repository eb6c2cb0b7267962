// With ONLY_COMM a program over parx::comm; without it one that also needs zlib to link.
#ifdef ONLY_COMM
#include <parx/comm.hpp>
#include <parx/launch.hpp>
#else
#include <parx/data/formats/gzip.hpp>
#include <parx/ddp.hpp>
#include <parx/tensor.hpp>
#endif

#include <vector>

#ifdef BOOST_CONFIG_HPP
#error "parx includes Boost, which only parxrun and the tests may need"
#endif
#ifdef EIGEN_WORLD_VERSION
#error "parx includes Eigen, which only the tests may need"
#endif
#if defined(ONLY_COMM) && defined(ZLIB_H)
#error "parx/comm.hpp includes zlib"
#endif

int main(int, [[maybe_unused]] char** argv) {
  return parx::run([&](parx::world& world) {
    std::vector<float> x(4, 1.5F);
    parx::all_reduce(world, x, {.op = parx::reduce_op::sum});
    float product = 1;
#ifndef ONLY_COMM
    std::byte first{};  // of this program, which is no gzip file and read as it is
    parx::data::gzip_reader(argv[0]).read_exactly({&first, 1}, "the first byte");
    product = parx::matmul(parx::tensor<float>::full({2, 2}, 0.5F),
                           parx::tensor<float>::full({2, 2}, 1.0F))
                  .data()[0];
    if (first != std::byte{0x7f}) product = 0;
#endif
    fmt::print("rank {} of {}: {}\n", world.rank(), world.size(), product * x[0]);
  });
}
