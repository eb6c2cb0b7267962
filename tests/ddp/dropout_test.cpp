// What dropout drops on the ranks of a ddp: a function of (seed, rank).
#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/nn.hpp>

namespace {

using parx::tensor;
using mask = std::vector<bool>;

constexpr std::size_t elements = 4096;
constexpr std::size_t heads = 4, positions = 32;  // heads * positions^2 = elements

/// Dropout of activations and of attention's probabilities, and a parameter for the ddp.
class noisy : public parx::nn::module<noisy> {
 public:
  auto forward(const parx::variable<float>& x) { return drop_(x) * scale_; }
  auto attend(const parx::variable<float>& q, const parx::variable<float>& v) {
    return attention_(q, q, v);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("drop", drop_);
    visit("attention", attention_);
    visit("scale", scale_, parx::nn::init::constant(1));
  }

 private:
  parx::nn::dropout drop_{0.5};
  parx::nn::dot_product_attention attention_{heads, {.dropout = 0.5}};
  parx::parameter<float> scale_{"scale", tensor<float>::ones({1})};
};

mask kept_of(const tensor<float>& y) {
  mask kept;
  for (const float value : y) kept.push_back(value != 0);
  return kept;
}
mask kept_by(noisy& model) { return kept_of(model(tensor<float>::ones({elements})).value()); }

/// Equal scores, and values that pick out one key each: the result is the matrix of probabilities
/// itself, without those dropped.
mask kept_by_attention(noisy& model) {
  const auto q = tensor<float>::zeros({1, positions, heads * positions});
  const auto v = tensor<float>::zeros({1, positions, heads * positions});
  for (std::size_t t = 0; t < positions; ++t) {
    for (std::size_t h = 0; h < heads; ++h) v.data()[(t * heads + h) * positions + t] = 1;
  }
  return kept_of(model.attend(q, v).value());
}

/// All pairs agree where chance lets them: of fair coins half are equal, within five deviations.
void require_independent(const std::vector<mask>& masks) {
  for (std::size_t a = 0; a < masks.size(); ++a) {
    BOOST_REQUIRE(masks[a].size() == elements);
    for (std::size_t b = a + 1; b < masks.size(); ++b) {
      double equal = 0;
      for (std::size_t i = 0; i < elements; ++i) equal += masks[a][i] == masks[b][i] ? 1 : 0;
      BOOST_TEST(std::abs(equal - elements / 2.0) < 5 * std::sqrt(elements / 4.0),
                 "masks " << a << " and " << b << " agree in " << equal << " of " << elements);
    }
  }
}

constexpr int world = 4;

}  // namespace

BOOST_AUTO_TEST_CASE(every_pair_of_ranks_and_of_seeds_drops_independently) {
  std::vector<mask> activations, attention;
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U, 42U}) {
    const auto of_ranks = on_ranks(world, [&](parx::process_group& group) {
      noisy model;
      model.initialize(seed);
      parx::ddp ddp{model, group};
      return std::pair{kept_by(model), kept_by_attention(model)};
    });
    for (const auto& [drop, attend] : of_ranks) {
      activations.push_back(drop);
      attention.push_back(attend);
    }
  }
  require_independent(activations);
  require_independent(attention);
}

BOOST_AUTO_TEST_CASE(a_model_that_is_seeded_after_its_ddp_was_made_drops_independently_too) {
  for (const bool anew : {false, true}) {
    require_independent(on_ranks(world, [&](parx::process_group& group) {
      noisy model;
      parx::ddp ddp{model, group};
      if (anew) model.initialize(7);
      else model.reseed(7);
      return kept_by(model);
    }));
  }
}

BOOST_AUTO_TEST_CASE(rank_0_and_a_world_of_one_drop_what_the_model_alone_does) {
  const auto under_ddp = [](parx::process_group& group) {
    noisy model;
    model.initialize(3);
    parx::ddp ddp{model, group};
    return kept_by(model);
  };
  noisy alone;
  alone.initialize(3);
  const mask expected = kept_by(alone);
  BOOST_TEST((on_ranks(1, under_ddp).at(0) == expected));
  BOOST_TEST((on_ranks(2, under_ddp).at(0) == expected));
}

BOOST_AUTO_TEST_CASE(the_same_seed_and_rank_drop_the_same_in_another_run) {
  const auto run = [] {
    return on_ranks(2, [](parx::process_group& group) {
      noisy model;
      model.initialize(3);
      parx::ddp ddp{model, group};
      (void)kept_by(model);
      model.reseed(11);  // as the trainer does at every step, also of a resumed run
      return kept_by(model);
    });
  };
  BOOST_TEST((run() == run()));
}

BOOST_AUTO_TEST_CASE(a_recomputed_layer_drops_the_same_on_every_rank) {
  const auto equal = on_ranks(3, [](parx::process_group& group) {
    parx::nn::sequential model{parx::nn::checkpointed{parx::nn::sequential{
        parx::nn::linear{8, 8}, parx::nn::dropout{0.5}}}};
    model.initialize(5);
    parx::ddp ddp{model, group};
    const parx::variable<float> x(tensor<float>::ones({16, 8}), parx::gradient::wanted);
    const auto y = ddp(x);
    const mask kept = kept_of(y.value());
    // The gradient of the bias counts, of each column, the elements that backward found kept.
    parx::sum(y).backward();
    tensor<float> bias_grad;
    model.for_each_parameter([&](const std::string& path, auto& p) {
      if (path == "0.0.bias") bias_grad = p.grad();
    });
    std::vector<float> counts(8);
    for (std::size_t i = 0; i < kept.size(); ++i) counts[i % 8] += kept[i] ? 2.0F : 0.0F;
    parx::all_reduce(group, counts);
    for (float& count : counts) count /= 3;
    return std::inner_product(counts.begin(), counts.end(), bias_grad.begin(), 0, std::plus<>(),
                              [](float a, float b) { return std::abs(a - b) < 1e-4F ? 1 : 0; });
  });
  BOOST_TEST((equal == std::vector<int>(3, 8)));
}
