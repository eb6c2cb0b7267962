#include <parx/autograd/split_backward.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gradients.hpp"

#include <parx/autograd.hpp>
#include <parx/ops.hpp>
#include <parx/tensor/pool.hpp>

using namespace parx;

namespace {

using text = std::vector<std::string>;
using parameters = std::vector<parameter<float>>;

tensor<float> noise(const shape& s, const std::string& name) {
  return parx_test::normal<float>(s, name.c_str());
}
parameter<float> weight(const shape& s, const std::string& name) { return {name, noise(s, name)}; }

std::vector<float> values(const tensor<float>& t) {
  if (!t.defined()) return {12345};  // a mark for "absent"
  return {t.begin(), t.end()};
}
std::vector<std::vector<float>> gradients(const parameters& all) {
  std::vector<std::vector<float>> made;
  for (const auto& each : all) {
    made.push_back(each.has_grad() ? values(each.grad()) : values({}));
  }
  return made;
}

struct recorder : backward_observer {
  explicit recorder(const parameters& all) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i].attach(this, i);
    watched = all;
  }
  ~recorder() override {
    for (const auto& each : watched) each.detach_observer();
  }
  [[nodiscard]] gradient_of wanted() const override { return gradient_of::sum; }
  void begin_backward(const backward_start& start) override {
    log.push_back("begin " + std::to_string(static_cast<int>(start.count)) + ":");
    for (const std::size_t index : start.reached) log.back() += " " + std::to_string(index);
    for (const auto& each : watched) written_before += each.has_grad() ? 1 : 0;
    if (fails_to_begin) throw std::runtime_error("no");
  }
  void leaf_ready(std::size_t index) override { log.push_back("ready " + std::to_string(index)); }
  void end_backward() override { log.emplace_back("end"); }
  void abandon_backward() noexcept override { log.emplace_back("abandon"); }

  parameters watched;
  text log;
  int written_before = 0;
  bool fails_to_begin = false;
};

enum class how { whole, halves };

struct outcome {
  std::vector<std::vector<float>> weights, inputs;
  bool operator==(const outcome&) const = default;
};

/// Three micro-batches through `stage`(border, micro-batch's name), backward in the order 2, 0, 1;
/// in halves all of the first before any of the second.
outcome train(how way, const parameters& all,
              const std::function<variable<float>(const border<float>&, const std::string&)>& stage,
              const shape& input = {5, 8}) {
  for (const auto& each : all) each.zero_grad();
  std::vector<border<float>> borders;
  std::vector<variable<float>> results;
  for (const std::string name : {"a", "b", "c"}) {
    borders.emplace_back(noise(input, "input " + name));
    results.push_back(stage(borders.back(), name));
  }
  std::vector<backward_rest> rests;
  for (const std::size_t i : {2U, 0U, 1U}) {
    const tensor<float> upstream = noise(results[i].shape(), "upstream " + std::to_string(i));
    const backward_options options{.count = static_cast<double>(i + 3)};
    if (way == how::whole) {
      results[i].backward_from(upstream, options);
    } else {
      rests.push_back(results[i].backward_inputs_from(upstream, options));
      BOOST_TEST(!std::any_of(all.begin(), all.end(), [](auto& p) { return p.has_grad(); }));
    }
  }
  outcome made;
  for (const auto& each : borders) made.inputs.push_back(values(each.gradient().sum));
  for (auto& each : rests) each.weights();
  made.weights = gradients(all);
  return made;
}

void halves_equal_whole(
    const parameters& all,
    const std::function<variable<float>(const border<float>&, const std::string&)>& stage,
    const shape& input = {5, 8}) {
  const outcome expected = train(how::whole, all, stage, input);
  const outcome found = train(how::halves, all, stage, input);
  BOOST_TEST((found.inputs == expected.inputs));
  for (std::size_t i = 0; i < all.size(); ++i) {
    BOOST_TEST((found.weights[i] == expected.weights[i]), all[i].name());
    BOOST_TEST((expected.weights[i] != values({})), all[i].name());
  }
  // Under an observer gradients are sums, whole or in halves.
  recorder observer(all);
  BOOST_TEST((train(how::whole, all, stage, input) == train(how::halves, all, stage, input)));
}

std::size_t live() { return memory_pool::instance().stats().live_bytes; }

}  // namespace

