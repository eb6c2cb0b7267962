// Memory of micro-batches in flight: each rank is a process, whose pool says how many bytes lived
// at most during a step. Blocks keep 1 MiB a micro-batch (0.5 MiB where a rank has two of them), so
// that borders and parameters are lost in the rounding.

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <launch/processes.hpp>
#include <pipeline/scale.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/autograd/function.hpp>
#include <parx/nn.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/tensor/pool.hpp>

namespace {

using namespace parx;

constexpr int ranks = 4, microbatches = 8;
constexpr std::size_t mebibyte = std::size_t{1} << 20U;

/// y = w x, and a tensor that takes `kept` bytes of the pool, its header among them, which backward
/// holds until the gradient of w is made.
class keeper : public nn::module<keeper> {
 public:
  using value_type = float;
  explicit keeper(std::size_t kept) : kept_(kept), weight_("weight", shape{1}) {}
  [[nodiscard]] variable<float> forward(const variable<float>& x) {
    const auto block = tensor<float>::zeros({(kept_ - header) / sizeof(float)});
    const auto backward = [block](const tensor<float>& upstream, grad_sink<float> dx,
                                  grad_sink<float> dw) {
      if (dx.needed()) dx.add(upstream);
      if (dw.needed()) dw.add(tensor<float>::full({1}, block.data()[0]));
    };
    return differentiable(x.value(), backward, x, weight_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, nn::init::constant(1));
  }

 private:
  static constexpr std::size_t header = 1024;
  std::size_t kept_;
  parameter<float> weight_;
};

/// By rank: the most bytes that lived during the second step, without those that lived before it,
/// in units of what one block keeps of one micro-batch.
std::vector<double> measured(const char* schedule, int blocks) {
  const std::size_t kept = mebibyte * ranks / static_cast<std::size_t>(blocks);
  processes::job all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.start(rank, ranks, [=](world& group) {
      nn::sequential model{keeper(kept), keeper(kept), keeper(kept), keeper(kept),
                           keeper(kept), keeper(kept), keeper(kept), keeper(kept)};
      const auto used = first_blocks(model.blocks(), static_cast<std::size_t>(blocks));
      typed_pipeline pipe{model, used, group,
                    {.schedule = schedule_named(schedule), .microbatches = microbatches}};
      const samples data = numbers(microbatches);
      const auto loss = [](const variable<float>& y, const samples&) {
        return weighted_loss<float>{sum(y), 1};
      };
      memory_pool& pool = memory_pool::instance();
      std::size_t before = 0;
      for (int step = 0; step < 2; ++step) {
        pool.reset_peak();
        before = pool.stats().live_bytes;
        static_cast<void>(pipe.step(data, loss));
        pipe.zero_grad();
      }
      std::fprintf(stderr, "peak %.3f\n", static_cast<double>(pool.stats().peak_bytes - before) /
                                         static_cast<double>(kept));
    });
  }
  std::vector<double> found;
  for (const processes::outcome& each : all.wait()) {
    const std::size_t said = each.text.find("peak ");
    BOOST_TEST_REQUIRE((each.exit_code == 0 && said != std::string::npos), each.text);
    found.push_back(std::stod(each.text.substr(said + 5)));
  }
  return found;
}

void expect(const char* schedule, int blocks, const std::vector<int>& formula) {
  const std::vector<double> found = measured(schedule, blocks);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    BOOST_TEST(std::abs(found[rank] - formula[rank]) < 0.25,
               schedule << ", rank " << rank << ": " << found[rank]
                        << " micro-batches in memory, by "
                        << "the formula " << formula[rank]);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(gpipe_has_all_micro_batches_in_memory) { expect("gpipe", 4, {8, 8, 8, 8}); }

BOOST_AUTO_TEST_CASE(rank_r_of_1f1b_has_p_minus_r) { expect("1f1b", 4, {4, 3, 2, 1}); }

BOOST_AUTO_TEST_CASE(zb1p_has_p_until_their_weights) { expect("zb1p", 4, {4, 4, 4, 4}); }

BOOST_AUTO_TEST_CASE(zbv_has_2p_chunks_of_half_the_size) { expect("zbv", 8, {8, 8, 8, 8}); }
