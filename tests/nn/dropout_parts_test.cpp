// Layers that are cut over ranks drop the same elements as the uncut layer.
#include <parx/nn/dropout.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/nn.hpp>

using namespace parx;

namespace {

struct span_of_heads {
  std::size_t first, count;
};

constexpr std::size_t batch = 2, positions = 150, heads = 4, width = 6;

tensor<float> values(const std::string& name, std::size_t features) {
  const auto made = tensor<float>::empty({batch, positions, features});
  random_stream(3, name).normal(made, 0.0F, 1.0F);
  return made;
}

/// Output and gradients of q, k and v, each a piece of the whole's.
struct outcome {
  tensor<float> y, dq, dk, dv;
};

/// Attention over these heads alone, of inputs that are sliced out of the whole; `served` heads of
/// keys and values in the whole.
outcome attend(const span_of_heads& mine, std::size_t served, bool causal, int calls) {
  const std::size_t group = heads / served;
  const auto part = [&](const char* name, std::size_t of, std::size_t first, std::size_t count) {
    return variable<float>(
        values(name, of * width).slice(-1, first * width, (first + count) * width).clone(),
        gradient::wanted);
  };
  const auto q = part("q", heads, mine.first, mine.count);
  const auto k = part("k", served, mine.first / group, mine.count / group);
  const auto v = part("v", served, mine.first / group, mine.count / group);
  nn::dot_product_attention layer{heads, {.dropout = 0.3}};
  layer.initialize(17);
  layer.take_heads(mine.first, mine.count);
  variable<float> y;
  for (int call = 0; call < calls; ++call) {
    y = layer(q, k, v, attention_options<float>{.causal = causal});
  }
  const auto upstream = values("upstream", heads * width)
                            .slice(-1, mine.first * width, (mine.first + mine.count) * width);
  y.backward_from(upstream.clone());
  return {y.value(), q.grad(), k.grad(), v.grad()};
}

bool is_slice(const tensor<float>& part, const tensor<float>& whole, std::size_t first) {
  const auto expected = whole.slice(-1, first, first + part.extent(-1)).contiguous();
  return std::equal(part.begin(), part.end(), expected.begin(), expected.end());
}

}  // namespace