BOOST_AUTO_TEST_CASE(products_norms_and_sums_get_the_bits_of_a_whole_backward) {
  const parameters p{weight({32, 8}, "w1"), weight({32}, "b1"), weight({32}, "scale"),
                     weight({32}, "shift"), weight({8, 32}, "w2"), weight({8}, "b2"),
                     weight({8}, "added"), weight({8}, "gain")};
  for (const activation f : {activation::none, activation::relu, activation::gelu}) {
    halves_equal_whole(p, [&](const auto& x, const auto&) {
      const auto y = layer_norm<float>(linear<float>(x, p[0], p[1], f), p[2], p[3]);
      return rms_norm<float>(x + linear<float>(y, p[4], p[5], f) * p[6], p[7]);
    }, {200, 8});
  }
}

BOOST_AUTO_TEST_CASE(weights_that_are_used_often_or_made_of_others_get_the_same_bits) {
  // `w` three times, and once through other operations; `table` by rows beside the border.
  const parameters p{weight({8, 8}, "w"), weight({8, 4}, "left"), weight({8, 4}, "right"),
                     weight({9, 8}, "table"), weight({8}, "unreached by the border")};
  const auto ids = tensor<std::int64_t>::from({1, 5, 1, 7, 8}, {5});
  halves_equal_whole(p, [&](const auto& x, const auto&) {
    const auto both = concat<float>({p[1], p[2]}, 1);
    auto y = matmul<float>(x, p[0]) + embedding<float>(p[3], ids);
    y = matmul<float>(tanh(linear<float>(y, p[0])), both) * 0.5F;
    return matmul<float>(y + p[4] * p[4], p[0] + transpose<float>(p[0]));
  });
}

BOOST_AUTO_TEST_CASE(attention_to_what_does_not_lead_to_the_border_gets_the_same_bits) {
  const parameters p{weight({2, 6, 8}, "keys"), weight({2, 6, 8}, "values"),
                     weight({8, 8}, "project")};
  halves_equal_whole(p, [&](const auto& x, const auto&) {
    const attention_options<float> options{.heads = 2};
    const auto k = linear<float>(p[0], p[2]);
    const auto once = scaled_dot_product_attention<float>(x, k, p[1], options);
    // k has had a contribution when this one comes, and the value is the border.
    return scaled_dot_product_attention<float>(k, k, slice(concat<float>({once, x}, 1), 1, 0, 6),
                                               options);
  }, {2, 4, 8});
}

BOOST_AUTO_TEST_CASE(convolutions_get_the_same_bits) {
  const parameters p{weight({4, 2, 3, 3}, "sliding"), weight({4}, "bias"),
                     weight({6, 4, 1, 1}, "product"), weight({6, 6, 3, 3}, "strided")};
  halves_equal_whole(p, [&](const auto& x, const auto&) {
    const auto y = conv2d<float>(x, p[0], p[1], {.padding = 1, .activation = activation::relu});
    const auto z = conv2d<float>(y, p[2], {}, {.activation = activation::gelu});
    return conv2d<float>(z, p[3], {}, {.stride = 2});
  }, {3, 2, 7, 7});
}

