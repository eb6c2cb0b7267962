#include <parx/ddp/hook_compress.hpp>
#include <parx/ddp/hook_powersgd.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
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

/// One step with `rows` samples of ones on each rank; the gradient of each weight of `first` in the
/// mean is `each`.
float first_gradient(parx::ddp<model>& ddp, std::size_t rows, float each) {
  model& m = ddp.module();
  const auto x = parx::variable<float>(tensor<float>::ones({rows, 24}));
  const parx::weighted_loss<float> loss{parx::sum(m.first(x)) * each, static_cast<double>(rows)};
  loss.backward();
  return m.first.weight().grad().data()[0];
}

/// All gradients after a backward of random samples; other ranks have others.
std::vector<float> mean_gradients(parx::ddp<model>& ddp, std::size_t rows, int salt) {
  const int here = 2 * salt + ddp.group().rank();
  const auto x = tensor<float>::from(numbers(rows * 24, here), {rows, 24});
  const auto y = ddp(parx::variable<float>(x));
  parx::weighted_loss<float>{parx::sum(y * y), static_cast<double>(rows)}.backward();
  std::vector<float> all;
  ddp.module().for_each_parameter([&](const std::string&, auto& p) {
    all.insert(all.end(), p.grad().begin(), p.grad().end());
  });
  ddp.zero_grad();
  return all;
}

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

BOOST_AUTO_TEST_CASE(powersgds_sent_part_and_its_error_add_up_to_the_gradients) {
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
BOOST_AUTO_TEST_CASE(a_non_finite_gradient_reaches_all_ranks_and_not_the_error_feedback) {
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
    BOOST_TEST(each.loss < 4);  // from about 24
  }
  constexpr std::size_t in_full = 4 * (24 * 40 + 40 + 40 * 8 + 8);  // sent once by each rank of two
  BOOST_TEST(bf16.bytes < in_full * 2 / 3);
  BOOST_TEST(fp16.bytes == bf16.bytes);
  BOOST_TEST(powersgd.bytes < in_full / 2);
  BOOST_TEST_MESSAGE(fmt::format("loss {} {} {} {}, bytes {} {} {}", plain.loss, bf16.loss,
                                 fp16.loss, powersgd.loss, plain.bytes, bf16.bytes,
                                 powersgd.bytes));
}

// Sums of the first step, before there is a last one to take a scale from.
BOOST_AUTO_TEST_CASE(a_ddp_that_sends_float16_scales_the_sums_of_its_first_step) {
  const auto results = on_ranks(2, [](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group, {.hook = parx::fp16_compress_hook{}}};
    std::vector<float> found;
    // 256 samples of 1000 each; then the last step's count, which is half as large, must do.
    for (const std::size_t rows : {128U, 256U}) {
      found.push_back(first_gradient(ddp, rows, 1000));
      ddp.zero_grad();
    }
    return found;
  });
  for (const auto& found : results) BOOST_TEST((found == std::vector<float>{1000, 1000}));
}

BOOST_AUTO_TEST_CASE(powersgd_compresses_from_start_step_on) {
  for (const std::uint64_t start : {0U, 1U, 3U}) {
    const auto equal = on_ranks(2, [&](parx::process_group& group) {
      model one, other;
      const parx::powersgd_hook hook({.start_step = start});
      parx::ddp plain{one, group}, hooked{other, group, {.hook = hook}};
      std::vector<bool> same;
      for (int i = 0; i < 5; ++i)
        same.push_back(mean_gradients(plain, 4, i) == mean_gradients(hooked, 4, i));
      return same;
    });
    for (std::size_t step = 0; step < 5; ++step)
      BOOST_TEST(equal[0][step] == (step < start), "step " << step << ", from " << start << " on");
  }
}

// What it has left out is kept times the scale of the step that left it out.
BOOST_AUTO_TEST_CASE(powersgd_goes_on_from_its_saved_state_at_another_scale) {
  const auto results = on_ranks(2, [](parx::process_group& group) {
    const parx::powersgd_hook hook({.start_step = 1, .min_compression_rate = 1});
    model one, other;
    parx::ddp through{one, group, {.hook = hook}}, resumed{other, group, {.hook = hook}};
    for (const std::size_t rows : {4U, 4U, 64U})
      (void)mean_gradients(through, rows, static_cast<int>(rows));
    const auto saved = through.hook_state(), to = resumed.hook_state();
    for (std::size_t i = 0; i < saved.size(); ++i) {
      parx::require(saved[i].name == to[i].name, "{}", to[i].name);
      std::memcpy(to[i].values.data, saved[i].values.data, saved[i].values.bytes());
    }
    return mean_gradients(through, 4, 7) == mean_gradients(resumed, 4, 7);
  });
  BOOST_TEST(results[0]);
  BOOST_TEST(results[1]);
}

namespace {

struct hook_call {
  std::string what;
  std::size_t bucket = 0;
  double scale = 0, count = 0;
  bool operator==(const hook_call&) const = default;
};
/// Sums and divides as no hook would, and writes down how it was called.
struct recording_hook {
  static constexpr int rounds = 2;
  std::vector<hook_call>* calls;

