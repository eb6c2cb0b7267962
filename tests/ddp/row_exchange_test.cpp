// The gradient of an embedding between ranks: by rows where that is less, with dense all_reduce's
// result. Ranks that share memory and ranks that do not have ways of their own.
#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include <comm/jobs.hpp>
#include <parx/comm/threads.hpp>
#include <parx/ddp/table_sum.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

constexpr std::size_t words = 3000, width = 32;

struct model : parx::nn::module<model> {
  parx::nn::embedding<> table{words, width};
  parx::nn::linear<> head{width, 3};
  bool use_table = true;
  bool tied = false;  // the table is a dense operand as well

  parx::variable<float> forward(const tensor<int>& tokens) {
    if (!use_table) return head(parx::variable<float>(tensor<float>::ones({tokens.size(), width})));
    auto y = head(table(tokens));
    if (tied) y = y + parx::sum(table.weight());
    return y;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("table", table);
    visit("head", head);
  }
};

// Integer values keep all sums exact, whatever their order.
void make_integer_valued(model& m) {
  m.materialize();
  m.for_each_parameter([](const std::string&, auto& p) {
    int i = 0;
    for (float& value : p.value()) value = static_cast<float>(i++ % 3 - 1);
  });
}

/// 16 tokens, of which several ranks have some in common; those of a rank are a slice.
tensor<int> tokens(int step) {
  auto all = tensor<int>::empty({16});
  int i = 0;
  for (int& token : all) {
    token = (i++ * 37 + step * 101) % 5 == 0 ? 7 : (i * 191 + step * 59) % 2999;
  }
  return all;
}
tensor<int> tokens_of(const parx::process_group& group, int step) {
  return tokens(step).slice(0, parx::chunk_begin(16, group.size(), group.rank()),
                            parx::chunk_begin(16, group.size(), group.rank() + 1));
}

parx::weighted_loss<float> loss_of(const parx::variable<float>& y) {
  return {parx::sum(y * y), static_cast<double>(y.extent(0))};
}

struct gradients {
  std::vector<float> values;                         // empty for an absent one
  std::optional<std::vector<std::size_t>> touched;  // of the table
};

gradients gradients_of(model& m) {
  gradients found;
  const auto& table = m.table.weight();
  if (const auto rows = table.touched_rows()) found.touched.emplace(rows->begin(), rows->end());
  m.for_each_parameter([&](const std::string&, auto& p) {
    if (p.has_grad()) found.values.insert(found.values.end(), p.grad().begin(), p.grad().end());
  });
  return found;
}

gradients alone(int step, bool tied = false) {
  model m;
  make_integer_valued(m);
  m.tied = tied;
  loss_of(m(tokens(step))).backward();
  return gradients_of(m);
}

/// Of all ranks that share memory, and of all ranks over TCP, one after the other.
template <typename Body>
std::vector<gradients> on_ranks(int world, Body body) {
  std::vector<gradients> results;
  for (const jobs::kind network : {jobs::kind::inproc, jobs::kind::tcp}) {
    const std::size_t first = results.size();
    results.resize(first + static_cast<std::size_t>(world));
    const auto failures = jobs::run_collecting(network, world, [&](parx::process_group& group) {
      model m;
      make_integer_valued(m);
      parx::ddp ddp{m, group};
      body(group, m, ddp);
      results[first + static_cast<std::size_t>(group.rank())] = gradients_of(m);
    });
    for (const std::string& each : failures) BOOST_TEST(each == "", jobs::name_of(network));
  }
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_are_exchanged_when_those_of_all_ranks_are_less_than_the_table) {
  using parx::detail::rows_are_cheaper;
  const std::vector<std::uint64_t> few{100, 0, 120}, many{500, 500, 500}, none{0, 0},
      dense{1, parx::detail::all_rows};
  BOOST_TEST(rows_are_cheaper(few, 256, 1000 * 256));
  BOOST_TEST(!rows_are_cheaper(many, 256, 1000 * 256));
  BOOST_TEST(rows_are_cheaper(none, 256, 1000 * 256));
  BOOST_TEST(!rows_are_cheaper(dense, 256, 1000 * 256));
}

