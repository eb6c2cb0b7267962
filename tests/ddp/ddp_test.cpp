#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <mutex>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

// Integer-valued inputs and weights keep every intermediate exact in float, so that any order of
// summation must give the same bits.
tensor<float> integers(std::size_t rows, std::size_t columns, int salt) {
  tensor<float> x = tensor<float>::zeros({rows, columns});
  for (std::size_t i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<float>((static_cast<int>(i) * 7 + salt * 13) % 5 - 2);
  }
  return x;
}

struct model : parx::nn::module<model> {
  parx::nn::linear<> first{6, 8};
  parx::nn::linear<> second{8, 3};
  parx::nn::linear<> spare{6, 8};  // used on request only
  bool use_spare = false;

  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(parx::relu(use_spare ? first(x) + spare(x) : first(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("second", second);
    visit("spare", spare);
  }
};

void make_integer_valued(model& m) {
  int salt = 0;
  m.for_each_parameter([&](const std::string&, auto& p) {
    auto value = p.value();
    for (std::size_t i = 0; i < value.size(); ++i) {
      value.data()[i] = static_cast<float>((static_cast<int>(i) * 3 + salt) % 3 - 1);
    }
    ++salt;
  });
}

std::vector<float> gradients_of(model& m) {
  std::vector<float> all;
  m.for_each_parameter([&](const std::string&, auto& p) {
    if (!p.has_grad()) {
      all.push_back(12345);  // a mark for "absent"
      return;
    }
    const auto grad = p.grad();
    all.insert(all.end(), grad.data(), grad.data() + grad.size());
  });
  return all;
}

// sum over rows and columns of (prediction - target)^2 / 2-like, exact on integers
parx::weighted_loss<float> loss_of(const parx::variable<float>& prediction, const tensor<float>& wanted,
                                   double count) {
  const parx::variable<float> difference = prediction - parx::variable<float>(wanted);
  return {parx::sum(difference * difference), count};
}

// The rows of a global batch of 16 that a rank works on, dealt unevenly.
std::pair<std::size_t, std::size_t> rows_of(int rank, int world) {
  return {parx::chunk_begin(16, world, rank), parx::chunk_begin(16, world, rank + 1)};
}

std::vector<float> single_process(bool spare) {
  model m;
  m.use_spare = spare;
  make_integer_valued(m);
  loss_of(m(integers(16, 6, 1)), integers(16, 3, 2), 16).backward();
  return gradients_of(m);
}

// Runs one distributed backward and returns each rank's gradients.
template <typename Body>
std::vector<std::vector<float>> on_ranks(int world, Body body, parx::threads_options options = {}) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(world));
  parx::run_threads(world, [&](parx::process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  }, options);
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(uneven_ranks_get_exactly_the_single_process_gradients) {
  const auto expected = single_process(false);
  for (const int world : {1, 2, 3, 4}) {
    for (const auto mode : {parx::progress_mode::thread, parx::progress_mode::inline_poll}) {
      parx::threads_options options;
      options.group.progress = mode;
      const auto results = on_ranks(world, [&](parx::process_group& group) {
        model m;
        make_integer_valued(m);
        // Tiny limits, so that there are several buckets.
        parx::ddp ddp{m, group, {.buckets = {.first_bytes = 64, .bytes = 128}}};
        const auto [begin, end] = rows_of(group.rank(), group.size());
        loss_of(ddp(integers(16, 6, 1).slice(0, begin, end)),
                integers(16, 3, 2).slice(0, begin, end), static_cast<double>(end - begin)).backward();
        return gradients_of(m);
      }, options);
      for (const auto& each : results) {
        BOOST_TEST(each == expected, "world " << world);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(micro_batches_under_no_sync_equal_one_batch) {
  const auto expected = single_process(false);
  for (const int world : {1, 2, 3}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      parx::ddp ddp{m, group};
      const auto [begin, end] = rows_of(group.rank(), group.size());
      const std::size_t middle = begin + (end - begin) / 3;
      const auto step = [&](std::size_t from, std::size_t to) {
        loss_of(ddp(integers(16, 6, 1).slice(0, from, to)), integers(16, 3, 2).slice(0, from, to),
                static_cast<double>(to - from)).backward();
      };
      const std::size_t before = group.bytes_sent();
      {
        const auto guard = ddp.no_sync();
        step(begin, middle);
      }
      const bool silent = group.bytes_sent() == before;
      step(middle, end);
      auto result = gradients_of(m);
      if (!silent) result.assign(1, -1.0f);
      return result;
    });
    for (const auto& each : results) BOOST_TEST(each == expected, "world " << world);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_without_samples_contributes_nothing_and_gets_the_mean) {
  const auto results = on_ranks(3, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp ddp{m, group};
    const bool idle = group.rank() == 1;
    auto loss = loss_of(ddp(integers(16, 6, 1)), integers(16, 3, 2), 16);
    if (idle) loss = {loss.sum * 0.0f, 0};
    loss.backward();
    return gradients_of(m);
  });
  const auto expected = single_process(false);
  for (const auto& each : results) BOOST_TEST(each == expected);
}

BOOST_AUTO_TEST_CASE(a_parameter_that_only_one_rank_uses_gets_the_mean_on_all) {
  const auto results = on_ranks(2, [&](parx::process_group& group) {
    model m;
    m.use_spare = group.rank() == 1;
    make_integer_valued(m);
    parx::ddp ddp{m, group};
    loss_of(ddp(integers(8, 6, 1)), integers(8, 3, 2), 8).backward();
    return gradients_of(m);
  });
  BOOST_TEST(results[0] == results[1]);
  BOOST_TEST((std::count(results[0].begin(), results[0].end(), 12345.0f) == 0));
}

BOOST_AUTO_TEST_CASE(a_parameter_that_no_rank_uses_keeps_its_gradient_absent) {
  const auto results = on_ranks(2, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp ddp{m, group};
    loss_of(ddp(integers(8, 6, 1)), integers(8, 3, 2), 8).backward();
    return gradients_of(m);
  });
  for (const auto& each : results) BOOST_TEST((std::count(each.begin(), each.end(), 12345.0f) == 2));
}

BOOST_AUTO_TEST_CASE(all_ranks_start_from_rank_0s_values_and_stay_bit_equal) {
  std::vector<std::vector<float>> results(4);
  parx::run_threads(4, [&](parx::process_group& group) {
    model m;
    m.initialize(static_cast<std::uint64_t>(group.rank()));  // different on purpose
    parx::ddp ddp{m, group};
    parx::optim::adamw opt{ddp.parameters(), {.lr = 1e-2f}};
    for (int step = 0; step < 5; ++step) {
      loss_of(ddp(integers(4, 6, group.rank() + step)), integers(4, 3, step), 4).backward();
      opt.step();
    }
    auto& mine = results[static_cast<std::size_t>(group.rank())];
    m.for_each_parameter([&](const std::string&, auto& p) {
      mine.insert(mine.end(), p.value().data(), p.value().data() + p.value().size());
    });
  });
  for (const auto& each : results) BOOST_TEST(each == results[0]);
}

BOOST_AUTO_TEST_CASE(backward_twice_without_step_is_refused) {
  std::string text;
  parx::run_threads(1, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group};
    const auto backward = [&] { loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward(); };
    backward();
    try {
      backward();
    } catch (const parx::usage_error& refused) {
      text = refused.what();
    }
  });
  BOOST_TEST(text.find("first.weight") != std::string::npos, text);
  BOOST_TEST(text.find("no_sync") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(different_models_are_refused_on_every_rank_with_the_difference) {
  std::vector<std::string> texts(3);
  parx::run_threads(3, [&](parx::process_group& group) {
    parx::nn::sequential m{parx::nn::linear<>{4, group.rank() == 2 ? 7u : 8u}};
    try {
      parx::ddp ddp{m, group};
    } catch (const parx::error& refused) {
      texts[static_cast<std::size_t>(group.rank())] = refused.what();
    }
  });
  for (const auto& text : texts) {
    BOOST_TEST(text.find("model of rank 2 differs") != std::string::npos, text);
    BOOST_TEST(text.find("0.weight [8, 4] float32") != std::string::npos, text);
    BOOST_TEST(text.find("0.weight [7, 4] float32") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(a_raw_module_sums_hand_written_gradients) {
  for (const int world : {1, 2, 3}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      std::vector<float> a(10, static_cast<float>(group.rank()));
      std::vector<float> b(3, 1);
      parx::raw_module<float> raw;
      const auto first = raw.add("a", a, {2, 5});
      const auto second = raw.add("b", b);
      parx::ddp ddp{raw, group};
      std::vector<float> result(a);  // rank 0's values by now
      const double count = group.rank() + 1;
      raw.begin_backward(count);
      for (float& x : raw.grad(second)) x = static_cast<float>(count * 12);
      raw.ready(second);
      for (float& x : raw.grad(first)) x = static_cast<float>(count * 24);
      raw.ready(first);
      raw.end_backward();
      result.insert(result.end(), raw.grad(first).begin(), raw.grad(first).end());
      result.insert(result.end(), raw.grad(second).begin(), raw.grad(second).end());
      return result;
    });
    std::vector<float> expected(10, 0);
    expected.insert(expected.end(), 10, 24);
    expected.insert(expected.end(), 3, 12);
    for (const auto& each : results) BOOST_TEST(each == expected, "world " << world);
  }
}

BOOST_AUTO_TEST_CASE(forgetting_ready_names_the_parameter) {
  std::vector<float> a(4);
  parx::raw_module<float> raw;
  raw.add("embedding.weight", a);
  raw.begin_backward(1);
  BOOST_CHECK_EXCEPTION(raw.end_backward(), parx::usage_error, [](const auto& refused) {
    return std::string(refused.what()).find("embedding.weight") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(every_parameter_is_in_one_bucket_and_the_first_is_small) {
  std::vector<parx::bucket_parameter> parameters(40, {parx::dtype::float32, 300'000});
  parameters[7].type = parx::dtype::bfloat16;
  const auto buckets = parx::assign_buckets(parameters, {});
  std::vector<int> seen(parameters.size());
  for (const auto& each : buckets) {
    std::size_t end = 0;
    for (const auto& item : each.items) {
      ++seen[item.parameter];
      BOOST_TEST(item.offset >= end);
      BOOST_TEST(item.offset % parx::bucket_alignment == 0u);
      BOOST_TEST((parameters[item.parameter].type == each.type));
      end = item.offset + parameters[item.parameter].bytes;
    }
    BOOST_TEST(end <= each.bytes);
  }
  BOOST_TEST((std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(seen.size())));
  BOOST_TEST(buckets.front().items.front().parameter == 39u);
  BOOST_TEST(buckets.front().bytes < std::size_t{2} << 20);
}
