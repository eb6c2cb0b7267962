// kill -9 of a rank in the middle of a forward pass, on a mesh of data and tensor parallel ranks:
// whichever group the others wait in, all of them name the rank that has gone.
#include <parx/tensor_parallel/parallelize.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <boost/test/unit_test.hpp>

#include <launch/processes.hpp>
#include <messages.hpp>

#include <parx/autograd/ops/activation.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/mesh.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/loss.hpp>
#include <parx/optim/sgd.hpp>

namespace {

using parx_test::mentions;

/// A column and a row, and the death of its process between them in call number `last`.
class pair : public parx::nn::module<pair> {
 public:
  using value_type = float;

  explicit pair(int last) : last_(last) {}
  auto forward(const parx::variable<float>& x) {
    const auto y = parx::relu(column_(x));
    if (++calls_ == last_) ::kill(::getpid(), SIGKILL);
    return row_(y);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("column", column_);
    visit("row", row_);
  }

 private:
  int calls_ = 0, last_;
  parx::nn::linear<> column_{8, 32}, row_{32, 8};
};

void train(parx::world& world, int victim) {
  parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
  pair model(world.rank() == victim ? 4 : 0);
  const auto tp = parx::parallelize(model, mesh["tp"],
                                    {{"column", parx::tp::column}, {"row", parx::tp::row}});
  model.initialize(1);
  parx::ddp ddp{model, mesh["dp"]};
  parx::optim::sgd optimizer{ddp.parameters(), {.lr = 0.1F}};
  const auto x = parx::tensor<float>::ones({4, 8});
  const auto labels = parx::tensor<std::int64_t>::zeros({4});
  for (;;) {
    parx::cross_entropy(ddp(x), labels).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_of_every_group_names_the_one_that_was_killed_within_a_second) {
  // Its tensor parallel peer waits for its part of a sum. Its data parallel peer has finished its
  // own forward pass and waits for gradients; the peer of both waits for one of these.
  for (const int victim : {0, 3}) {
    processes::job all;
    for (int rank = 0; rank < 4; ++rank)
      all.start(rank, 4, [=](parx::world& world) { train(world, victim); });
    const auto results = all.wait();
    const double died = results[static_cast<std::size_t>(victim)].seconds;
    for (int rank = 0; rank < 4; ++rank) {
      const auto& each = results[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        BOOST_TEST(each.exit_code == 128 + SIGKILL);
        continue;
      }
      BOOST_TEST(each.exit_code == 1, "rank " << rank << ": " << each.exit_code);
      BOOST_TEST(mentions(each.text, "rank " + std::to_string(victim)),
                 "rank " << rank << ": " << each.text);
      BOOST_TEST(each.seconds - died < 1, "rank " << rank << " took " << each.seconds - died);
    }
  }
}
