// Gradients of a ddp are those of one process, bit for bit, however the ranks share the work.
#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <ddp/exact.hpp>
#include <ddp/ranks.hpp>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using namespace exact;

// Does not name its second layer, unless asked to.
struct forgetful : parx::nn::module<forgetful> {
  parx::nn::linear<> first{6, 8};
  parx::nn::linear<> second{8, 3};
  bool all = false;

  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(parx::relu(first(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    if (all) visit("second", second);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(uneven_ranks_get_exactly_the_single_process_gradients) {
  const auto expected = single_process(false);
  for (const int world : {1, 2, 3, 4}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      // Tiny limits, so that there are several buckets.
      parx::ddp ddp{m, group, {.buckets = {.first_bytes = 64, .bytes = 128}}};
      const auto [begin, end] = rows_of(group.rank(), group.size());
      loss_of(ddp(integers(16, 6, 1).slice(0, begin, end)), integers(16, 3, 2).slice(0, begin, end),
              static_cast<double>(end - begin))
          .backward();
      return gradients_of(m);
    });
    for (const auto& each : results) {
      BOOST_TEST(each == expected, "world " << world);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_parameter_outside_of_the_model_gets_the_gradient_of_this_ranks_mean) {
  // Two passes over the same rows, the second over fewer; wrapped, only that one is synchronised.
  const auto passes = [](auto&& run, int rank, int world, auto&& first_pass_scope) {
    const parx::parameter<float> heat("heat", tensor<float>::full({3}, 1));
    const auto [begin, end] = rows_of(rank, world);
    const auto pass = [&, first = begin](std::size_t last) {
      const auto x = integers(16, 6, 1).slice(0, first, last);
      loss_of(run(x) * heat, integers(16, 3, 2).slice(0, first, last),
              static_cast<double>(last - first)).backward();
    };
    {
      [[maybe_unused]] const auto guard = first_pass_scope();
      pass(end);
    }
    const auto grad = heat.grad().clone();
    pass(end - 1);
    const auto both = heat.grad();
    return std::vector<float>{grad.data()[0], grad.data()[1], grad.data()[2],
                              both.data()[0], both.data()[1], both.data()[2]};
  };
  for (const int world : {1, 2, 3}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      parx::ddp ddp{m, group};
      return passes(ddp, group.rank(), world, [&] { return ddp.no_sync(); });
    });
    for (int rank = 0; rank < world; ++rank) {
      model m;
      make_integer_valued(m);
      const auto expected = passes(m, rank, world, [] { return 0; });
      const auto& found = results[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < expected.size(); ++i) {
        BOOST_TEST(
            std::abs(found[i] - expected[i]) <= 1e-5F * std::abs(expected[i]),
            "world " << world << ", rank " << rank << ": " << found[i] << " and " << expected[i]);
      }
      BOOST_TEST(std::abs(expected[0]) > 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_layer_that_members_leaves_out_is_told_of_once) {
  std::vector<std::string> lines;
  parx::logger::instance().set_sink(
      [&](parx::log_level, std::string_view line) { lines.emplace_back(line); });
  for (const bool all : {true, false}) {
    lines.clear();
    parx::run_threads(2, [&](parx::process_group& group) {
      forgetful m;
      m.all = all;
      parx::ddp ddp{m, group};
      for (int step = 0; step < 2; ++step) {
        m.zero_grad();
        loss_of(ddp(integers(16, 6, 1)), integers(16, 3, 2), 16).backward();
      }
    });
    BOOST_TEST_REQUIRE(lines.size() == (all ? 0U : 1U));
  }
  parx::logger::instance().set_sink({});
  BOOST_TEST(
      (lines[0].find("[3, 8]") != std::string::npos || lines[0].find("[3]") != std::string::npos),
      lines[0]);
  BOOST_TEST(lines[0].find("that is missing in members()") != std::string::npos, lines[0]);
}

BOOST_AUTO_TEST_CASE(copies_that_diverge_are_told_of_once) {
  std::vector<std::string> lines;
  parx::logger::instance().set_sink(
      [&](parx::log_level, std::string_view line) { lines.emplace_back(line); });
  for (const bool are_alike : {true, false}) {
    lines.clear();
    parx::run_threads(3, [&](parx::process_group& group) {
      model m;
      parx::ddp ddp{m, group};
      const double lr = are_alike || group.rank() != 1 ? 0.01 : 0.02;
      parx::optim::sgd opt{m.parameters(), {.lr = lr}};
      for (int step = 0; step < 9; ++step) {
        opt.zero_grad();
        loss_of(ddp(integers(16, 6, 1)), integers(16, 3, 2), 16).backward();
        opt.step();
      }
    });
    BOOST_TEST_REQUIRE(lines.size() == (are_alike ? 0U : 1U));
  }
  parx::logger::instance().set_sink({});
  BOOST_TEST(lines[0].find("since step 1 or before, values on rank 1 of group") !=
                 std::string::npos,
             lines[0]);
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

BOOST_AUTO_TEST_CASE(stale_bucket_contents_do_not_count_as_a_gradient) {
  const auto after = [](int earlier) {
    return on_ranks(2, [=](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      parx::ddp ddp{m, group};
      for (int step = 0; step <= earlier; ++step) {
        ddp.zero_grad();
        m.use_spare = step < earlier || group.rank() == 1;
        loss_of(ddp(integers(8, 6, 1)), integers(8, 3, 2), 8).backward();
      }
      return gradients_of(m);
    });
  };
  const auto fresh = after(0);
  BOOST_TEST(after(2) == fresh);
}

BOOST_AUTO_TEST_CASE(a_parameter_that_no_rank_uses_keeps_its_gradient_absent) {
  const auto results = on_ranks(2, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp ddp{m, group};
    loss_of(ddp(integers(8, 6, 1)), integers(8, 3, 2), 8).backward();
    return gradients_of(m);
  });
  for (const auto& each : results) {
    BOOST_TEST((std::count(each.begin(), each.end(), 12345.0f) == 2));
  }
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

BOOST_AUTO_TEST_CASE(a_layer_that_all_ranks_freeze_after_some_have_used_it_keeps_that_gradient) {
  const auto train = [](bool freezes) {
    return on_ranks(2, [&](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      parx::ddp ddp{m, group};
      const auto pass = [&](bool uses_spare) {
        m.use_spare = uses_spare;
        loss_of(ddp(integers(8, 6, 1)), integers(8, 3, 2), 8).backward();
      };
      {
        const auto guard = ddp.no_sync();
        pass(group.rank() == 1);
      }
      if (freezes) m.spare.freeze();
      pass(false);
      return gradients_of(m);
    });
  };
  const auto expected = train(false);
  BOOST_TEST(train(true) == expected);
}

BOOST_AUTO_TEST_CASE(micro_batches_that_zero_grad_discards_do_not_count) {
  const auto expected = single_process(false);
  for (const int world : {1, 2}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      parx::ddp ddp{m, group};
      const auto [begin, end] = rows_of(group.rank(), group.size());
      {
        const auto guard = ddp.no_sync();
        m.use_spare = true;  // no rank may take it for used afterwards
        loss_of(ddp(integers(4, 6, 9)), integers(4, 3, 9), 4).backward();
        m.use_spare = false;
      }
      m.zero_grad();
      loss_of(ddp(integers(16, 6, 1).slice(0, begin, end)), integers(16, 3, 2).slice(0, begin, end),
              static_cast<double>(end - begin)).backward();
      return gradients_of(m);
    });
    for (const auto& each : results) BOOST_TEST(each == expected, "world " << world);
  }
}

BOOST_AUTO_TEST_CASE(a_model_can_be_wrapped_again_after_its_ddp_has_gone) {
  const auto results = on_ranks(2, [](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    { parx::ddp gone{m, group}; }
    parx::ddp ddp{m, group};
    const auto [begin, end] = rows_of(group.rank(), group.size());
    loss_of(ddp(integers(16, 6, 1).slice(0, begin, end)), integers(16, 3, 2).slice(0, begin, end),
            static_cast<double>(end - begin)).backward();
    return gradients_of(m);
  });
  for (const auto& each : results) BOOST_TEST(each == single_process(false));
}

BOOST_AUTO_TEST_CASE(a_rank_that_waits_for_a_late_one_has_hidden_little_and_the_late_one_much) {
  std::vector<parx::reduction_times> times(2);
  parx::run_threads(2, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group, {.buckets = {.first_bytes = 64, .bytes = 128}}};
    const auto before = ddp.times();
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    loss_of(ddp(integers(16, 6, 1)), integers(16, 3, 2), 16).backward();
    times[static_cast<std::size_t>(group.rank())] = ddp.times() - before;
  });
  BOOST_TEST(times[0].communication >= 0.09);
  BOOST_TEST(times[0].waited >= 0.09);
  BOOST_TEST(times[0].hidden() < 0.2);
  BOOST_TEST(times[1].communication > 0);
  BOOST_TEST(times[1].communication < 0.09);
  BOOST_TEST((parx::reduction_times{.communication = 4, .waited = 1}.hidden()) == 0.75);
}

BOOST_AUTO_TEST_CASE(a_loss_is_averaged_over_ranks_by_its_count) {
  std::vector<double> means(3);
  parx::run_threads(3, [&](parx::process_group& group) {
    const auto count = static_cast<float>(group.rank() + 1);
    const parx::weighted_loss<float> loss{tensor<float>::scalar(10 * count), count};
    means[static_cast<std::size_t>(group.rank())] = parx::global_mean(group, loss);
  });
  for (const double mean : means) BOOST_TEST(mean == 10);
}
