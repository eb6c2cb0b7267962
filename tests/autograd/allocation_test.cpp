// Training steps on tensors: after the first two, no thread asks for memory.
#include <parx/autograd.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <vector>

#include <count_allocations.hpp>

using namespace parx;

namespace {

parameter<float> made(const char* name, const shape& s) {
  const auto value = tensor<float>::empty(s);
  random_stream(1, name).normal(value, 0.0F, 0.1F);
  return {name, value};
}

std::size_t allocations_of_third_step(auto&& step) {
  step();
  step();
  const std::size_t before = parx_test::allocations_of_all_threads;
  step();
  return parx_test::allocations_of_all_threads - before;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_training_step_of_a_convolutional_net_allocates_nothing_after_warm_up) {
  const auto k = made("k", {8, 1, 3, 3}), kb = made("kb", {8}), w = made("w", {10, 8 * 13 * 13}),
             b = made("b", {10});
  const auto x = tensor<float>::ones({16, 1, 28, 28});
  const auto labels = tensor<int>::zeros({16});
  const std::size_t count = allocations_of_third_step([&] {
    for (const auto& p : {k, kb, w, b}) p.zero_grad();
    const auto hidden = flatten(max_pool2d(relu(conv2d<float>(x, k, kb))));
    cross_entropy(linear<float>(hidden, w, b), labels).backward();
  });
  BOOST_TEST(count == 0U);
}

BOOST_AUTO_TEST_CASE(a_training_step_of_a_transformer_block_allocates_nothing_after_warm_up) {
  const std::size_t batch = 2, length = 8, heads = 2, width = 16;
  const auto table = made("table", {100, width}), qkv = made("qkv", {3 * width, width}),
             out = made("out", {width, width});
  const auto up = made("up", {4 * width, width}), down = made("down", {width, 4 * width});
  const auto scale = made("scale", {width}), shift = made("shift", {width});
  const auto tokens = tensor<int>::iota({batch, length});
  const random_stream stream(1, "dropout");
  const auto mask = key_mask_of(std::vector<std::size_t>{length, length - 2}, length);
  const rotary_table<float> angles(length, width);
  const std::size_t count = allocations_of_third_step([&] {
    for (const auto& p : {table, qkv, out, up, down, scale, shift}) p.zero_grad();
    const auto x = embedding<float>(table, tokens);
    const auto projected = linear<float>(layer_norm<float>(x, scale, shift), qkv);
    const auto head = [&](std::size_t part) {
      return permute(reshape(slice(projected, -1, part * width, (part + 1) * width),
                             {batch, length, heads, width / heads}),
                     {0, 2, 1, 3});
    };
    const auto attention = softmax(matmul(head(0), transpose(head(1))) * 0.35F);
    const auto mixed =
        reshape(permute(matmul(dropout(attention, 0.1, stream), head(2)), {0, 2, 1, 3}),
                {batch, length, width});
    const auto fused = self_attention(
        projected,
        {.heads = heads, .causal = true, .key_mask = mask, .dropout = 0.1, .stream = stream});
    const auto turned = rotary(rms_norm<float>(dropout(fused, 0.1, stream), scale), angles);
    const auto y = x + linear<float>(swiglu(mixed, turned), out);
    const auto z = y + linear<float>(linear<float>(y, up, {}, activation::gelu), down);
    cross_entropy(linear<float>(concat({z, z}, 0), table), tensor<int>::zeros({2 * batch, length}))
        .backward();
  });
  BOOST_TEST(count == 0U);
}
