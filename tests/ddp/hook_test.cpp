#include <parx/ddp/hook_compress.hpp>
#include <parx/ddp/hook_powersgd.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

static_assert(parx::communication_hook<parx::bf16_compress_hook>);
static_assert(parx::communication_hook<parx::fp16_compress_hook>);
static_assert(parx::communication_hook<parx::powersgd_hook>);

/// One step of a hook over one bucket of one tensor: what `gradients` become.
void one_step(parx::process_group& group, auto& hook, std::vector<float>& gradients,
              std::size_t rows, double count, double scale = 1) {
  const std::array tensors{parx::hook_tensor{0, rows, gradients.size() / rows}};
  parx::hook_bucket bucket{group, parx::call_site::current(), 0,
                           {gradients.data(), gradients.size(), parx::dtype::float32},
                           tensors, scale, 0};
  hook.start(bucket);
  bucket.count = count;
  for (int round = 0; round < hook.rounds; ++round) hook.proceed(bucket, round);
}

std::vector<float> numbers(std::size_t count, int salt) {
  std::vector<float> all(count);
  parx::random_stream(static_cast<std::uint64_t>(salt), "numbers")
      .normal(tensor<float>::wrap(all, {count}), 0.0F, 1.0F);
  return all;
}

/// The mean over `world` ranks of numbers(count, rank), each of weight 1.
std::vector<double> mean_of(std::size_t count, int world) {
  std::vector<double> mean(count);
  for (int rank = 0; rank < world; ++rank) {
    const auto part = numbers(count, rank);
    for (std::size_t i = 0; i < count; ++i) mean[i] += static_cast<double>(part[i]) / world;
  }
  return mean;
}

double distance(const std::vector<double>& a, const auto& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - static_cast<double>(b[i])) * (a[i] - static_cast<double>(b[i]));
  }
  return std::sqrt(squares);
}

template <typename Wire, typename Hook>
void rounds_once_and_adds() {
  const auto results = on_ranks(2, [](parx::process_group& group) {
    auto mine = numbers(1000, group.rank());
    Hook hook;
    one_step(group, hook, mine, 1, 2);
    return mine;
  });
  const auto a = numbers(1000, 0), b = numbers(1000, 1);
  for (std::size_t i = 0; i < 1000; ++i) {
    const Wire sum(static_cast<float>(Wire(a[i])) + static_cast<float>(Wire(b[i])));
    BOOST_TEST(results[0][i] == static_cast<float>(sum) / 2);
  }
  BOOST_TEST((results[0] == results[1]));
}

struct model : parx::nn::module<model> {
  parx::nn::linear<> first{24, 40};
  parx::nn::linear<> second{40, 8};
  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(parx::relu(first(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("second", second);
  }
};

struct outcome {
  double loss = 0;
  bool equal = false;
  std::size_t bytes = 0;  ///< sent in the last step
};

/// Learns a linear map with two ranks, each with samples of its own.
outcome train(parx::comm_hook hook, int steps = 200) {
  return on_ranks(2, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group, {.buckets = {.first_bytes = 1024}, .hook = hook}};
    parx::optim::sgd optimizer{ddp.parameters(), {.lr = 0.05, .momentum = 0.9}};
    const auto truth = numbers(24 * 8, 99);
    outcome found;
    for (int step = 0; step < steps; ++step) {
      const auto x =
          tensor<float>::from(numbers(16 * 24, 2 * (step % 20) + group.rank()), {16, 24});
      const auto y = parx::matmul<float>(
          parx::variable<float>(x), parx::variable<float>(tensor<float>::from(truth, {24, 8})));
      const std::size_t before = group.bytes_sent();
      const auto difference = ddp(x) - y.detach();
      parx::weighted_loss<float> loss{parx::sum(difference * difference) * 0.125F, 16};
      loss.backward();
      found.bytes = group.bytes_sent() - before;
      optimizer.step();
      found.loss = static_cast<double>(loss.sum.item()) / 16;
    }
    found.equal = ddp.replicas_equal();
    return found;
  })[0];
}

}  // namespace

