// Models train under autocast<bfloat16> to the same bits by each path of this processor, at any
// layout with the same (dp, tp, micro-batches), and with one and two threads.
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <comm/jobs.hpp>
#include <models/small_models.hpp>

#include <parx/amp.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>
#include <parx/tensor/gemm/bf16_processor.hpp>

namespace {

using namespace small_models;
namespace product = parx::detail::product;

struct picture {
  tensor<float> x;
  tensor<std::int64_t> labels;
};
struct masked_text {
  tensor<std::int32_t> input_ids;
  tensor<std::uint8_t> attention_mask;
  tensor<std::int64_t> labels;
};
struct place {
  int ranks;
  const char* layout;
};
/// Each inner list has one result.
using places = std::vector<std::vector<place>>;

const auto of_labels = [](const auto& logits, const auto& batch) {
  return parx::nn::cross_entropy(logits, batch.labels);
};
const auto texts = [](int replica, int step) {
  const auto ids = tokens(9, replica, step);
  return text{ids.cast<std::int32_t>(), ids};
};
const auto classes = [](int replica, int step) {
  return masked_text{tokens(9, replica, step).cast<std::int32_t>(),
                     tensor<std::uint8_t>::ones({9, length}),
                     tensor<std::int64_t>::full({9}, replica)};
};
const auto images = [](int replica, int step) {
  return picture{pictures(19, replica, step), tensor<std::int64_t>::full({19}, replica)};
};

/// PARX_TEST_STEPS for more.
int steps() {
  const char* const wanted = std::getenv("PARX_TEST_STEPS");
  return wanted != nullptr ? std::atoi(wanted) : 12;
}

template <typename Make, typename Batch>
std::uint64_t trained(const place& at, Make make, Batch batch) {
  std::uint64_t found = 0;
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, at.ranks, [&](parx::process_group& world) {
        auto net = make();
        parx::parallel model{net, world, parx::layout::parse(at.layout)};
        model.initialize(7);
        parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
        for (int step = 0; step < steps(); ++step) {
          const parx::autocast<parx::bfloat16> scope;
          (void)model.forward_backward(batch(model.data_group().rank(), step), of_labels);
          (void)parx::optim::clip_grad_norm(opt.targets(), 1.0);
          opt.step();
        }
        const std::uint64_t values = model.values_hash();
        if (world.rank() == 0) found = values;
      });
  for (const std::string& each : failures) {
    if (!each.empty()) throw std::runtime_error(std::string(at.layout) + ": " + each);
  }
  return found;
}

/// One hash for each list of places, by one path. In a process of its own, which chooses the path.
template <typename Make, typename Batch>
std::vector<std::uint64_t> hashes_by(const product::bf16_path& path, const places& all, Make make,
                                     Batch batch) {
  int ends[2];
  BOOST_REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::setenv("PARX_BF16", std::string(path.name).c_str(), 1);
      parx::require(product::bf16_of_processor().path == &path, "this process multiplies by {}",
                    parx::bfloat16_products());
      for (const auto& same : all) {
        std::vector<std::uint64_t> found;
        for (const place& each : same) {
          for (const int threads : {1, 2}) {
            parx::set_num_threads(threads);
            found.push_back(trained(each, make, batch));
            parx::require(found.back() == found.front(),
                          "{} with {} threads: {:x}, {} with 1: {:x}", each.layout, threads,
                          found.back(), same.front().layout, found.front());
          }
        }
        parx::require(::write(ends[1], found.data(), sizeof found[0]) == sizeof found[0], "pipe");
      }
      ::_exit(0);
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "%s\n", failure.what());
    }
    ::_exit(1);
  }
  ::close(ends[1]);
  std::vector<std::uint64_t> hashes(all.size());
  for (std::uint64_t& each : hashes) {
    if (::read(ends[0], &each, sizeof each) != sizeof each) break;
  }
  ::close(ends[0]);
  int status = -1;
  BOOST_TEST(::waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
  return hashes;
}

places every_layout(bool has_tied_table) {
  places all{{{1, "ddp"}}, {{2, "ddp"}, {2, "zero=1"}, {2, "fsdp"}}, {{2, "tp=2"}}};
  const place alone{1, "ddp,microbatches=2"}, stages{2, "pp=2,microbatches=2"};
  // A table that is tied over stages has its gradients summed in another order.
  if (has_tied_table) all.insert(all.end(), {{alone}, {stages}});
  else all.push_back({alone, stages});
  return all;
}

template <typename Make, typename Batch>
void check(const places& all, Make make, Batch batch) {
  std::string before;
  std::vector<std::uint64_t> first;
  for (const product::bf16_path* const path : product::bf16_paths_of_processor()) {
    if (path->name == before) continue;  // PARX_BF16=wide takes the widest
    before = path->name;
    const auto hashes = hashes_by(*path, all, make, batch);
    BOOST_TEST_MESSAGE(path->text << ": " << std::hex << hashes.front());
    if (first.empty()) first = hashes;
    BOOST_TEST(hashes == first, path->text);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpt) { check(every_layout(true), make_gpt, texts); }
BOOST_AUTO_TEST_CASE(a_llama) { check(every_layout(false), make_llama, texts); }
BOOST_AUTO_TEST_CASE(a_bert) { check(every_layout(false), make_bert, classes); }
BOOST_AUTO_TEST_CASE(a_cnn) {
  check({{{1, "ddp"}}, {{2, "ddp"}, {2, "fsdp"}}}, make_cnn, images);
}
