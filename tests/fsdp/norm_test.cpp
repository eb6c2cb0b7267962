// The norm of gradients of which ranks have different parts: one list of targets may be of several
// models, each in a wrapper of its own.
#include <parx/optim/clip.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/nn.hpp>
#include <parx/optim/sgd.hpp>

#include <comm/jobs.hpp>
#include <messages.hpp>

namespace {

using parx::process_group;

/// All its gradients are `value`; returns how many there are.
template <typename Parameters>
std::size_t fill(const Parameters& parameters, float value) {
  std::size_t count = 0;
  for (const auto& each : parameters) {
    each.assume_grad();
    each.grad().fill(value);
    count += each.global_shape().size();
  }
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_list_of_models_in_different_wrappers_has_the_norm_of_all) {
  std::array<double, 4> norms{}, after{}, first{};
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 4, [&](process_group& group) {
    parx::nn::linear<> sharded(6, 5), halved(4, 3), whole(3, 2);
    const int start = group.rank() / 2 * 2;
    process_group pair = group.subgroup(std::array{start, start + 1});
    parx::fsdp over_all{sharded, group};
    parx::fsdp over_pairs{halved, group, {.shard_within = pair}};
    parx::ddp ddp{whole, group};
    const auto at = static_cast<std::size_t>(group.rank());
    const double squares = 9.0 * static_cast<double>(fill(over_all.parameters(), 3)) +
                           16.0 * static_cast<double>(fill(over_pairs.parameters(), 4)) +
                           25.0 * static_cast<double>(fill(ddp.parameters(), 5));
    auto all = over_all.parameters();
    for (const auto& each : over_pairs.parameters()) all.push_back(each);
    for (const auto& each : ddp.parameters()) all.push_back(each);
    norms[at] = parx::optim::clip_grad_norm(all, 1.0) / std::sqrt(squares);
    after[at] = parx::optim::grad_norm(parx::optim::targets_of(all));
    first[at] = ddp.parameters()[0].grad().at(0, 0);
  });
  parx_test::expect_failures(failures, "");
  for (std::size_t rank = 0; rank < 4; ++rank) {
    BOOST_TEST(norms[rank] == 1.0);
    BOOST_TEST(after[rank] == 1.0, boost::test_tools::tolerance(1e-5));
    BOOST_TEST(first[rank] == first[0]);
  }
}

BOOST_AUTO_TEST_CASE(parameters_leave_the_ranks_of_a_wrapper_that_is_gone) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [&](process_group& group) {
    parx::nn::linear<> layer(4, 2);
    std::vector<parx::parameter<float>> kept;
    {
      parx::fsdp fsdp{layer, group};
      kept = fsdp.parameters();
    }
    for (const auto& each : kept) {
      if (!each.places().empty()) throw std::logic_error("still spread over ranks");
    }
    layer.initialize(1);
    fill(layer.parameters(), 2);
    const double norm = parx::optim::grad_norm(parx::optim::targets_of(layer.parameters()));
    if (norm != std::sqrt(4.0 * 10)) throw std::logic_error("not the norm of the layer");
  });
  parx_test::expect_failures(failures, "");
}