BOOST_AUTO_TEST_CASE(half_precision_on_the_wire_rounds_the_gradients_and_their_sum) {
  rounds_once_and_adds<parx::bfloat16, parx::bf16_compress_hook>();
  rounds_once_and_adds<parx::float16, parx::fp16_compress_hook>();
}

// Sums over 4096 samples do not fit, their mean does.
BOOST_AUTO_TEST_CASE(sums_beyond_float16_travel_scaled) {
  const auto results = on_ranks(2, [](parx::process_group& group) {
    std::vector<float> mine{1e6F};
    parx::fp16_compress_hook hook;
    one_step(group, hook, mine, 1, 4000, 1.0 / 2048);
    return mine[0];
  });
  BOOST_TEST(results[0] == 2e6F / 4000, boost::test_tools::tolerance(1e-3F));
}

BOOST_AUTO_TEST_CASE(powersgd_is_exact_on_gradients_of_low_rank) {
  constexpr std::size_t rows = 30, columns = 20;
  for (const int rank : {2, 4}) {  // of the hook; each process' gradient has rank 1, their sum 2
    const auto results = on_ranks(2, [&](parx::process_group& group) {
      const auto u = numbers(rows, group.rank()), v = numbers(columns, 10 + group.rank());
      std::vector<float> mine;
      for (const float a : u) {
        for (const float b : v) mine.push_back(a * b);
      }
      parx::powersgd_hook hook({.rank = rank, .start_step = 0, .min_compression_rate = 1});
      one_step(group, hook, mine, rows, 2);
      return mine;
    });
    std::vector<double> expected;
    for (std::size_t i = 0; i < rows * columns; ++i) {
      double sum = 0;
      for (int r = 0; r < 2; ++r) {
        sum += static_cast<double>(numbers(rows, r)[i / columns]) *
               static_cast<double>(numbers(columns, 10 + r)[i % columns]);
      }
      expected.push_back(sum / 2);
    }
    BOOST_TEST(distance(expected, results[0]) < 1e-4);
    BOOST_TEST((results[0] == results[1]));
  }
}

BOOST_AUTO_TEST_CASE(what_powersgd_sends_and_leaves_out_sums_up_to_the_gradients) {
  constexpr std::size_t rows = 12, columns = 16, steps = 30;
  std::array<std::vector<float>, 2> sent, rest;
  parx::run_threads(2, [&](parx::process_group& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    parx::powersgd_hook hook({.start_step = 0, .min_compression_rate = 1});
    sent[me].resize(rows * columns);
    for (std::size_t step = 0; step < steps; ++step) {
      auto mine = numbers(rows * columns, group.rank());
      one_step(group, hook, mine, rows, 2, step % 2 == 0 ? 1 : 0.5);
      for (std::size_t i = 0; i < mine.size(); ++i) sent[me][i] += mine[i];
    }
    for (const float e : hook.left_out(0)) rest[me].push_back(e / 0.5F);
  });
  const auto mean = mean_of(rows * columns, 2);
  std::vector<double> put_in, came_out;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    put_in.push_back(mean[i] * steps);
    came_out.push_back(static_cast<double>(sent[0][i]) +
                       (static_cast<double>(rest[0][i]) + static_cast<double>(rest[1][i])) / 2);
  }
  BOOST_TEST(distance(put_in, came_out) < 1e-3);
  // Rank 1 of 12, but nothing is forgotten: the average converges to the gradient.
  std::vector<float> average;
  for (const float total : sent[0]) average.push_back(total / steps);
  BOOST_TEST(distance(mean, average) < 0.4 * distance(mean, std::vector<float>(mean.size())));
}

