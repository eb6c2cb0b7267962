// Ranks whose data end at different steps: PyTorch's Join.
#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

constexpr std::size_t width = 5;

/// Batches of a rank, and rows of each: the last rank has most, rank 1 none at all.
std::size_t batches_of(int rank) { return rank == 1 ? 0 : 2 + static_cast<std::size_t>(rank); }
std::size_t rows_of(int rank, std::size_t step) {
  return step < batches_of(rank) ? 2 + (static_cast<std::size_t>(rank) + step) % 3 : 0;
}

void append_rows(int rank, std::size_t step, std::vector<float>& x, std::vector<std::int64_t>& y) {
  for (std::size_t row = 0; row < rows_of(rank, step); ++row) {
    const std::size_t number = static_cast<std::size_t>(rank) * 100 + step * 10 + row;
    for (std::size_t k = 0; k < width; ++k) {
      x.push_back(static_cast<float>((number * 7 + k * 5) % 11) / 11 - 0.5F);
    }
    y.push_back(static_cast<std::int64_t>(number % 3));
  }
}

template <typename Net>
auto loss_of(Net& net, const std::vector<float>& x, const std::vector<std::int64_t>& y) {
  return parx::nn::cross_entropy(net(tensor<float>::from(x, {y.size(), width})),
                                 tensor<std::int64_t>::from(y, {y.size()}));
}

auto make_model() {
  parx::nn::sequential model{parx::nn::linear{width, 8}, parx::nn::relu{}, parx::nn::linear{8, 3}};
  model.initialize(4);
  return model;
}

template <typename Model>
std::vector<float> values_of(Model& model) {
  std::vector<float> all;
  model.for_each_parameter([&](const std::string&, auto& p) {
    all.insert(all.end(), p.value().begin(), p.value().end());
  });
  return all;
}

struct trained {
  std::vector<float> values;
  std::size_t steps = 0;
};

/// One process that has the batches of all ranks.
trained one_process(int world) {
  auto model = make_model();
  parx::optim::adamw opt{model.parameters(), {.lr = 0.05F}};
  trained made;
  for (std::size_t rows = 1; rows > 0; ++made.steps) {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    for (int rank = 0; rank < world; ++rank) append_rows(rank, made.steps, x, y);
    rows = y.size();
    if (rows == 0) break;
    loss_of(model, x, y).backward();
    opt.step();
  }
  made.values = values_of(model);
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_has_run_out_of_batches_goes_on_without_rows_until_all_have) {
  for (const int world : {1, 2, 3, 4}) {
    const trained expected = one_process(world);
    const auto results = on_ranks(world, [](parx::process_group& group) {
      auto model = make_model();
      parx::ddp ddp{model, group};
      parx::optim::adamw opt{ddp.parameters(), {.lr = 0.05F}};
      trained made;
      for (bool more = true; more; ++made.steps) {
        if (made.steps + 1 < batches_of(group.rank())) ddp.raise_flag();
        std::vector<float> x;
        std::vector<std::int64_t> y;
        append_rows(group.rank(), made.steps, x, y);
        loss_of(ddp, x, y).backward();
        opt.step();
        more = ddp.flag_raised();
      }
      made.values = values_of(model);
      return made;
    });
    for (const trained& each : results) {
      BOOST_TEST(each.steps == expected.steps, "world " << world);
      BOOST_TEST((each.values == results[0].values), "world " << world);
      for (std::size_t i = 0; i < expected.values.size(); ++i) {
        BOOST_TEST_REQUIRE(std::abs(each.values[i] - expected.values[i]) < 1e-5F,
                           "world " << world << ", value " << i);
      }
    }
  }
}