// Weights get contributions of several micro-batches, images and blocks of rows: in which order
// these are added must not depend on whether a backward is whole.
BOOST_AUTO_TEST_CASE(each_operation_with_weights_gets_the_bits_of_a_whole_backward) {
  struct operation {
    std::string name;
    std::vector<shape> weights;
    shape input;
    std::function<variable<float>(const variable<float>&, const parameters&)> run;
  };
  using x_ = const variable<float>&;
  using p_ = const parameters&;
  const auto ids = tensor<std::int64_t>::from({1, 5, 1, 7, 8, 1}, {6});
  const auto labels = tensor<std::int64_t>::full({600}, 3);
  const auto copied = tensor<std::int64_t>::from({1, 3, 1, 0, 2, 2}, {2, 3});
  const auto seen = tensor<std::int64_t>::ones({2, 3});
  const std::vector<operation> all{
      {"linear", {{9, 8}, {9}}, {600, 8}, [](x_ x, p_ p) { return linear<float>(x, p[0], p[1]); }},
      {"linear in_out",
       {{8, 9}, {9}},
       {600, 8},
       [](x_ x, p_ p) {
         return linear<float>(x, p[0], p[1], activation::silu, weight_layout::in_out);
       }},
      {"matmul", {{8, 9}}, {5, 70, 8}, [](x_ x, p_ p) { return matmul<float>(x, p[0]); }},
      {"matmul from the left", {{9, 70}}, {5, 70, 8},
       [](x_ x, p_ p) { return matmul<float>(p[0], x); }},
      {"einsum", {{8, 9}}, {5, 70, 8},
       [](x_ x, p_ p) { return einsum<float>("btc,cd->bdt", {x, p[0]}); }},
      {"broadcast", {{8}, {7, 1}}, {5, 7, 8}, [](x_ x, p_ p) { return x * p[0] / exp(p[1]); }},
      {"prelu", {{3}}, {5, 3, 6}, [](x_ x, p_ p) { return prelu<float>(x, p[0]); }},
      {"conv1d", {{4, 3, 3}, {4}}, {5, 3, 9},
       [](x_ x, p_ p) { return conv1d<float>(x, p[0], p[1], {.stride = 2, .padding = 1}); }},
      {"conv2d by groups", {{4, 2, 3, 3}, {4}}, {5, 4, 7, 7},
       [](x_ x, p_ p) { return conv2d<float>(x, p[0], p[1], {.padding = 1, .groups = 2}); }},
      {"conv_transpose1d", {{3, 2, 4}, {2}}, {5, 3, 6},
       [](x_ x, p_ p) { return conv_transpose1d<float>(x, p[0], p[1], {.stride = 2}); }},
      {"conv_transpose2d", {{4, 2, 2, 2}, {2}}, {5, 4, 6, 6},
       [](x_ x, p_ p) { return conv_transpose2d<float>(x, p[0], p[1], {.stride = 2}); }},
      {"conv_transpose2d by groups, of a derived weight used twice", {{4, 2, 3, 3}}, {5, 4, 5, 5},
       [](x_ x, p_ p) {
         const auto w = p[0] * 0.5F;
         const conv_transpose_options options{.padding = 1, .groups = 2};
         return conv_transpose2d<float>(conv_transpose2d<float>(x, w, {}, options), w, {}, options);
       }},
      {"layer_norm", {{8}, {8}}, {600, 8},
       [](x_ x, p_ p) { return layer_norm<float>(x, p[0], p[1]); }},
      {"rms_norm", {{8}}, {600, 8}, [](x_ x, p_ p) { return rms_norm<float>(x, p[0]); }},
      {"group_norm", {{6}, {6}}, {5, 6, 4, 4},
       [](x_ x, p_ p) { return group_norm<float>(x, 2, p[0], p[1]); }},
      {"batch_norm", {{6}, {6}}, {5, 6, 4, 4},
       [](x_ x, p_ p) {
         return batch_norm<float>(x, p[0], p[1], statistics_of_batch(x.value()));
       }},
      {"norms of weights", {{600, 8}, {8}}, {8},
       [](x_ x, p_ p) { return layer_norm<float>(p[0], x, p[1]) + rms_norm<float>(p[0], x); }},
      {"gru_cell", {{24, 8}, {24, 8}, {24}, {24}, {90, 8}}, {90, 8},
       [](x_ x, p_ p) {
         auto h = gru_cell<float>(x, p[4], p[0], p[1], p[2], p[3]);
         return gru_cell<float>(x, h, p[0], p[1], p[2], p[3]);
       }},
      {"lstm_cell", {{32, 8}, {32, 8}, {32}, {32}, {90, 8}}, {90, 8},
       [](x_ x, p_ p) {
         const lstm_state<float> start{p[4], p[4]};
         const auto s = lstm_cell<float>(x, start, p[0], p[1], p[2], p[3]);
         return lstm_cell<float>(x, s, p[0], p[1], p[2], p[3]).h;
       }},
      {"embedding", {{9, 8}}, {6, 8},
       [ids](x_ x, p_ p) { return x * embedding<float>(p[0], ids) + embedding<float>(p[0], ids); }},
      {"gather, index_select and scatter_add", {{9, 8}, {9, 8}}, {9, 8},
       [ids](x_ x, p_ p) {
         const auto rows = index_select(p[0], 0, ids) * index_select(x, 0, ids);
         const auto places = expand(unsqueeze(variable<float>(ids.cast<float>()), 1), {6, 8});
         return scatter_add(p[1], 0, places.value().cast<std::int64_t>(), rows) +
                index_add(p[1], 0, ids, rows);
       }},
      {"attention of learned keys and values", {{1, 6, 8}, {8}}, {5, 6, 8},
       [](x_ x, p_ p) {
         const attention_options<float> options{.heads = 2};
         const auto k = p[0] + x * 0.0F + p[1];
         return scaled_dot_product_attention<float>(x, k, k, options);
       }},
      {"pointer_mixture", {{2, 2, 4}, {2, 2, 1}}, {2, 2, 3},
       [copied, seen](x_ x, p_ p) {
         return pointer_mixture<float>(p[0], x, p[1] * sum(x), copied, seen);
       }},
      {"linear_cross_entropy", {{9, 8}, {9}}, {600, 8},
       [labels](x_ x, p_ p) { return linear_cross_entropy<float>(x, p[0], p[1], labels).sum; }},
      {"single_call", {{8}}, {600, 8},
       [](x_ x, p_ p) {
         const auto times = [](float a, float b) { return a * b; };
         return differentiable(
             map(times, x.value(), p[0].value()),
             single_call([=, a = x.value(), w = p[0].value()](
                             const tensor<float>& u, grad_sink<float> dx, grad_sink<float> dw) {
               dx.map(times, u, w);
               dw.map(times, u, a);
               dw.add_broadcast(u);
             }),
             x, p[0]);
       }},
  };
  for (const operation& each : all) {
    BOOST_TEST_CONTEXT(each.name) {
      parameters p;
      for (const shape& s : each.weights) p.push_back(weight(s, std::to_string(p.size())));
      halves_equal_whole(
          p, [&](const border<float>& x, const auto&) { return each.run(x, p); }, each.input);
    }
  }
}