// Nothing has a direction then, so the power iteration cannot go on from it.
BOOST_AUTO_TEST_CASE(powersgd_goes_on_after_gradients_of_zero_or_of_lower_rank) {
  constexpr std::size_t rows = 12, columns = 16;
  const auto u = numbers(rows, 1), v = numbers(columns, 2), w = numbers(rows, 3),
             x = numbers(columns, 4);
  const auto results = on_ranks(2, [&](parx::process_group& group) {
    parx::powersgd_hook hook({.rank = 2, .start_step = 0, .min_compression_rate = 1});
    std::vector<float> mine;
    for (const float factor : {0.0F, 1.0F, 1.0F}) {  // a step of zeros, of rank 1, of rank 2
      const bool whole = !mine.empty() && mine[0] != 0;
      mine.clear();
      for (std::size_t i = 0; i < rows * columns; ++i) {
        const float second = whole ? w[i / columns] * x[i % columns] : 0;
        mine.push_back(factor * (u[i / columns] * v[i % columns] + second));
      }
      one_step(group, hook, mine, rows, 2);
    }
    return mine;
  });
  std::vector<double> expected;
  for (std::size_t i = 0; i < rows * columns; ++i) {
    expected.push_back(
        static_cast<double>(u[i / columns] * v[i % columns] + w[i / columns] * x[i % columns]));
  }
  BOOST_TEST(distance(expected, results[0]) < 1e-4);
  BOOST_TEST((results[0] == results[1]));
}

// As with a loss scale that was too high: the step is left out, and training goes on.
BOOST_AUTO_TEST_CASE(what_is_not_finite_on_one_rank_is_seen_by_all_and_not_remembered) {
  constexpr std::size_t rows = 12, columns = 16;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1e38F}) {
    std::array<std::vector<float>, 2> rest;
    const auto results = on_ranks(2, [&](parx::process_group& group) {
      parx::powersgd_hook hook({.rank = 2, .start_step = 0, .min_compression_rate = 1});
      bool seen = false;
      for (int step = 0; step < 3; ++step) {
        auto mine = numbers(rows * columns, group.rank());
        if (step == 1 && group.rank() == 0) mine[37] = bad;
        one_step(group, hook, mine, rows, 2);
        const bool finite = std::all_of(mine.begin(), mine.end(),
                                        [](float each) { return std::isfinite(each); });
        if (step == 1) seen = !finite;
        if (step == 2 && !finite) seen = false;
      }
      for (const float e : hook.left_out(0)) {
        rest[static_cast<std::size_t>(group.rank())].push_back(e);
      }
      return seen;
    });
    for (int rank = 0; rank < 2; ++rank) {
      BOOST_TEST(results[static_cast<std::size_t>(rank)], bad << " on rank " << rank);
      for (const float e : rest[static_cast<std::size_t>(rank)]) BOOST_TEST(std::isfinite(e));
    }
  }
}

BOOST_AUTO_TEST_CASE(training_with_hooks_converges_with_fewer_bytes) {
  const outcome plain = train({});
  const outcome bf16 = train(parx::bf16_compress_hook{});
  const outcome fp16 = train(parx::fp16_compress_hook{});
  const outcome powersgd = train(parx::powersgd_hook{{.rank = 2}}, 600);  // goes on more slowly
  for (const outcome& each : {plain, bf16, fp16, powersgd}) {
    BOOST_TEST(each.equal);
    BOOST_TEST(each.loss < 2.5);  // from about 24
  }
  constexpr std::size_t in_full = 4 * (24 * 40 + 40 + 40 * 8 + 8);  // sent once by each rank of two
  BOOST_TEST(bf16.bytes < in_full * 2 / 3);
  BOOST_TEST(fp16.bytes == bf16.bytes);
  BOOST_TEST(powersgd.bytes < in_full / 2);
  BOOST_TEST_MESSAGE(fmt::format("loss {} {} {} {}, bytes {} {} {}", plain.loss, bf16.loss,
                                 fp16.loss, powersgd.loss, plain.bytes, bf16.bytes,
                                 powersgd.bytes));
}

BOOST_AUTO_TEST_CASE(wrong_powersgd_options_are_refused) {
  BOOST_CHECK_THROW(parx::powersgd_hook({.rank = 0}), parx::usage_error);
  BOOST_CHECK_THROW(parx::powersgd_hook({.min_compression_rate = 0}), parx::usage_error);
}
