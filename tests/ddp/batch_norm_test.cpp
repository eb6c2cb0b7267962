#include <parx/ddp/sync_batch_norm.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>

using namespace parx;

namespace {

tensor<float> normal(const shape& s, const char* name) {
  const auto t = tensor<float>::empty(s);
  random_stream(3, name).normal(t, 0.5F, 2.0F);
  return t;
}

/// Output, input gradient, parameter gradients and buffers after one pass over `rows` of the batch.
template <typename Layer>
std::vector<std::vector<float>> pass(Layer& layer, auto& call, std::size_t begin, std::size_t end) {
  const variable<float> x(normal({7, 3, 2, 2}, "x").slice(0, begin, end).clone(), gradient::wanted);
  const auto y = call(x);
  const auto weights = normal({7, 3, 2, 2}, "u").slice(0, begin, end).clone();
  weighted_loss<float>{sum(y * variable<float>(weights)), static_cast<double>(end - begin)}
      .backward();
  std::vector<std::vector<float>> found;
  const auto keep = [&](const tensor<float>& t) {
    const auto dense = t.contiguous();
    found.emplace_back(dense.begin(), dense.end());
  };
  keep(y.value());
  keep(x.grad());
  layer.for_each_parameter([&](const std::string&, auto& p) { keep(p.grad()); });
  layer.for_each_buffer(
      [&](const std::string&, auto& b) { keep(b.value().template cast<float>()); });
  return found;
}

void check_equal(const std::vector<float>& a, const std::vector<float>& b) {
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    BOOST_TEST(std::abs(a[i] - b[i]) <= 1e-5F * std::max(1.0F, std::abs(b[i])),
               a[i] << " and " << b[i]);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(uneven_ranks_normalise_and_train_as_one_process_with_the_whole_batch) {
  nn::batch_norm whole{3};
  const auto expected = pass(whole, whole, 0, 7);
  std::vector<std::vector<std::vector<float>>> found(2);
  run_threads(2, [&](process_group& group) {
    sync_batch_norm layer{3, group};
    ddp parallel{layer, group};
    const bool first = group.rank() == 0;
    found[first ? 0 : 1] = pass(layer, parallel, first ? 0 : 5, first ? 5 : 7);
  });
  std::vector<float> joined = found[0][0];
  joined.insert(joined.end(), found[1][0].begin(), found[1][0].end());
  check_equal(joined, expected[0]);
  // x belongs to no ddp: its gradient is that of the mean over its own rank's rows.
  std::vector<float> gradients;
  for (const float each : found[0][1]) gradients.push_back(each * 5 / 7);
  for (const float each : found[1][1]) gradients.push_back(each * 2 / 7);
  check_equal(gradients, expected[1]);
  for (const auto& rank : found) {
    for (std::size_t i = 2; i < expected.size(); ++i) check_equal(rank[i], expected[i]);
  }
}

BOOST_AUTO_TEST_CASE(
    recomputing_an_activation_repeats_no_collective_and_no_update_of_the_statistics) {
  nn::batch_norm whole{3};
  const auto expected = pass(whole, whole, 0, 7);
  std::vector<std::vector<std::vector<float>>> found(2);
  run_threads(2, [&](process_group& group) {
    sync_batch_norm layer{3, group};
    ddp parallel{layer, group};
    const bool first = group.rank() == 0;
    // Only rank 0 recomputes: a collective more or less than rank 1's would be an error.
    auto call = [&](const auto& x) { return first ? checkpoint(layer, x) : layer(x); };
    found[first ? 0 : 1] = pass(layer, call, first ? 0 : 5, first ? 5 : 7);
  });
  for (const auto& rank : found) {
    for (std::size_t i = 2; i < expected.size(); ++i) check_equal(rank[i], expected[i]);
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_start_from_rank_0s_buffers) {
  std::vector<float> starts(2);
  run_threads(2, [&](process_group& group) {
    nn::batch_norm layer{3};
    layer.for_each_buffer([&](const std::string&, auto& b) {
      b.value().fill(static_cast<std::decay_t<decltype(*b.value().data())>>(group.rank() + 5));
    });
    ddp parallel{layer, group};
    layer.for_each_buffer([&](const std::string&, auto& b) {
      starts[static_cast<std::size_t>(group.rank())] += static_cast<float>(b.value().data()[0]);
    });
  });
  for (const float start : starts) BOOST_TEST(start == 15.0F);
}
