#include <parx/autograd/checkpoint.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradients.hpp>

#include <parx/autograd.hpp>
#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>

namespace {

using parx::tensor;
using parx::variable;

tensor<float> noise(const parx::shape& s, const char* name) {
  tensor<float> t = tensor<float>::empty(s);
  parx::random_stream(1, name).uniform(t, -1.0F, 1.0F);
  return t;
}

struct block : parx::nn::module<block> {
  parx::nn::linear<> up;
  parx::nn::linear<> down;
  parx::nn::dropout drop{0.3};

  explicit block(std::size_t width) : up(width, 2 * width), down(2 * width, width) {}
  variable<float> forward(const variable<float>& x) {
    return x + drop(down(parx::gelu(drop(up(x)))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("up", up);
    visit("down", down);
    visit("drop", drop);
  }
};

enum class how { plain, parts, nested };

// Tied in and out: `tied` is used inside and outside of the parts.
struct network : parx::nn::module<network> {
  parx::nn::linear<> tied{12, 12};
  std::vector<block> blocks;
  parx::nn::linear<> unused{12, 12};
  how way;

  explicit network(how w) : way(w) {
    for (int i = 0; i < 3; ++i) blocks.emplace_back(12);
  }
  variable<float> forward(const variable<float>& x) {
    variable<float> h = tied(x);
    const variable<float> outside = parx::tanh(h);
    for (block& each : blocks) {
      // Uses a parameter and a computed variable that it is not handed.
      const auto part = [&each, outside, this](const variable<float>& v) {
        return each(v) + tied(v) * outside;
      };
      if (way == how::plain) h = part(h);
      if (way == how::parts) h = parx::checkpoint(part, h);
      if (way == how::nested) {
        h = parx::checkpoint(
            [&each, outside, this](const variable<float>& v) {
              return parx::checkpoint(each, v) + tied(v) * outside;
            },
            h);
      }
    }
    return h;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("tied", tied);
    visit("blocks", blocks);
    visit("unused", unused);
  }
};

using parx_test::gradients_of;

template <typename Precision>
std::vector<float> gradients_after_two_passes(how way) {
  network model(way);
  model.initialize(5);
  for (const char* name : {"first", "second"}) {
    variable<float> loss;
    {
      const parx::autocast<Precision> scope;
      loss = parx::sum(model(noise({7, 12}, name)));
    }
    loss.backward();
  }
  return gradients_of(model);
}

struct recorder : parx::backward_observer {
  std::vector<std::string> events;
  [[nodiscard]] parx::gradient_of wanted() const override { return parx::gradient_of::sum; }
  void begin_backward(const parx::backward_start& start) override {
    std::string text = "begin";
    for (const std::size_t i : start.reached) text += " " + std::to_string(i);
    events.push_back(text);
  }
  void leaf_ready(std::size_t i) override { events.push_back("ready " + std::to_string(i)); }
  void end_backward() override { events.emplace_back("end"); }
  void abandon_backward() noexcept override { events.emplace_back("abandon"); }
};

std::vector<std::string> observed(how way) {
  network model(way);
  model.initialize(5);
  recorder observer;
  std::size_t index = 0;
  model.for_each_parameter([&](const std::string&, auto& p) { p.attach(&observer, index++); });
  parx::sum(model(noise({7, 12}, "x"))).backward();
  return observer.events;
}

std::size_t peak_of(bool recompute, int layers) {
  std::vector<parx::nn::linear<>> stack;
  for (int i = 0; i < layers; ++i) stack.emplace_back(32, 32);
  variable<float> h(noise({1000, 32}, "x"));
  for (auto& layer : stack) (void)layer(tensor<float>::ones({1, 32}));
  auto& pool = parx::memory_pool::instance();
  const std::size_t before = pool.stats().live_bytes;
  pool.reset_peak();
  for (auto& layer : stack) {
    const auto part = [&layer](const variable<float>& v) {
      return parx::tanh(parx::gelu(parx::sigmoid(parx::gelu(layer(v)))));
    };
    h = recompute ? parx::checkpoint(part, h) : part(h);
  }
  parx::sum(h).backward();
  return pool.stats().peak_bytes - before;
}

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_are_those_of_the_plain_pass_bit_by_bit) {
  const auto plain = gradients_after_two_passes<float>(how::plain);
  BOOST_TEST(gradients_after_two_passes<float>(how::parts) == plain);
  BOOST_TEST(gradients_after_two_passes<float>(how::nested) == plain);
  const auto low = gradients_after_two_passes<parx::bfloat16>(how::plain);
  BOOST_TEST(low != plain);
  BOOST_TEST(gradients_after_two_passes<parx::bfloat16>(how::parts) == low);
  BOOST_TEST(gradients_after_two_passes<parx::bfloat16>(how::nested) == low);
}

BOOST_AUTO_TEST_CASE(an_observer_hears_of_each_parameter_once_and_when_it_is_final) {
  // Within a part the order may be another one, between parts it is the same.
  for (const how way : {how::plain, how::parts, how::nested}) {
    auto events = observed(way);
    BOOST_REQUIRE(events.size() == 16U);
    BOOST_TEST(events.front() == "begin 0 1 2 3 4 5 6 7 8 9 10 11 12 13");
    BOOST_TEST(events.back() == "end");
    const auto block_of = [](const std::string& event) {
      return (std::stoi(event.substr(6)) + 2) / 4;  // 0: tied, then four parameters a block
    };
    std::vector<int> blocks;
    for (std::size_t i = 1; i < 15; ++i) blocks.push_back(block_of(events[i]));
    BOOST_TEST(blocks == (std::vector<int>{3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0}));
    std::sort(events.begin() + 1, events.end() - 1);
    BOOST_TEST((std::unique(events.begin(), events.end()) == events.end()));
  }
}

BOOST_AUTO_TEST_CASE(replicas_of_ddp_get_the_gradients_of_the_plain_pass) {
  const auto train = [](how way, int world) {
    std::vector<float> gradients;
    parx::run_threads(world, [&](parx::process_group& group) {
      network model(way);
      model.initialize(5);
      parx::ddp ddp{model, group, {.buckets = {.first_bytes = 64, .bytes = 4096}}};
      const auto x = noise({7, 12}, group.rank() == 0 ? "mine" : "yours");
      {
        const auto guard = ddp.no_sync();
        parx::sum(ddp(x)).backward();
      }
      parx::sum(ddp(x)).backward();
      if (group.rank() == 0) gradients = gradients_of(model);
    });
    return gradients;
  };
  for (const int world : {1, 2}) {
    BOOST_TEST(train(how::parts, world) == train(how::plain, world));
    BOOST_TEST(train(how::nested, world) == train(how::plain, world));
  }
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_inputs_and_one_part) {
  constexpr int layers = 12;
  constexpr double layer = 1000 * 32 * sizeof(float);
  (void)peak_of(false, layers);
  const auto plain = static_cast<double>(peak_of(false, layers)) / layer;
  const auto recomputed = static_cast<double>(peak_of(true, layers)) / layer;
  BOOST_TEST_MESSAGE("activations at the peak: " << plain << " plain, " << recomputed
                                                 << " with checkpoints");
  BOOST_TEST(plain >= 3 * layers);
  // An input each, and one part's five activations with their gradients.
  BOOST_TEST(recomputed <= layers + 8);
}

BOOST_AUTO_TEST_CASE(recomputation_does_not_repeat_side_effects) {
  int calls = 0, forwards = 0, updates = 0;
  std::vector<int> seen;
  const variable<float> w(tensor<float>::ones({3}), parx::gradient::wanted);
  const auto part = [&](const variable<float>& v) {
    ++forwards;
    if (!parx::detail::is_recomputing()) ++updates;
    seen.push_back(parx::detail::once([&] { return ++calls; }));
    seen.push_back(parx::detail::once([&] { return ++calls; }));
    return v * v;
  };
  parx::sum(parx::checkpoint([&](const auto& v) { return parx::checkpoint(part, v) + v; }, w))
      .backward();
  // The outer part's two runs, and the inner one's recomputation.
  BOOST_TEST(forwards == 3);
  BOOST_TEST(updates == 1);
  BOOST_TEST(seen == (std::vector<int>{1, 2, 1, 2, 1, 2}));
  BOOST_TEST(w.grad().data()[0] == 3);
}

BOOST_AUTO_TEST_CASE(without_a_tape_it_is_a_plain_call) {
  int forwards = 0;
  const auto part = [&](const variable<float>& v) {
    ++forwards;
    return v * v;
  };
  const variable<float> w(tensor<float>::ones({3}), parx::gradient::wanted);
  {
    const parx::no_grad no_tape;
    BOOST_TEST(!parx::checkpoint(part, w).requires_grad());
    const parx::enable_grad tape;
    BOOST_TEST(parx::checkpoint(part, w).requires_grad());
  }
  BOOST_TEST(!parx::checkpoint(part, w.detach()).requires_grad());
  BOOST_TEST(!parx::checkpoint([&](const auto& v) { const parx::no_grad g; return part(v); }, w)
                  .requires_grad());
  BOOST_TEST(forwards == 4);
}

BOOST_AUTO_TEST_CASE(a_retained_graph_recomputes_again_and_a_freed_one_is_refused) {
  const variable<float> w(tensor<float>::full({2}, 3), parx::gradient::wanted);
  const auto loss =
      parx::sum(parx::checkpoint([](const auto& v) { return v * v; }, w));
  loss.backward({.graph = parx::graph_after::retained});
  loss.backward();
  BOOST_TEST(w.grad().data()[0] == 12);
  BOOST_CHECK_THROW(loss.backward(), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_part_may_return_what_it_was_given) {
  const variable<float> w(tensor<float>::ones({3}), parx::gradient::wanted);
  const auto identity = [](const variable<float>& v) { return v; };
  const variable<float> y = w * 2;
  parx::sum(parx::checkpoint(identity, y) + parx::checkpoint(identity, w)).backward();
  BOOST_TEST(w.grad().data()[1] == 3);
}

BOOST_AUTO_TEST_CASE(rows_of_an_embedding_in_a_part_stay_sparse) {
  const parx::parameter<float> table("table", tensor<float>::ones({9, 4}));
  const auto ids = tensor<std::int64_t>::from({5, 2, 5}, {3});
  parx::sum(parx::checkpoint([&] { return parx::embedding<float>(table, ids); })).backward();
  BOOST_REQUIRE(table.touched_rows().has_value());
  BOOST_TEST(std::vector<std::size_t>(table.touched_rows()->begin(), table.touched_rows()->end()) ==
             (std::vector<std::size_t>{2, 5}));
  BOOST_TEST(table.grad().at(5, 0) == 2);
}

BOOST_AUTO_TEST_CASE(a_recomputation_with_another_result_is_refused_without_a_trace) {
  const variable<float> w(tensor<float>::ones({3, 2}), parx::gradient::wanted);
  int run = 0;
  const auto loss = parx::sum(parx::checkpoint(
      [&run](const auto& v) { return ++run == 1 ? v * v : parx::sum(v * v); }, w));
  BOOST_CHECK_THROW(loss.backward(), parx::usage_error);
  BOOST_CHECK_THROW(parx::sum(parx::checkpoint(
                                  [&run](const auto& v) {
                                    if (++run % 2 == 0) throw std::runtime_error("out of luck");
                                    return v * v;
                                  },
                                  w))
                        .backward(),
                    std::runtime_error);
  w.zero_grad();
  parx::sum(w * w).backward();
  BOOST_TEST(w.grad().data()[0] == 2);
}

BOOST_AUTO_TEST_CASE(a_checkpointed_module_is_the_module_with_its_paths) {
  parx::nn::sequential plain{block(6), block(6)};
  parx::nn::sequential wrapped{parx::nn::checkpointed{block(6)}, block(6)};
  const auto paths = [](auto& model) {
    std::string all;
    model.for_each_parameter([&](const std::string& path, auto&) { all += path + " "; });
    return all;
  };
  BOOST_TEST(paths(wrapped) == paths(plain));
  const auto gradients = [](auto& model) {
    model.initialize(2);
    parx::sum(model(noise({4, 6}, "x"))).backward();
    return gradients_of(model);
  };
  BOOST_TEST(gradients(wrapped) == gradients(plain));
  wrapped.eval();
  BOOST_TEST(!wrapped.template get<0>().is_training());
}
