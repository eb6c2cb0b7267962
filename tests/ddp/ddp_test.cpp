#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddp/ranks.hpp>
#include <messages.hpp>

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

void make_integer_valued(model& m) {
  int salt = 0;
  m.materialize();
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
parx::weighted_loss<float> loss_of(const parx::variable<float>& prediction,
                                   const tensor<float>& wanted, double count) {
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

BOOST_AUTO_TEST_CASE(a_step_of_gradients_that_have_not_left_the_rank_is_refused) {
  for (const int world : {1, 2}) {
    parx::run_threads(world, [&](parx::process_group& group) {
      model m;
      parx::ddp ddp{m, group};
      parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1f}};
      const auto backward = [&] {
        loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward();
      };
      {
        const auto guard = ddp.no_sync();
        backward();
      }
      const std::string said = parx_test::message_of([&] { opt.step(); });
      parx::require(parx_test::mentions(said, "usage: ", "under no_sync()"), "{}", said);
      backward();  // the last micro-batch
      opt.step();
      parx::require(ddp.replicas_equal(), "the ranks have different parameters");
    });
  }
}

BOOST_AUTO_TEST_CASE(a_loss_from_before_a_step_is_refused) {
  const auto told = on_ranks(2, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group};
    parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1f}};
    const auto loss = [&] { return loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4); };
    const auto old = loss();
    loss().backward();
    opt.step();
    std::string said = parx_test::message_of([&] { old.backward(); });
    loss().backward();  // nothing has started: the ranks go on
    return said;
  });
  for (const std::string& each : told) {
    BOOST_TEST(parx_test::mentions(each, "usage: backward at ddp_test.cpp:", ".weight\"",
                                   "before an optimizer's step changed it"),
               each);
  }
}

BOOST_AUTO_TEST_CASE(a_layer_that_is_frozen_on_one_rank_alone_is_refused_on_all) {
  const auto train = [](int world, auto freeze) {
    return on_ranks(world, [&](parx::process_group& group) {
      model m;
      parx::ddp ddp{m, group};
      return parx_test::message_of([&] {
        for (const int step : {0, 1}) {
          freeze(m, group.rank(), step);
          loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward();
          ddp.zero_grad();
        }
      });
    });
  };
  for (const std::string& said : train(3, [](model& m, int rank, int step) {
         if (rank == 1 && step == 1) m.second.freeze();
       })) {
    BOOST_TEST(parx_test::mentions(said, "ddp at ddp_test.cpp:", "\"second.weight\" is frozen on "
                                   "rank 1 of 3", "Call freeze() on all ranks or on none"),
               said);
  }
  for (const std::string& said :
       train(3, [](model& m, int, int) { m.second.freeze(); }))
    BOOST_TEST(said == "nothing was thrown");
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

BOOST_AUTO_TEST_CASE(a_refused_backward_names_the_ddp_and_leaves_the_group_open) {
  std::vector<std::string> texts(2);
  parx::run_threads(2, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group};
    const auto backward = [&] { loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward(); };
    backward();
    try {
      backward();
    } catch (const parx::usage_error& refused) {
      texts[static_cast<std::size_t>(group.rank())] = refused.what();
    }
    parx::barrier(group);
    m.zero_grad();
    backward();
  });
  for (const auto& text : texts) {
    BOOST_TEST(text.find("ddp at ddp_test.cpp:") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(alone_a_failed_backward_closes_nothing_and_its_remains_are_refused) {
  std::string text;
  parx::run_threads(1, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp ddp{m, group};
    bool fail = true;
    const auto backward = [&] {
      const auto hidden = parx::relu(m.first(integers(16, 6, 1)));
      const auto fragile = parx::differentiable(
          hidden.value().clone(),
          [&](const tensor<float>& upstream, const parx::grad_sink<float>& sink) {
            if (fail) throw std::runtime_error("no");
            sink.add(upstream);
          },
          hidden);
      loss_of(m.second(fragile), integers(16, 3, 2), 16).backward();
    };
    try {
      backward();
    } catch (const std::runtime_error&) {
    }
    parx::barrier(group);  // throws where the group was closed
    fail = false;
    try {
      backward();
    } catch (const parx::usage_error& refused) {
      text = refused.what();
    }
    m.zero_grad();
    backward();
    if (gradients_of(m) != single_process(false)) throw std::logic_error("other gradients");
  });
  BOOST_TEST(text.find("zero_grad()") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_second_ddp_of_a_model_is_refused_and_the_first_still_works) {
  std::vector<std::string> texts(2);
  const auto results = on_ranks(2, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp first{m, group};
    try {
      parx::ddp second{m, group};
    } catch (const parx::usage_error& refused) {
      texts[static_cast<std::size_t>(group.rank())] = refused.what();
    }
    const auto [begin, end] = rows_of(group.rank(), group.size());
    loss_of(first(integers(16, 6, 1).slice(0, begin, end)), integers(16, 3, 2).slice(0, begin, end),
            static_cast<double>(end - begin)).backward();
    return gradients_of(m);
  });
  for (const auto& text : texts)
    BOOST_TEST(text.find("another wrapper") != std::string::npos, text);
  for (const auto& each : results) BOOST_TEST(each == single_process(false));
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