BOOST_AUTO_TEST_CASE(all_ranks_get_the_single_process_gradient_and_know_the_rows_of_all) {
  for (const int world : {2, 3, 4}) {
    const auto results = on_ranks(world, [](parx::process_group& group, model& m, auto& ddp) {
      for (int step = 0; step < 3; ++step) {  // rows of earlier steps must be gone
        m.zero_grad();
        loss_of(ddp(tokens_of(group, step))).backward();
      }
    });
    const gradients expected = alone(2);
    for (const gradients& each : results) {
      BOOST_TEST((each.values == expected.values), "world " << world);
      BOOST_TEST((each.touched == expected.touched), "world " << world);
    }
  }
}

BOOST_AUTO_TEST_CASE(only_rows_are_on_the_wire) {
  std::array<std::size_t, 2> sent{};
  on_ranks(2, [&](parx::process_group& group, model&, auto& ddp) {
    const std::size_t before = group.bytes_sent();
    loss_of(ddp(tokens_of(group, 0))).backward();
    sent[static_cast<std::size_t>(group.rank())] = group.bytes_sent() - before;
  });
  // 8 rows of 132 bytes, the head's 396 and what goes ahead; the table has 384 000.
  for (const std::size_t bytes : sent) BOOST_TEST(bytes < 4000U);
}

BOOST_AUTO_TEST_CASE(micro_batches_and_idle_ranks_count_as_they_should) {
  const auto results = on_ranks(3, [](parx::process_group& group, model&, auto& ddp) {
    // Rank 1 has nothing at all; the others share the 16 tokens, in two parts each.
    const std::size_t begin = group.rank() == 2 ? 9 : 0, middle = group.rank() == 2 ? 11 : 4,
                      end = group.rank() == 2 ? 16 : 9;
    const bool idle = group.rank() == 1;
    const auto part = [&](std::size_t from, std::size_t to) {
      auto loss = loss_of(ddp(tokens(5).slice(0, from, to)));
      if (idle) loss = {loss.sum * 0.0F, 0};
      loss.backward();
    };
    {
      const auto guard = ddp.no_sync();
      part(begin, middle);
    }
    part(middle, end);
  });
  const gradients expected = alone(5);
  for (const gradients& each : results) BOOST_TEST((each.values == expected.values));
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_use_the_table_get_the_rows_of_those_that_do) {
  const auto results = on_ranks(3, [](parx::process_group& group, model& m, auto& ddp) {
    for (int step = 0; step < 3; ++step) {
      m.zero_grad();
      m.use_table = group.rank() == step;
      loss_of(ddp(tokens(step))).backward();
    }
  });
  BOOST_REQUIRE(results[0].touched.has_value());
  const auto last = tokens(2);
  auto used = std::vector<std::size_t>(last.begin(), last.end());
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (const gradients& each : results) {
    BOOST_TEST((each.values == results[0].values));
    BOOST_TEST((each.touched == used));
  }
}

BOOST_AUTO_TEST_CASE(a_table_that_no_rank_uses_keeps_its_gradient_absent) {
  const auto results = on_ranks(2, [](parx::process_group&, model& m, auto& ddp) {
    m.use_table = false;
    loss_of(ddp(tokens(0))).backward();
  });
  for (const gradients& each : results) BOOST_TEST(each.values.size() == 3 * width + 3);
}

