// Parameters whose gradients are summed over other ranks than those of the ddp. Integer values keep
// all sums exact, in whatever order, and counts are powers of two.
#include <parx/reduction/reduction_group.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/ddp/raw.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::process_group;
using parx::tensor;
using parx::variable;
using parx_test::mentions;

/// The ranks of a world of 4 as 2 (dp) x 2 (tp).
struct grid {
  explicit grid(process_group& all)
      : world(all), d(all.rank() / 2), t(all.rank() % 2),
        dp(all.subgroup(std::array{t, t + 2})) {}

  process_group& world;
  int d, t;
  process_group dp;
};

constexpr parx::bucket_limits tiny{.first_bytes = 64, .bytes = 128};

/// What each rank threw, which must be nothing.
void on_ranks(jobs::kind network, int world, const jobs::body& body,
              parx::group_options options = {}) {
  for (const std::string& each : jobs::run_collecting(network, world, body, options)) {
    BOOST_TEST(each == "", jobs::name_of(network) << ": " << each);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_norm_is_summed_over_all_ranks_and_the_rest_over_those_that_share_it) {
  struct found {
    std::vector<float> grads;
    std::vector<float> values;
    bool equal = false;
  };
  for (const auto network : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::hybrid}) {
    std::vector<found> results(4);
    on_ranks(network, 4, [&](process_group& world) {
      grid at(world);
      const auto r = static_cast<float>(world.rank());
      // Both kinds alternate, so that their buckets do.
      std::vector<float> memory[6];
      parx::raw_module<float> raw;
      for (std::size_t i = 0; i < 6; ++i) {
        memory[i].assign(20, i % 2 == 0 ? static_cast<float>(at.t) : r);
        raw.add("p" + std::to_string(i), memory[i]);
        if (i % 2 == 1) raw.reduce_over(i, "dp+tp");
      }
      parx::ddp ddp{raw, at.dp, {.buckets = tiny, .reduction_groups = {{"dp+tp", world}}}};
      found& mine = results[static_cast<std::size_t>(world.rank())];
      mine.equal = ddp.replicas_equal();
      for (int step = 0; step < 3; ++step) {
        auto pass = raw.begin_backward(at.d == 0 ? 1 : 3);
        for (std::size_t k = 0; k < 6; ++k) {
          // Each rank has an order of its own.
          const std::size_t i = (k * (world.rank() % 2 == 0 ? 1 : 5) +
                                 static_cast<std::size_t>(world.rank())) % 6;
          for (float& each : raw.grad(i)) each = 4 * (r + 1) * static_cast<float>(i + 1);
          pass.ready(i);
        }
        pass.end();
      }
      for (std::size_t i = 0; i < 6; ++i) {
        mine.grads.insert(mine.grads.end(), raw.grad(i).begin(), raw.grad(i).end());
        mine.values.push_back(memory[i][7]);
      }
    });
    for (int rank = 0; rank < 4; ++rank) {
      const found& each = results[static_cast<std::size_t>(rank)];
      const float t = static_cast<float>(rank % 2);
      std::vector<float> grads, values;
      for (std::size_t i = 0; i < 6; ++i) {
        // Own: ranks t and t + 2. All: 1 + 2 + 3 + 4. Divided by the 4 samples of a dp line.
        const float sum = i % 2 == 0 ? (t + 1) + (t + 3) : 10;
        grads.insert(grads.end(), 20, sum * static_cast<float>(i + 1));
        values.push_back(i % 2 == 0 ? t : 0);
      }
      BOOST_TEST((each.grads == grads), "rank " << rank);
      BOOST_TEST((each.values == values), "rank " << rank);
      BOOST_TEST(each.equal);
    }
  }
}