BOOST_AUTO_TEST_CASE(rounded_operands_of_autocast_get_the_same_bits) {
  const parameters p{weight({32, 8}, "w1"), weight({32}, "b1"), weight({8, 32}, "w2")};
  halves_equal_whole(p, [&](const auto& x, const auto&) {
    const autocast<bfloat16> scope;
    return linear<float>(linear<float>(x, p[0], p[1], activation::gelu), p[2]);
  }, {100, 8});
}

BOOST_AUTO_TEST_CASE(a_checkpointed_part_runs_again_once_and_gets_the_same_bits) {
  const parameters p{weight({16, 8}, "w1"), weight({16}, "b1"), weight({8, 16}, "w2"),
                     weight({8, 8}, "tied"), weight({8}, "given")};
  int runs = 0;
  const auto block = [&](const variable<float>& x) {
    ++runs;
    const auto y = linear<float>(x, p[0], p[1], activation::gelu);
    return x + linear<float>(y, p[2]) + linear<float>(x, p[3]);
  };
  const auto another = [&](const variable<float>& v) -> variable<float> {
    (void)(v * 2.0F);
    return p[4];
  };
  const auto recomputed = [&](const auto& x, const auto&) {
    const auto nested = [&](const variable<float>& v) { return checkpoint(block, v) * 0.5F; };
    const auto same = [](const variable<float>& v) { return v; };
    // A part that does not lead to the border, one within a part, and two that compute nothing.
    const auto beside = checkpoint([&] { return matmul<float>(p[3], p[3]); });
    const auto y = linear<float>(checkpoint(nested, checkpoint(block, x)), p[3]);
    return matmul(y * checkpoint(same, y) * checkpoint(another, y), beside);
  };
  const auto plain = [&](const auto& x, const auto&) {
    const auto beside = matmul<float>(p[3], p[3]);
    const auto y = linear<float>(block(block(x)) * 0.5F, p[3]);
    return matmul(y * y * checkpoint(another, y), beside);
  };
  halves_equal_whole(p, recomputed);
  BOOST_TEST((train(how::halves, p, recomputed) == train(how::whole, p, plain)));
  runs = 0;
  (void)train(how::halves, p, recomputed);
  // Of three micro-batches: two blocks that run forward and again, one of them also within the
  // second run of the part around it.
  BOOST_TEST(runs == 3 * 5);
}