BOOST_AUTO_TEST_CASE(one_rank_with_a_dense_gradient_makes_it_dense_for_all) {
  const auto results = on_ranks(3, [](parx::process_group& group, model& m, auto& ddp) {
    for (int step = 0; step < 4; ++step) {  // by rows, dense on one, unused on one, by rows
      m.zero_grad();
      m.tied = step == 1 || step == 2 ? group.rank() == 0 : false;
      m.use_table = step != 2 || group.rank() != 1;
      loss_of(ddp(tokens_of(group, step))).backward();
      if (step == 1) {
        const bool is_dense = !m.table.weight().touched_rows().has_value();
        if (!is_dense) throw std::runtime_error("the gradient is not dense");
      }
    }
  });
  const gradients expected = alone(3);
  for (const gradients& each : results) {
    BOOST_TEST((each.values == expected.values));
    BOOST_TEST((each.touched == expected.touched));
  }
  const auto tied = on_ranks(2, [](parx::process_group& group, model& m, auto& ddp) {
    m.tied = true;
    loss_of(ddp(tokens_of(group, 1))).backward();
  });
  for (const gradients& each : tied) BOOST_TEST((each.values == alone(1, true).values));
}

BOOST_AUTO_TEST_CASE(reading_values_does_not_change_the_bits_of_any_rank) {
  for (const int world : {1, 2, 3}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(world));
    std::vector<char> equal(results.size(), 1);
    parx::run_threads(world, [&](parx::process_group& group) {
      model m;
      m.initialize(static_cast<std::uint64_t>(group.rank()));
      parx::ddp ddp{m, group};
      parx::optim::adamw optimizer{ddp.parameters(), {.lr = 1e-2, .weight_decay = 0.1}};
      const auto me = static_cast<std::size_t>(group.rank());
      for (int step = 0; step < 40; ++step) {
        loss_of(ddp(tokens_of(group, step))).backward();
        parx::optim::clip_grad_norm(ddp.parameters(), 0.5);
        optimizer.step();
        if (step % 7 == group.rank()) (void)m.table.weight().value();  // as for a checkpoint
      }
      equal[me] = ddp.replicas_equal() ? 1 : 0;
      const auto value = m.table.weight().value();
      results[me].assign(value.begin(), value.end());
    });
    for (const char each : equal) BOOST_TEST(each == 1);
    static std::vector<float> of_one;
    if (world == 1) of_one = results[0];
    // Adam divides by what may be small: rounding differences grow.
    double largest = 0;
    for (std::size_t i = 0; i < of_one.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(results[0][i]) - of_one[i]));
    }
    BOOST_TEST(largest < 1e-4, "world " << world << ": " << largest);
  }
}

namespace {

struct hook_to_zero {
  static constexpr int rounds = 1;
  void start(parx::hook_bucket& /*bucket*/) {}
  void proceed(parx::hook_bucket& bucket, int /*round*/) {
    const auto values = std::span(static_cast<float*>(bucket.gradients.data),
                                  bucket.gradients.count);
    std::fill(values.begin(), values.end(), 0.0F);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_hook_gets_an_embeddings_gradient_only_where_it_is_sent_whole) {
  parx::run_threads(2, [](parx::process_group& group) {
    model plain, hooked;
    make_integer_valued(plain);
    make_integer_valued(hooked);
    parx::ddp a{plain, group}, b{hooked, group, {.hook = hook_to_zero{}}};
    for (const bool tied : {false, true}) {
      plain.tied = hooked.tied = tied;
      loss_of(a(tokens_of(group, 1))).backward();
      loss_of(b(tokens_of(group, 1))).backward();
      const auto is_zero = [](const auto& p) {
        return std::all_of(p.grad().begin(), p.grad().end(), [](float g) { return g == 0; });
      };
      parx::require(is_zero(hooked.head.weight()) && !is_zero(plain.head.weight()), "the head");
      const auto expected = plain.table.weight().grad(), found = hooked.table.weight().grad();
      parx::require(tied ? is_zero(hooked.table.weight())
                         : std::equal(expected.begin(), expected.end(), found.begin()),
                    "the table");
      a.zero_grad();
      b.zero_grad();
    }
  });
}