  void start(parx::hook_bucket& bucket) {
    calls->push_back({"start", bucket.index, bucket.scale, 0});
  }
  void proceed(parx::hook_bucket& bucket, int round) {
    calls->push_back({round == 0 ? "first" : "last", bucket.index, bucket.scale, bucket.count});
    const std::span gradients(static_cast<float*>(bucket.gradients.data), bucket.gradients.count);
    if (round == 0) {
      for (const parx::hook_tensor& each : bucket.tensors) {  // all but the padding
        parx::all_reduce(bucket.group,
                         gradients.subspan(each.offset, each.rows * each.columns));
      }
    } else {
      for (float& each : gradients) each /= static_cast<float>(bucket.count);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_hook_sees_each_bucket_in_order_with_the_counts_of_this_step_and_the_last) {
  std::vector<std::vector<hook_call>> calls(2);
  std::vector<std::vector<float>> plain(2), hooked(2);
  std::size_t buckets = 0;
  parx::run_threads(2, [&](parx::process_group& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    for (const bool with_hook : {false, true}) {
      model m;
      parx::ddp_options options{.buckets = {.first_bytes = 1024, .bytes = 1024}};
      if (with_hook) options.hook = recording_hook{.calls = &calls[me]};
      parx::ddp ddp{m, group, options};
      if (group.rank() == 0) buckets = ddp.bucket_count();
      for (const std::size_t rows : {3U, 8U, 3U}) {  // in micro-batches, the first of 2
        const auto x = tensor<float>::full({rows - 2, 24}, static_cast<float>(group.rank() + 1));
        const auto pass = [&](const parx::variable<float>& of, std::size_t count) {
          parx::weighted_loss<float>{parx::sum(ddp(of)), static_cast<double>(count)}.backward();
        };
        {
          const auto guard = ddp.no_sync();
          pass(parx::variable<float>(tensor<float>::ones({2, 24})), 2);
        }
        pass(parx::variable<float>(x), rows - 2);
        m.for_each_parameter([&](const std::string&, auto& p) {
          auto& all = with_hook ? hooked[me] : plain[me];
          all.insert(all.end(), p.grad().begin(), p.grad().end());
        });
        ddp.zero_grad();
      }
    }
  });
  BOOST_TEST(buckets > 1u);
  std::vector<hook_call> expected;
  // The first step knows no earlier one, and waits for its own count.
  const std::pair<double, double> steps[] = {{0.25, 6}, {0.25, 16}, {0.0625, 6}};
  for (const auto& [scale, count] : steps) {
    for (std::size_t i = 0; i < buckets; ++i) expected.push_back({"start", i, scale, 0});
    for (const char* const round : {"first", "last"})
      for (std::size_t i = 0; i < buckets; ++i) expected.push_back({round, i, scale, count});
  }
  for (const auto& each : calls) BOOST_TEST((each == expected));
  for (const std::size_t rank : {0U, 1U})
    BOOST_TEST(distance({plain[rank].begin(), plain[rank].end()}, hooked[rank]) < 1e-4);
  BOOST_TEST((hooked[0] == hooked[1]));
}

BOOST_AUTO_TEST_CASE(a_hook_that_resumes_scales_by_the_samples_of_the_last_step) {
  std::vector<std::vector<hook_call>> calls(2);
  parx::run_threads(2, [&](parx::process_group& group) {
    model one, other;
    const recording_hook hook{.calls = &calls[static_cast<std::size_t>(group.rank())]};
    parx::ddp through{one, group, {.hook = hook}}, resumed{other, group, {.hook = hook}};
    (void)mean_gradients(through, 64, 1);
    const auto saved = through.hook_state(), to = resumed.hook_state();
    for (std::size_t i = 0; i < saved.size(); ++i)
      std::memcpy(to[i].values.data, saved[i].values.data, saved[i].values.bytes());
    (void)mean_gradients(resumed, 2, 2);
  });
  for (const auto& each : calls) {
    BOOST_TEST_REQUIRE(each.size() == 6u);
    BOOST_TEST(each[3].scale == 1.0 / 128);
    BOOST_TEST(each[5].count == 4.0);
  }
}

namespace {

struct hook_with_memory {
  static constexpr int rounds = 1;
  std::shared_ptr<int> memory = std::make_shared<int>(0);

  void start(parx::hook_bucket&) {}
  void proceed(parx::hook_bucket&, int) {}
};

/// In a template, as ddp is: there clang 14 never destroys a parameter that `= {}` makes.
template <typename Hook>
void assign_nothing() {
  Hook held;
  parx::comm_hook hook = held;
  hook = {};
  BOOST_TEST(!hook);
  BOOST_TEST(held.memory.use_count() == 1);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_ddp_and_its_options_free_their_copies_of_the_hook) {
  const hook_with_memory hook;
  parx::run_threads(2, [&](parx::process_group& group) {
    model m;
    const parx::ddp ddp{m, group, {.hook = hook}};
  });
  BOOST_TEST(hook.memory.use_count() == 1);
  assign_nothing<hook_with_memory>();
}

BOOST_AUTO_TEST_CASE(wrong_powersgd_options_are_refused) {
  BOOST_CHECK_THROW(parx::powersgd_hook({.rank = 0}), parx::usage_error);
  BOOST_CHECK_THROW(parx::powersgd_hook({.min_compression_rate = 0}), parx::usage_error);
}