BOOST_AUTO_TEST_CASE(observers_hear_of_the_second_half_as_of_a_whole_backward) {
  const parameters p{weight({8, 8}, "w1"), weight({8}, "scale"), weight({8, 8}, "w2")};
  recorder observer(p);
  const auto loss = [&](const border<float>& x) {
    const auto y = rms_norm<float>(linear<float>(x, p[0]), p[1]);
    return weighted_loss<float>{sum(linear<float>(y, p[2]) * linear<float>(y, p[0])), 6};
  };
  const border<float> x(noise({3, 8}, "x"));
  loss(x).backward();
  const text expected = std::exchange(observer.log, {});
  BOOST_TEST((expected == text{"begin 6: 0 1 2", "ready 2", "ready 1", "ready 0", "end"}));
  for (const auto& each : p) each.zero_grad();
  observer.written_before = 0;
  const border<float> again(x.value());
  auto rest = loss(again).backward_inputs();
  BOOST_TEST(observer.log.empty());
  BOOST_TEST(again.gradient().count == 6);
  BOOST_TEST((values(again.gradient().sum) == values(x.gradient().sum)));
  rest.weights();
  BOOST_TEST((observer.log == expected));
  BOOST_TEST(observer.written_before == 0);
}

BOOST_AUTO_TEST_CASE(without_a_border_the_first_half_is_empty) {
  const parameters p{weight({4, 4}, "w")};
  const auto loss = [&] { return weighted_loss<float>{sum(matmul<float>(p[0], p[0])), 3}; };
  loss().backward();
  const auto expected = gradients(p);
  p[0].zero_grad();
  auto rest = loss().backward_inputs();
  BOOST_TEST(!p[0].has_grad());
  rest.weights();
  BOOST_TEST((gradients(p) == expected));
  // The loss may be a leaf, a border too.
  const parameter<float> leaf("leaf", tensor<float>::scalar(2));
  leaf.backward_inputs({.seed = 3}).weights();
  BOOST_TEST(leaf.grad().item() == 3.0F);
  const border<float> only(tensor<float>::scalar(2));
  auto nothing = only.backward_inputs();
  BOOST_TEST(only.gradient().sum.item() == 1.0F);
  nothing.weights();
  BOOST_TEST(only.gradient().sum.item() == 1.0F);
}

BOOST_AUTO_TEST_CASE(an_undivided_operation_runs_once_and_what_it_contributes_waits) {
  const parameters p{weight({4}, "w")};
  int runs = 0;
  const auto product = [&](const variable<float>& x, const variable<float>& w) {
    return differentiable(
        map([](float a, float b) { return a * b; }, x.value(), w.value()),
        single_call([&runs, x = x.value(), w = w.value()](
                        const tensor<float>& u, grad_sink<float> dx, grad_sink<float> dw) {
          ++runs;
          if (dx.needed()) dx.map([](float a, float b) { return a * b; }, u, w);
          if (dw.needed()) dw.map([](float a, float b) { return a * b; }, u, x);
        }),
        x, w);
  };
  halves_equal_whole(p, [&](const auto& x, const auto&) { return product(product(x, p[0]), p[0]); },
                     {4});
  runs = 0;
  (void)train(how::halves, p, [&](const auto& x, const auto&) { return product(x, p[0]); }, {4});
  BOOST_TEST(runs == 3);
}

BOOST_AUTO_TEST_CASE(a_batch_norm_asks_other_ranks_once_for_each_backward) {
  const parameters p{weight({3}, "scale"), weight({3}, "shift"), weight({3, 3, 1, 1}, "w")};
  int asked = 0;
  const auto stage = [&](const auto& x, const auto&) {
    const auto y = conv2d<float>(x, p[2]);
    const auto combine = [&](std::span<double>) { ++asked; };
    return batch_norm<float>(y, p[0], p[1], statistics_of_batch(y.value()), 1e-5, combine);
  };
  halves_equal_whole(p, stage, {4, 3, 5, 5});
  asked = 0;
  (void)train(how::halves, p, stage, {4, 3, 5, 5});
  BOOST_TEST(asked == 3);
}