BOOST_AUTO_TEST_CASE(heads_that_are_split_drop_and_give_the_bits_of_all_heads_together) {
  struct grouping {
    std::size_t served;
    std::vector<std::vector<span_of_heads>> splits;
  };
  const grouping groupings[]{
      {4, {{{0, 4}}, {{0, 2}, {2, 2}}, {{0, 1}, {1, 1}, {2, 1}, {3, 1}}, {{0, 3}, {3, 1}}}},
      {2, {{{0, 4}}, {{0, 2}, {2, 2}}}},  // grouped queries
  };
  for (const auto& [served, splits] : groupings) {
    for (const bool causal : {false, true}) {
      const outcome whole = attend({0, heads}, served, causal, 2);
      // The first call drops other elements than the second.
      BOOST_TEST(!is_slice(attend({0, heads}, served, causal, 1).y, whole.y, 0));
      for (const auto& split : splits) {
        for (const span_of_heads& mine : split) {
          const outcome part = attend(mine, served, causal, 2);
          const std::size_t kv = mine.first * served / heads * width;
          BOOST_TEST(is_slice(part.y, whole.y, mine.first * width));
          BOOST_TEST(is_slice(part.dq, whole.dq, mine.first * width));
          BOOST_TEST(is_slice(part.dk, whole.dk, kv));
          BOOST_TEST(is_slice(part.dv, whole.dv, kv));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(chunks_of_activations_drop_and_give_the_bits_of_the_whole) {
  const auto run = [](const tensor<float>& input, const axis_chunk& here) {
    nn::dropout layer{0.4};
    layer.initialize(23);
    layer.take_chunk(here);
    const variable<float> x(input, gradient::wanted);
    (void)layer(x);
    const auto y = layer(x);
    sum(y).backward();
    return std::pair{y.value(), x.grad()};
  };
  const auto input = values("x", 22);
  const auto [whole, whole_grad] = run(input, {});
  for (const int axis : {0, 1, 2, -1}) {
    for (const int count : {1, 2, 4, 7}) {
      const std::size_t extent = input.extent(axis);
      for (int index = 0; index < count; ++index) {
        const std::size_t begin = chunk_begin(extent, count, index);
        const std::size_t end = chunk_begin(extent, count, index + 1);
        const auto [y, grad] =
            run(input.slice(axis, begin, end).clone(),
                {.axis = axis, .index = index, .count = count, .whole = extent});
        const auto expected = whole.slice(axis, begin, end).contiguous();
        const auto expected_grad = whole_grad.slice(axis, begin, end).contiguous();
        BOOST_TEST(std::equal(y.begin(), y.end(), expected.begin(), expected.end()));
        BOOST_TEST(std::equal(grad.begin(), grad.end(), expected_grad.begin(),
                              expected_grad.end()));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_call_without_samples_is_not_counted) {
  const auto same = [](const tensor<float>& a, const tensor<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  const variable<float> x(values("x", 22)), none(tensor<float>::empty({0, positions, 22}));
  nn::dropout some{0.4}, others{0.4};
  some.initialize(23);
  others.initialize(23);
  (void)others(none);
  BOOST_TEST(same(some(x).value(), others(x).value()));
  (void)others(none);
  BOOST_TEST(same(some(x).value(), others(x).value()));

  const variable<float> q(values("q", heads * width)),
      empty(tensor<float>::empty({0, positions, heads * width}));
  nn::dot_product_attention attention{heads, {.dropout = 0.3}}, other{heads, {.dropout = 0.3}};
  attention.initialize(17);
  other.initialize(17);
  (void)other(empty, empty, empty);
  BOOST_TEST(same(attention(q, q, q).value(), other(q, q, q).value()));
}

BOOST_AUTO_TEST_CASE(replicas_in_turns_draw_what_each_draws_on_a_rank_of_its_own) {
  const variable<float> x(values("x", 22));
  const auto drawn = [&](nn::dropout& layer) {
    const tensor<float> y = layer(x).value();
    return std::vector<float>(y.begin(), y.end());
  };
  nn::dropout in_turns{0.4};
  std::array own{nn::dropout{0.4}, nn::dropout{0.4}, nn::dropout{0.4}};
  in_turns.initialize(23);
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i].initialize(23);
    own[i].set_replica(i);
  }
  for (int step = 0; step < 3; ++step) {
    in_turns.begin_replicas();
    for (std::size_t i = 0; i < own.size(); ++i) {
      in_turns.next_replica(i);
      BOOST_TEST((drawn(in_turns) == drawn(own[i])));
    }
    in_turns.next_replica(0);  // its forward goes on in another layer
    in_turns.end_replicas();
  }
  BOOST_TEST((drawn(in_turns) == drawn(own[0])));
}

BOOST_AUTO_TEST_CASE(parts_that_do_not_exist_are_refused) {
  nn::dot_product_attention layer{heads};
  BOOST_CHECK_THROW(layer.take_heads(3, 2), usage_error);
  BOOST_CHECK_THROW(layer.take_heads(0, 0), usage_error);
  nn::dropout drop{0.5};
  drop.take_chunk({.index = 1, .count = 2, .whole = 7});
  BOOST_CHECK_THROW((void)drop(tensor<float>::ones({3, 4})), usage_error);  // 7 is 4 and 3
  const auto x = variable<float>(tensor<float>::ones({3, 4}));
  BOOST_CHECK_THROW((void)dropout(x, 0.5, random_stream(1, "d"), shard_spec::whole({4, 3})),
                    usage_error);
  const auto q = tensor<float>::ones({1, 2, 3, 4});
  BOOST_CHECK_THROW((void)scaled_dot_product_attention<float>(
                        q, q, q, {.first_head = 3, .whole_heads = 4}),
                    usage_error);
}