BOOST_AUTO_TEST_CASE(where_one_rank_has_all_data_its_mean_is_still_over_its_own_samples) {
  std::array<std::array<float, 2>, 2> results{};
  on_ranks(jobs::kind::inproc, 2, [&](process_group& world) {
    process_group alone = world.subgroup(std::array{world.rank()});
    std::vector<float> own(3), norm(3);
    parx::raw_module<float> raw;
    raw.add("own", own);
    raw.reduce_over(raw.add("norm", norm), "tp");
    parx::ddp ddp{raw, alone, {.reduction_groups = {{"tp", world}}}};
    const auto scale = static_cast<float>(world.rank() + 1);
    const auto add = [&](float gradient, bool is_first) {
      auto pass = raw.begin_backward(4);
      for (std::size_t i = 0; i < 2; ++i) {
        for (float& each : raw.grad(i)) each = gradient * scale + (is_first ? 0 : each);
        pass.ready(i);
      }
      pass.end();
    };
    {
      const auto guard = ddp.no_sync();
      add(80, true);
    }
    add(160, false);
    results[static_cast<std::size_t>(world.rank())] = {raw.grad(0)[1], raw.grad(1)[1]};
  });
  BOOST_TEST((results[0] == std::array<float, 2>{30, 90}));  // 240 / 8 and 3 * 240 / 8
  BOOST_TEST((results[1] == std::array<float, 2>{60, 90}));
}

namespace {

/// y = mix(x), plus shared(x) where it is used.
struct branched : parx::nn::module<branched> {
  parx::nn::linear<> mix{4, 4};
  parx::nn::linear<> shared{4, 4};
  bool use_shared = true;