BOOST_AUTO_TEST_CASE(memory_goes_as_soon_as_the_second_half_does_not_need_it) {
  constexpr std::size_t rows = 1024, width = 16, layers = 6;
  std::vector<parameter<float>> p;
  for (std::size_t i = 0; i < layers; ++i) {
    p.push_back(weight({width, width}, "w" + std::to_string(i)));
    p.push_back(weight({width}, "scale" + std::to_string(i)));
    p.push_back(weight({width}, "shift" + std::to_string(i)));
  }
  const auto forward = [&](const border<float>& x) {
    variable<float> y = x;
    for (std::size_t i = 0; i < layers; ++i) {
      y = linear<float>(y, p[3 * i], {}, activation::gelu);
      y = layer_norm<float>(dropout(y, 0.1, random_stream(1, "d")), p[3 * i + 1], p[3 * i + 2]);
    }
    return sum(y * y);
  };
  const border<float> warm(noise({rows, width}, "x"));
  forward(warm).backward();  // the parameters' gradients have their memory now
  const border<float> x(warm.value());
  const std::size_t before = live();
  const double one = [&] {
    const auto activation = tensor<float>::empty({rows, width});
    return static_cast<double>(live() - before);
  }();
  const auto activations = [&] { return static_cast<double>(live() - before) / one; };
  auto loss = forward(x);
  // Each layer: the norm's input, the product's slopes, a byte of dropout's mask for each element,
  // and the norm's result, which is the next product's input and at the end the square's.
  BOOST_TEST(std::abs(activations() - layers * 3.25) < 0.25 * layers);
  auto rest = loss.backward_inputs();
  // Each layer: the product's input (the border's for the first) and its result's gradient. The
  // border's gradient.
  BOOST_TEST(std::abs(activations() - (2 * layers - 1 + 1)) < 0.1 * layers);
  rest.weights();
  BOOST_TEST(std::abs(activations() - 1) < 0.1);
}

BOOST_AUTO_TEST_CASE(a_rest_runs_once_and_discards_the_gradients_when_it_does_not_run) {
  const parameters p{weight({4, 4}, "w")};
  recorder observer(p);
  const auto stage = [&](const border<float>& x) { return sum(linear<float>(x, p[0])); };
  {
    const border<float> x(noise({2, 4}, "x"));
    auto rest = stage(x).backward_inputs();
    rest.weights();
    BOOST_CHECK_THROW(rest.weights(), usage_error);
  }
  p[0].zero_grad();
  observer.log.clear();
  const std::size_t before = live();
  {
    const border<float> x(noise({2, 4}, "x"));
    const auto dropped = stage(x).backward_inputs();
  }
  BOOST_TEST(!p[0].has_grad());
  BOOST_TEST(observer.log.empty());
  BOOST_TEST(live() == before);
}

BOOST_AUTO_TEST_CASE(a_graph_whose_first_half_has_run_is_as_good_as_freed) {
  const parameters p{weight({4, 4}, "w")};
  const border<float> x(noise({2, 4}, "x"));
  const auto y = linear<float>(x, p[0]);
  const auto loss = sum(y * y);
  BOOST_CHECK_THROW((void)loss.backward_inputs({.graph = graph_after::retained}), usage_error);
  auto rest = loss.backward_inputs();
  BOOST_CHECK_THROW(loss.backward(), usage_error);
  BOOST_CHECK_THROW(sum(y).backward(), usage_error);
  rest.weights();
  BOOST_TEST(p[0].has_grad());
  // What two graphs share, the first of them frees.
  const auto shared = p[0] * 2.0F;
  const border<float> a(x.value()), b(x.value());
  auto first = sum(linear(a, shared)).backward_inputs();
  auto second = sum(linear(b, shared)).backward_inputs();
  first.weights();
  BOOST_CHECK_THROW(second.weights(), usage_error);
}

BOOST_AUTO_TEST_CASE(an_exception_in_either_half_abandons_it_and_the_next_backward_is_whole) {
  const parameters p{weight({2}, "w"), weight({2}, "v")};
  recorder observer(p);
  enum { nowhere, in_inputs, in_weights } failure = nowhere;
  const auto fragile = [&](const variable<float>& x, const variable<float>& w) {
    return differentiable(
        map([](float a, float b) { return a * b; }, x.value(), w.value()),
        [&failure, x = x.value(), w = w.value()](const tensor<float>& u, grad_sink<float> dx,
                                                 grad_sink<float> dw) {
          const auto product = [](float a, float b) { return a * b; };
          if (dx.needed() && failure == in_inputs) throw std::runtime_error("inputs");
          if (dw.needed() && failure == in_weights) throw std::runtime_error("weights");
          if (dx.needed()) dx.map(product, u, w);
          if (dw.needed()) dw.map(product, u, x);
        },
        x, w);
  };
  const auto run = [&](const border<float>& x) {
    sum(fragile(x, p[0]) * p[1]).backward_inputs().weights();
  };
  const border<float> first(tensor<float>::from({1, 2}, {2}));
  run(first);
  const auto expected = gradients(p);
  const text whole = std::exchange(observer.log, {});
  for (const auto broken : {in_inputs, in_weights}) {
    for (const auto& each : p) each.zero_grad();
    failure = broken;
    const border<float> x(first.value());
    BOOST_CHECK_THROW(run(x), std::runtime_error);
    if (broken == in_inputs) {
      BOOST_TEST(observer.log.empty());  // no wrapper has heard of this backward
      BOOST_CHECK_THROW((void)x.gradient(), usage_error);
    } else {
      BOOST_TEST((observer.log == text{"begin 1: 0 1", "ready 1", "abandon"}));
      BOOST_TEST((values(x.gradient().sum) == values(first.gradient().sum)));
    }
    failure = nowhere;
    observer.log.clear();
    for (const auto& each : p) each.zero_grad();
    const border<float> again(first.value());
    run(again);
    BOOST_TEST((gradients(p) == expected));
    BOOST_TEST((observer.log == whole));
    observer.log.clear();
  }
  observer.fails_to_begin = true;
  for (const auto& each : p) each.zero_grad();
  const border<float> x(first.value());
  BOOST_CHECK_THROW(run(x), std::runtime_error);
  BOOST_TEST((gradients(p) == (std::vector<std::vector<float>>{values({}), values({})})));
}

