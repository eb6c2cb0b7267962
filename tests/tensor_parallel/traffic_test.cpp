// What a layer sends equals the formulas of the papers.
#include <parx/tensor_parallel/plans.hpp>

#include <cstddef>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <tensor_parallel/against_dense.hpp>

using namespace parx::models;
using parx::nn::between_cuts;

namespace {

constexpr std::size_t batch = 2, positions = 64, width = 32;
constexpr std::size_t frame = 64;  // the header of a message: one a collective between two

/// Bytes that a rank of two sends in a step of a GPT of so many layers.
std::size_t bytes_of(std::size_t layers, between_cuts between) {
  return on_ranks(2, [&](parx::process_group& group) {
    gpt<> model({.vocab_size = 37, .n_positions = positions, .n_embd = width, .n_layer = layers,
                 .n_head = 4});
    const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model, between));
    model.initialize(1);
    const std::size_t before = group.bytes_sent();
    const auto logits = model(tokens(37, positions, 7));
    parx::cross_entropy(logits, tokens(37, positions, 11)).backward();
    return group.bytes_sent() - before;
  })[0];
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_layer_sends_four_all_reduces_of_its_activations) {
  // Each of 2 (n - 1) / n = 1 times b s h numbers of 4 bytes.
  BOOST_TEST(bytes_of(3, between_cuts::whole) - bytes_of(2, between_cuts::whole) ==
             4 * batch * positions * width * 4 + 4 * frame);
}

BOOST_AUTO_TEST_CASE(sequence_parallel_sends_the_same_and_the_gradients_of_norms_and_biases) {
  // Two norms with scale and shift, and the biases of two row layers.
  BOOST_TEST(bytes_of(3, between_cuts::positions) - bytes_of(2, between_cuts::positions) ==
             4 * batch * positions * width * 4 + 6 * width * 4 + (8 + 6) * frame);
}