  variable<float> forward(const variable<float>& x) {
    return use_shared ? mix(x) + shared(x) : mix(x);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("mix", mix);
    visit("shared", shared);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(one_rank_of_a_group_suffices_for_the_mean_and_none_gives_none) {
  std::array<std::vector<float>, 4> results;
  on_ranks(jobs::kind::inproc, 4, [&](process_group& world) {
    grid at(world);
    branched m;
    m.initialize(1);
    m.shared.weight().reduce_over("all");
    parx::ddp ddp{m, at.dp, {.reduction_groups = {{"all", world}}}};
    for (int step = 0; step < 2; ++step) {
      // Rank 3 alone uses it, then nobody.
      m.use_shared = step == 0 && world.rank() == 3;
      m.zero_grad();
      const parx::weighted_loss<float> loss{parx::sum(ddp(tensor<float>::full({2, 4}, 8))), 2};
      loss.backward();
      const auto& shared = m.shared.weight();
      auto& mine = results[static_cast<std::size_t>(world.rank())];
      mine.push_back(shared.has_grad() ? shared.grad().data()[5] : -1);
      mine.push_back(m.mix.weight().grad().data()[5]);
    }
  });
  // Two rows of 8, of rank 3 and of each rank of the pair, over 4 samples.
  for (const auto& each : results) BOOST_TEST((each == std::vector<float>{4, 8, -1, 8}));
}

namespace {

// A table that would travel by rows in the ddp's own group.
constexpr std::size_t words = 9000, width = 8;

struct stage : parx::nn::module<stage> {
  parx::nn::embedding<> table{words, width};
  parx::nn::linear<> mix{width, width};

  variable<float> forward(const tensor<int>& tokens) { return mix(table(tokens)); }
  variable<float> scores(const variable<float>& x) {
    return parx::matmul(x, parx::transpose(table.weight()));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("table", table);
    if (is_first) visit("mix", mix);  // the last stage has the table alone
  }
  bool is_first = true;
};

float table_value(std::size_t i) { return static_cast<float>(i % 3) - 1; }
float mix_value(std::size_t i) { return static_cast<float>((i * 5 + i / 7) % 3) - 1; }
constexpr std::array<int, 4> all_tokens{17, 4000, 17, 8999};  // one of pipeline 0, three of 1

struct tied_gradients {
  std::vector<float> table, mix;
};

/// L = sum over samples and words of (h . T_v)^2, h = W T_token + b.
tied_gradients closed_form() {
  const auto value = [](std::size_t v, std::size_t k) {
    return static_cast<double>(table_value(v * width + k));
  };
  std::vector<double> table(words * width), mix(width * width);
  for (const int token : all_tokens) {
    const auto row = static_cast<std::size_t>(token);
    std::array<double, width> h{}, dh{};
    for (std::size_t o = 0; o < width; ++o) {
      for (std::size_t i = 0; i < width; ++i) h[o] += mix_value(o * width + i) * value(row, i);
    }
    for (std::size_t v = 0; v < words; ++v) {
      double score = 0;
      for (std::size_t k = 0; k < width; ++k) score += h[k] * value(v, k);
      for (std::size_t k = 0; k < width; ++k) {
        table[v * width + k] += 2 * score * h[k];
        dh[k] += 2 * score * value(v, k);
      }
    }
    for (std::size_t o = 0; o < width; ++o) {
      for (std::size_t i = 0; i < width; ++i) {
        mix[o * width + i] += dh[o] * value(row, i);
        table[row * width + i] += dh[o] * mix_value(o * width + i);
      }
    }
  }
  tied_gradients mean;
  for (const double each : table) mean.table.push_back(static_cast<float>(each / 4));
  for (const double each : mix) mean.mix.push_back(static_cast<float>(each / 4));
  return mean;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_table_that_two_stages_share_gets_the_gradient_of_the_whole_model) {
  const tied_gradients expected = closed_form();
  for (const auto network : {jobs::kind::inproc, jobs::kind::tcp}) {
    std::array<tied_gradients, 4> results;
    std::array<bool, 4> equal{};
    on_ranks(network, 4, [&](process_group& world) {
      const int me = world.rank(), pipeline = me % 2;
      const bool is_first = me < 2;
      process_group dp = world.subgroup(is_first ? std::array{0, 1} : std::array{2, 3});
      process_group pp = world.subgroup(std::array{pipeline, pipeline + 2});
      stage m;
      m.is_first = is_first;
      m.initialize(static_cast<std::uint64_t>(me));
      if (me == 0) {  // the others get these
        std::size_t i = 0;
        for (float& each : m.table.weight().value()) each = table_value(i++);
        i = 0;
        for (float& each : m.mix.weight().value()) each = mix_value(i++);
        m.for_each_parameter([](const std::string& path, auto& p) {
          if (path == "mix.bias") p.value().fill(0);
        });
      }
      m.table.weight().reduce_over("tied");
      parx::ddp ddp{m, dp, {.reduction_groups = {{"tied", world}}}};
      for (int step = 0; step < 2; ++step) {
        m.zero_grad();
        const std::size_t rows = pipeline == 0 ? 1 : 3;
        if (is_first) {
          auto tokens = tensor<int>::empty({rows});
          for (std::size_t i = 0; i < rows; ++i) {
            tokens.data()[i] = all_tokens[pipeline == 0 ? 0 : i + 1];
          }
          const auto h = ddp(tokens);
          parx::send(pp, h.value().span(), 1);
          std::vector<float> gradient(rows * width);
          std::vector<double> count(1);
          parx::recv(pp, gradient, 1);
          parx::recv(pp, count, 1);
          h.backward_from(tensor<float>::from(gradient, {rows, width}), {.count = count[0]});
        } else {
          std::vector<float> received(rows * width);
          parx::recv(pp, received, 0);
          const parx::border<float> x(tensor<float>::from(received, {rows, width}));
          const auto scores = m.scores(x);
          const parx::weighted_loss<float> loss{parx::sum(scores * scores),
                                                static_cast<double>(rows)};
          // The table's sums wait for the first stage, and that for the gradient of its output.
          auto rest = loss.backward_inputs();
          const auto [sum, count] = x.gradient();
          parx::send(pp, sum.span(), 0);
          parx::send(pp, std::array{count}, 0);
          rest.weights();
        }
      }
      tied_gradients& mine = results[static_cast<std::size_t>(me)];
      m.for_each_parameter([&](const std::string& path, auto& p) {
        auto& target = path == "table.weight" ? mine.table : mine.mix;
        if (path != "mix.bias") target.assign(p.grad().begin(), p.grad().end());
      });
      equal[static_cast<std::size_t>(me)] = ddp.replicas_equal();
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      BOOST_TEST((results[rank].table == expected.table), "rank " << rank);
      if (rank < 2) BOOST_TEST((results[rank].mix == expected.mix), "rank " << rank);
      BOOST_TEST(equal[rank]);
    }
  }
}

BOOST_AUTO_TEST_CASE(replicas_are_compared_over_the_ranks_that_hold_a_parameter) {
  std::array<std::array<bool, 3>, 4> results{};
  on_ranks(jobs::kind::inproc, 4, [&](process_group& world) {
    grid at(world);
    branched m;
    m.initialize(1);
    m.shared.weight().reduce_over("all");
    parx::ddp ddp{m, at.dp, {.reduction_groups = {{"all", world}}}};
    auto& mine = results[static_cast<std::size_t>(world.rank())];
    mine[0] = ddp.replicas_equal();
    if (at.t == 1) m.mix.weight().value().data()[0] = 5;  // both ranks of a dp line
    if (world.rank() == 2) m.mix.weight().value().data()[1] = 5;
    mine[1] = ddp.replicas_equal();
    if (world.rank() == 1) m.shared.weight().value().data()[0] = 5;
    mine[2] = ddp.replicas_equal();
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    BOOST_TEST((results[rank] == std::array{true, rank % 2 == 1, false}), "rank " << rank);
  }
}

BOOST_AUTO_TEST_CASE(a_hook_leaves_other_groups_alone) {
  std::array<std::array<float, 2>, 4> results{};
  on_ranks(jobs::kind::inproc, 4, [&](process_group& world) {
    grid at(world);
    std::vector<float> own(3), norm(3);
    parx::raw_module<float> raw;
    raw.add("own", own);
    raw.reduce_over(raw.add("norm", norm), "all");
    parx::ddp ddp{raw, at.dp, {.hook = parx::bf16_compress_hook{},
                               .reduction_groups = {{"all", world}}}};
    for (int step = 0; step < 2; ++step) {
      auto pass = raw.begin_backward(1);
      for (std::size_t i = 0; i < 2; ++i) {
        for (float& each : raw.grad(i)) each = 257;  // 9 bits, where bfloat16 has 8
        pass.ready(i);
      }
      pass.end();
    }
    results[static_cast<std::size_t>(world.rank())] = {raw.grad(0)[1], raw.grad(1)[1]};
  });
  for (const auto& each : results) BOOST_TEST((each == std::array<float, 2>{256, 514}));
}

BOOST_AUTO_TEST_CASE(ranks_that_name_other_groups_are_refused_with_the_names) {
  const auto texts = jobs::run_collecting(jobs::kind::inproc, 4, [](process_group& world) {
    grid at(world);
    branched m;
    m.initialize(1);
    if (world.rank() != 3) m.shared.weight().reduce_over("dp+tp");
    parx::ddp ddp{m, at.dp, {.reduction_groups = {{"dp+tp", world}}}};
  });
  for (const std::string& each : texts) {
    BOOST_TEST(mentions(each, "model of rank"), each);
    BOOST_TEST(mentions(each, "shared.weight [4, 4] float32, summed over \"dp+tp\""), each);
  }
}

BOOST_AUTO_TEST_CASE(a_difference_that_one_rank_does_not_see_reaches_it) {
  // Ranks 0 and 1 share group "x", 2 and 3 the other of that name; all are of the ddp's own group.
  const auto texts = jobs::run_collecting(jobs::kind::inproc, 4, [](process_group& world) {
    const int first = world.rank() / 2 * 2;
    process_group pair = world.subgroup(std::array{first, first + 1});
    std::vector<float> part(world.rank() == 1 ? 7 : 8), whole(3);
    parx::raw_module<float> raw;
    raw.reduce_over(raw.add("part", part), "x");
    raw.add("whole", whole);
    parx::ddp ddp{raw, world, {.reduction_groups = {{"x", pair}}}};
  });
  for (const std::string& each : texts) {
    BOOST_TEST(mentions(each, "part [7] float32, summed over \"x\""), each);
  }
}

BOOST_AUTO_TEST_CASE(two_groups_whose_names_are_swapped_on_a_rank_are_a_mismatch_and_no_circle) {
  parx::group_options options;
  options.timeout = std::chrono::seconds(20);
  const auto texts = jobs::run_collecting(
      jobs::kind::inproc, 2,
      [](process_group& world) {
        process_group first = world.subgroup(std::array{0, 1});
        process_group second = world.subgroup(std::array{0, 1});
        const bool swapped = world.rank() == 1;
        std::vector<float> a(4), b(5);
        parx::raw_module<float> raw;
        raw.reduce_over(raw.add("a", a), "a");
        raw.reduce_over(raw.add("b", b), "b");
        parx::ddp ddp{raw,
                      world,
                      {.reduction_groups = {{"a", swapped ? second : first},
                                            {"b", swapped ? first : second}}}};
      },
      options);
  for (const std::string& each : texts) {
    BOOST_TEST(mentions(each, "differs from that of rank 0"), each);
  }
}

BOOST_AUTO_TEST_CASE(a_trainer_does_not_take_one_ranks_part_for_the_whole_model) {
  on_ranks(jobs::kind::inproc, 2, [](process_group& world) {
    process_group alone = world.subgroup(std::array{world.rank()});
    parx::nn::linear<> layer(2, 2);
    layer.initialize(1);
    for (auto& p : layer.parameters()) p.reduce_over("part");
    parx::ddp ddp{layer, world, {.reduction_groups = {{"part", alone}}}};
    parx::optim::sgd opt{layer.parameters(), {.lr = 0.1f}};
    std::string refusal;
    try {
      (void)parx::optim::grad_norm(opt.targets());
    } catch (const parx::usage_error& refused) {
      refusal = refused.what();
    }
    if (!mentions(refusal, "of \"part\" alone")) throw std::runtime_error(refusal);
  });
}

BOOST_AUTO_TEST_CASE(a_name_that_the_ddp_does_not_know_is_refused_with_those_that_it_knows) {
  on_ranks(jobs::kind::inproc, 1, [](process_group& world) {
    branched m;
    m.initialize(1);
    m.shared.weight().reduce_over("dp+pt");
    const auto says = [](const char* text) {
      return [text](const parx::usage_error& refused) { return mentions(refused.what(), text); };
    };
    BOOST_CHECK_EXCEPTION((parx::ddp{m, world}), parx::usage_error,
                          says("\"shared.weight\" is to be summed over \"dp+pt\", but the "
                               "reduction groups of this ddp are none"));
    BOOST_CHECK_EXCEPTION(
        (parx::ddp{m, world, {.reduction_groups = {{"tied", world}, {"dp+tp", world}}}}),
        parx::usage_error, says("are \"dp+tp\", \"tied\""));
    m.shared.weight().reduce_over("tied");
    BOOST_CHECK_EXCEPTION(
        (parx::ddp{m, world, {.reduction_groups = {{"tied", world}, {"tied", world}}}}),
        parx::usage_error, says("two reduction groups named \"tied\""));
    parx::ddp ddp{m, world, {.reduction_groups = {{"tied", world}}}};
    BOOST_CHECK_EXCEPTION(m.shared.weight().reduce_over("all"), parx::usage_error,
                          says("has been wrapped already"));
  });
}

BOOST_AUTO_TEST_CASE(ranks_of_a_group_that_count_other_samples_are_told_at_the_next_step) {
  const auto texts = jobs::run_collecting(jobs::kind::inproc, 4, [](process_group& world) {
    grid at(world);
    std::vector<float> norm(3);
    parx::raw_module<float> raw;
    raw.reduce_over(raw.add("norm", norm), "dp+tp");
    parx::ddp ddp{raw, at.dp, {.reduction_groups = {{"dp+tp", world}}}};
    for (int step = 0; step < 2; ++step) {
      auto pass = raw.begin_backward(at.t == 0 ? 1 : 2);
      pass.ready(0);
      pass.end();
    }
  });
  for (const std::string& each : texts) {
    BOOST_TEST(mentions(each, "ddp on reduction group \"dp+tp\""), each);
    BOOST_TEST(mentions(each, "by 3 on average"), each);
  }
}