BOOST_AUTO_TEST_CASE(a_wrapper_that_comes_between_the_halves_is_refused_unless_gradients_are_sums) {
  const parameters p{weight({2}, "w")};
  const auto loss = [&] { return weighted_loss<float>{sum(p[0] * p[0]), 4}; };
  auto rest = loss().backward_inputs();
  auto sums = loss().backward_inputs({.of = gradient_of::sum});
  recorder observer(p);
  BOOST_CHECK_THROW(rest.weights(), usage_error);
  BOOST_TEST(!p[0].has_grad());
  sums.weights();
  BOOST_TEST(p[0].grad().at(0) == 2 * p[0].value().at(0));
}

BOOST_AUTO_TEST_CASE(linear_starts_the_reduction_of_its_inputs_gradient_before_the_weights) {
  struct doubling final : input_gradient_reduction<float> {
    void start(const tensor<float>& gradient) override {
      log->push_back(weight->has_grad() ? "start after dW" : "start before dW");
      kept = gradient;
    }
    void finish() override {
      log->push_back(weight->has_grad() ? "finish after dW" : "finish before dW");
      for (float& each : kept.span()) each *= 2;
    }
    text* log = nullptr;
    const parameter<float>* weight = nullptr;
    tensor<float> kept;
  };
  text log;
  const parameters p{weight({3, 4}, "w")};
  const auto sum_of_two = std::make_shared<doubling>();
  sum_of_two->log = &log;
  sum_of_two->weight = &p[0];
  const auto stage = [&](std::shared_ptr<doubling> reduction) {
    return [&, reduction](const auto& x, const auto&) {
      return linear<float>(x * 1.0F, p[0], {}, activation::gelu, weight_layout::out_in, reduction);
    };
  };
  const outcome plain = train(how::whole, p, stage({}), {2, 4});
  const outcome reduced = train(how::whole, p, stage(sum_of_two), {2, 4});
  BOOST_TEST((text(log.begin(), log.begin() + 2) == text{"start before dW", "finish after dW"}));
  BOOST_TEST((reduced.weights == plain.weights));
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 8; ++j) BOOST_TEST(reduced.inputs[i][j] == 2 * plain.inputs[i][j]);
  }
  // In halves there is no gradient of the weight to hide behind.
  log.clear();
  BOOST_TEST((train(how::halves, p, stage(sum_of_two), {2, 4}) == reduced));
  BOOST_TEST((log == text{"start before dW", "finish before dW", "start before dW",
                          "finish before dW", "start before dW", "finish before dW"}));
}

BOOST_AUTO_TEST_CASE(without_a_reduction_linear_computes_the_weights_gradient_first) {
  const parameters p{weight({3, 4}, "w")};
  recorder observer(p);
  const border<float> x(noise({2, 4}, "x"));
  const auto y = differentiable(
      x.value().clone(),
      [&](const tensor<float>& u, grad_sink<float> dx) {
        observer.log.emplace_back("dX");
        dx.add(u);
      },
      x);
  sum(linear<float>(y, p[0])).backward();
  BOOST_TEST((observer.log == text{"begin 1: 0", "ready 0", "dX", "end"}));
}
