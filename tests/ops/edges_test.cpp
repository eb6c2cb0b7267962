// What operations do beside the usual: 16-bit numbers, nothing and one element, wrong shapes,
// logits that are cut over ranks, weights of losses, threads, and recurrent layers beside
// PyTorch's.
#include <parx/core/call_context.hpp>
#include <parx/ops.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <messages.hpp>
#include <ops/golden.hpp>
#include <same_bits_by_threads.hpp>

using namespace parx;
using parx_test::difference;
using parx_test::grid;
using parx_test::mentions;
using parx_test::message_of;

namespace {

/// Ranks that cannot be asked anything.
class absent_ranks final : public rank_axis {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 2; }
  void all_reduce(const_buffer_view, buffer_view, reduction) override {}
  void all_gather(const_buffer_view, buffer_view, std::span<const std::size_t>) override {}
  void reduce_scatter(const_buffer_view, buffer_view, std::span<const std::size_t>) override {}
  void all_to_all(const_buffer_view, std::span<const std::size_t>, buffer_view,
                  std::span<const std::size_t>) override {}
  [[nodiscard]] std::unique_ptr<pending> start_sum(buffer_view) override { return nullptr; }
};

/// f of 16-bit numbers is f of the same numbers in double, rounded; its gradient likewise.
template <typename Half, typename F>
void check_half(const char* name, F f, double error) {
  const auto rounded = grid(0, {3, 4}).template cast<Half>();
  const variable<Half> x(rounded, gradient::wanted);
  const variable<double> exact(rounded.template cast<double>(), gradient::wanted);
  const auto y = f(x);
  const auto expected = f(exact);
  y.backward_from(tensor<Half>::ones(y.shape()));
  expected.backward_from(tensor<double>::ones(expected.shape()));
  const auto close = [&](const tensor<Half>& a, const tensor<double>& b) {
    BOOST_REQUIRE((a.shape() == b.shape()));
    const auto found = a.contiguous();
    const auto wanted = b.contiguous();
    for (std::size_t i = 0; i < b.size(); ++i) {
      const double away = std::abs(static_cast<double>(found.data()[i]) - wanted.data()[i]);
      BOOST_TEST(away <= error * (1 + std::abs(wanted.data()[i])), name);
    }
  };
  close(y.value(), expected.value());
  close(x.grad(), exact.grad());
}

void check_halves(double error) {
  const auto mask = gt(grid(0, {3, 4}), 0);
  const auto places = tensor<int>::from({1, 0, 2, 1}, {1, 4});
  const auto check = [&](const char* name, auto f) { check_half<bfloat16>(name, f, error); };
  check("exp", [](const auto& x) { return exp(x); });
  check("softplus", [](const auto& x) { return softplus(x); });
  check("clamp", [](const auto& x) { return clamp(x, -0.3, 0.3); });
  check("maximum", [](const auto& x) { return maximum(x, 0.125); });
  check("pow", [](const auto& x) { return pow(x, 2); });
  check("where", [=](const auto& x) { return where(mask, x, 0.5); });
  check("sum", [](const auto& x) { return sum(x, {1}); });
  check("mean", [](const auto& x) { return mean(x, {0}); });
  check("var", [](const auto& x) { return var(x, {1}); });
  check("norm", [](const auto& x) { return norm(x, 2, {1}); });
  check("logsumexp", [](const auto& x) { return logsumexp(x, {1}); });
  check("max", [](const auto& x) { return max(x, 1).values; });
  check("cumsum", [](const auto& x) { return cumsum(x, 1); });
  check("gather", [=](const auto& x) { return gather(x, 0, places); });
  check("sort", [](const auto& x) { return sort(x).values; });
  check("flip", [](const auto& x) { return flip(x, {1}); });
  check("pad", [](const auto& x) { return pad(x, {1, 2}); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_of_16_bits_are_computed_as_floats) {
  check_halves(0.008);
  check_half<float16>(
      "logsigmoid", [](const auto& x) { return logsigmoid(x); }, 0.001);
  check_half<float16>(
      "mean", [](const auto& x) { return mean(x, {0}); }, 0.001);
}

BOOST_AUTO_TEST_CASE(nothing_and_one_element_are_tensors_too) {
  const variable<double> none(tensor<double>::zeros({0, 3}), gradient::wanted);
  const variable<double> one(tensor<double>::full({1, 1}, 2), gradient::wanted);
  const auto index = tensor<int>::zeros({0, 3});
  const std::vector<std::pair<shape, std::function<variable<double>()>>> of_nothing{
      {{0, 3}, [&] { return exp(none); }},
      {{0, 3}, [&] { return maximum(none, one); }},
      {{0, 3}, [&] { return where(gt(none, 0), none, one); }},
      {{3}, [&] { return sum(none, {0}); }},
      {{0}, [&] { return logsumexp(none, {1}); }},
      {{3}, [&] { return logsumexp(none, {0}); }},
      {{0}, [&] { return norm(none, 2, {1}); }},
      {{3}, [&] { return prod(none, 0); }},
      {{0, 3}, [&] { return cumsum(none, 0); }},
      {{0}, [&] { return max(none, 1).values; }},
      {{0, 3}, [&] { return gather(none, 0, index); }},
      {{0, 3}, [&] { return index_select(none, 0, tensor<int>::zeros({0})); }},
      {{0}, [&] { return masked_select(none, gt(none, 0)); }},
      {{0, 3}, [&] { return sort(none, 1).values; }},
      {{0, 2}, [&] { return topk(none, 2, 1).values; }},
      {{0, 6},
       [&] {
         return concat({none, none}, 1);
       }},
      {{2, 0, 3},
       [&] {
         return stack({none, none});
       }},
      {{0, 6},
       [&] {
         return repeat(none, {2, 2});
       }},
      {{0, 3},
       [&] {
         return flip(none, {0, 1});
       }},
      {{0, 3}, [&] { return roll(none, 2, 0); }},
      {{2, 3},
       [&] {
         return pad(none, {0, 0, 1, 1});
       }},
      {{0, 3}, [&] { return triu(none); }},
      {{0, 0},
       [&] {
         return einsum("ij,kj->ik", {none, none});
       }},
  };
  for (std::size_t i = 0; i < of_nothing.size(); ++i) {
    const auto y = of_nothing[i].second();
    BOOST_TEST((y.shape() == of_nothing[i].first), i << ": " << to_string(y.shape()));
    sum(y).backward();
  }
  BOOST_TEST(nn::l1_loss(none, tensor<double>::zeros({0, 3})).mean() == 0.0);
  BOOST_TEST(chunk(none, 2).size() == 1U);

  BOOST_TEST(std::isnan(var(one).item()));
  BOOST_TEST(var(one, {0, 1}, 0).item() == 0.0);
  BOOST_TEST(stddev(one, {0, 1}, 0).item() == 0.0);
  BOOST_TEST(max(one).item() == 2.0);
  BOOST_TEST(norm(one).item() == 2.0);
  BOOST_TEST(sort(one).values.item() == 2.0);
  BOOST_TEST(exp(tensor<double>::scalar(0)).item() == 1.0);
  const variable<double> zero(tensor<double>::zeros({2}), gradient::wanted);
  norm(zero).backward();
  BOOST_TEST(zero.grad().at(0) == 0.0);  // not NaN
}

BOOST_AUTO_TEST_CASE(tensors_have_the_operations_without_gradients) {
  const auto x = grid(0, {2, 3});
  BOOST_TEST(same_bits(exp(x), exp(variable<double>(x)).value()));
  BOOST_TEST(same_bits(clamp(x, 0, 1), clamp(variable<double>(x), 0, 1).value()));
  BOOST_TEST(same_bits(cumsum(x, 1), cumsum(variable<double>(x), 1).value()));
  BOOST_TEST(same_bits(sort(x, 0).values, sort(variable<double>(x), 0).values.value()));
  BOOST_TEST(same_bits(flip(x, {1}), flip(variable<double>(x), {1}).value()));
  BOOST_TEST(same_bits(einsum("ij,kj->ik", x, x), matmul(x, x.transpose())));
  BOOST_TEST(same_bits(stack({x, x}, 1).select(1, 0), x));
  BOOST_TEST(same_bits((x + 1) * 2 - x / 2, map([](double v) { return (v + 1) * 2 - v / 2; }, x)));
  const auto numbers =
      tensor<std::int64_t>::from({7, -3, (std::int64_t{1} << 60) + 1, std::int64_t{1} << 60}, {4});
  BOOST_TEST(argsort(numbers).at(3) == 2);
  BOOST_TEST(argsort(numbers, -1, sort_order::descending).at(3) == 1);
  BOOST_TEST(count_nonzero(x > 0) + count_nonzero(x <= 0) == 6U);
  BOOST_TEST(any(lt(x, 0)));
  BOOST_TEST(!all(isnan(x)));
  BOOST_TEST(all(logical_or(isfinite(x), isinf(x))));
}

BOOST_AUTO_TEST_CASE(the_quotients_of_all_small_integers_are_those_of_wide_ones) {
  std::vector<std::int8_t> all;
  for (int i = -128; i < 128; ++i) all.push_back(static_cast<std::int8_t>(i));
  const auto x = tensor<std::int8_t>::from(all, {256, 1});
  all.erase(all.begin() + 128);  // 0
  const auto quotients = x / tensor<std::int8_t>::from(all, {1, 255});
  for (std::size_t i = 0; i < 256; ++i) {
    for (std::size_t j = 0; j < 255; ++j) {
      const int quotient = x.at(i, 0) / all[j];  // -128 / -1 is 128, and its 8 bits -128
      if (quotients.at(i, j) != static_cast<std::int8_t>(quotient)) BOOST_ERROR(i << " / " << j);
    }
  }
}

BOOST_AUTO_TEST_CASE(axes_are_one_number_or_several_in_braces_or_all) {
  const auto numbers = grid(0, {3, 4, 2});
  const variable<double> x(numbers);
  const auto same = [](const variable<double>& a, const variable<double>& b) {
    BOOST_TEST((a.shape() == b.shape()), to_string(a.shape()) << " " << to_string(b.shape()));
    const auto found = a.value().contiguous(), wanted = b.value().contiguous();
    BOOST_TEST(found.span() == wanted.span(), boost::test_tools::per_element());
  };
  const auto each_way = [&](auto f, const variable<double>& all) {
    same(f(axis_list(1)), f(axis_list{-2}));
    BOOST_TEST((f(axis_list(1)).shape() == shape{3, 2}));
    same(f(axis_list{0, 1, 2}), all);
    same(f(axis_list(std::vector{0, 1, 2})), f(axis_list::all()));
  };
  each_way([&](const axis_list& axes) { return sum(x, axes); }, sum(x));
  each_way([&](const axis_list& axes) { return sum(numbers, axes); }, sum(numbers));
  each_way([&](const axis_list& axes) { return mean(x, axes); }, mean(numbers));
  each_way([&](const axis_list& axes) { return var(x, axes); }, var(numbers));
  each_way([&](const axis_list& axes) { return stddev(x, axes); }, stddev(numbers));
  each_way([&](const axis_list& axes) { return logsumexp(x, axes); }, logsumexp(x, {0, 1, 2}));
  const auto norms = {0.0, 1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()};
  for (const double p : norms) {
    same(norm(x, p, 1), norm(numbers, p, {1}));
    BOOST_TEST(norm(x, p).item() == norm(x, p, {0, 1, 2}).item(),
               boost::test_tools::tolerance(1e-14));
    const auto kept = norm(x, p, axis_list::all(), reduced_axes::kept);
    BOOST_TEST((kept.shape() == shape{1, 1, 1}));
    BOOST_TEST(kept.item() == norm(x, p).item());
  }
  // Floats are reduced in packets, doubles one by one.
  const auto floats = grid(0, {3, 40}).cast<float>();
  const auto close = [](const tensor<float>& found, const tensor<double>& wanted) {
    const auto expected = wanted.contiguous();
    BOOST_REQUIRE((found.shape() == expected.shape()));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double x = expected.data()[i];
      BOOST_TEST(std::abs(found.contiguous().data()[i] - x) <= 1e-5 * (1 + std::abs(x)));
    }
  };
  const auto doubles = floats.cast<double>();
  close(sum(floats, 1), sum(doubles, 1));
  close(prod(floats, 1), prod(doubles, 1));
  close(max(floats, {1}), max(doubles, {1}));
  close(min(floats, {1}), min(doubles, {1}));
  close(var(floats, 1), var(doubles, 1));
  close(logsumexp(floats, 1), logsumexp(doubles, 1));
  for (const double p : norms) close(norm(floats, p, 1), norm(doubles, p, 1));
  same(flip(x, 1), flip(x, {1}));
  same(sum(x, {}), x);
  same(sum(x, {0}), sum(x, 0));  // 0 is an axis, no null pointer
  BOOST_TEST(mentions(message_of([&] { (void)sum(x, std::vector<int>(9)); }),
                      "a tensor has at most 8 axes, not 9"));
  BOOST_TEST(mentions(message_of([&] { (void)mean(x, 3); }), "axis 3 does not exist"));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_named) {
  const variable<double> x(tensor<double>::zeros({2, 3}));
  const auto numbers = [](std::initializer_list<int> all, const shape& s) {
    return tensor<int>::from(all, s);
  };
  const auto says = [](auto call, auto... parts) {
    const std::string said = message_of(call);
    BOOST_TEST(mentions(said, parts...), said);
  };
  says([&] { (void)gather(x, 0, numbers({2}, {1, 1})); }, "gather: index 2", "extent 2");
  says([&] { (void)gather(x, 0, numbers({0}, {1})); }, "(1)", "(2, 3)");
  says([&] { (void)index_select(x, 1, numbers({-1}, {1})); }, "index_select: index -1");
  says(
      [&] {
        (void)scatter_add(x, 0, numbers({0}, {1, 1}), x);
      },
      "scatter_add", "(1, 1)", "(2, 3)");
  says([&] { (void)one_hot(numbers({3}, {1}), 3); }, "one_hot: index 3");
  says([&] { (void)masked_select(x, tensor<bool>::zeros({3})); }, "(3)", "(2, 3)");
  says([&] { (void)topk(x, 4, 1); }, "topk", "4", "(2, 3)");
  says([&] { (void)max(x, 5); }, "axis 5");
  says([&] { (void)mean(x, {0, -2}); }, "axis -2 is given twice", "(2, 3)");
  says([&] { (void)reshape(x, {4, -1}); }, "(4, -1)");
  says([&] { (void)(numbers({1, 2}, {2}) / numbers({1, 0}, {2})); }, "divided by 0");
  says([&] { (void)max(variable<double>(tensor<double>::zeros({2, 0})), {1}); }, "(2, 0)");
  says([&] { (void)stack({x, variable<double>(tensor<double>::zeros({3}))}); }, "(2, 3)", "(3)");
  says([&] { (void)pad(x, {3, 0}, pad_mode::reflect); }, "pad", "3");
  says([&] { (void)split(x, std::vector<std::size_t>{1, 1}, 1); }, "split", "3");
  says(
      [&] {
        (void)einsum("ij,jk->ik", {x, x});
      },
      "einsum: \"ij,jk->ik\"", "another one called j has");
  says([&] { (void)einsum("ij->k", {x}); }, "einsum: \"ij->k\"", "arrow");
  says([&] { (void)einsum("ij,j", {x}); }, "einsum", "operands");
  says([&] { (void)conv1d(x, x); }, "conv1d", "(2, 3)");
  says([&] { (void)conv_transpose2d(x, x); }, "conv_transpose2d", "(2, 3)");
  says([&] { (void)group_norm(x, 2); }, "group_norm", "(2, 3)");
  says([&] { (void)nn::l1_loss(x, tensor<double>::zeros({2})); },
       "l1_loss at edges_test.cpp:", "(2)");
  says(
      [&] {
        (void)nn::nll_loss(x, numbers({0, 3}, {2}));
      },
      "nll_loss at edges_test.cpp:", "row 1");
}

BOOST_AUTO_TEST_CASE(logits_that_are_cut_over_ranks_are_refused_by_the_name_of_the_operation) {
  const auto values = tensor<double>::ones({2, 3});
  values.note_cut(std::make_shared<const cut_rows>(
      cut_rows{std::make_shared<absent_ranks>(), cut_result::logits, 3, 6, "output"}));
  const variable<double> x(values, gradient::wanted);
  const auto index = tensor<int>::zeros({2, 3});
  const auto targets = tensor<double>::zeros({2, 3});
  const std::vector<std::pair<std::string, std::function<void()>>> operations{
      {"exp", [&] { (void)exp(x); }},
      {"clamp", [&] { (void)clamp(x, 0, 1); }},
      {"softplus", [&] { (void)softplus(x); }},
      {"maximum", [&] { (void)maximum(x, 0); }},
      {"where", [&] { (void)where(gt(x, 0), x, 0); }},
      {"masked_fill", [&] { (void)masked_fill(x, gt(x, 0), 0); }},
      {"pow", [&] { (void)pow(x, 2); }},
      {"var", [&] { (void)var(x, {0}); }},
      {"max", [&] { (void)max(x, {1}); }},
      {"max", [&] { (void)max(x); }},
      {"argmax", [&] { (void)argmax(x, 0); }},
      {"logsumexp", [&] { (void)logsumexp(x, {1}); }},
      {"norm", [&] { (void)norm(x, 2, {0}); }},
      {"cumsum", [&] { (void)cumsum(x, 0); }},
      {"gather", [&] { (void)gather(x, 0, index); }},
      {"scatter_add", [&] { (void)scatter_add(x, 0, index, targets); }},
      {"index_select", [&] { (void)index_select(x, 0, index.select(0, 0)); }},
      {"sort", [&] { (void)sort(x); }},
      {"topk", [&] { (void)topk(x, 1); }},
      {"flip", [&] { (void)flip(x, {0}); }},
      {"flip", [&] { (void)flip(values, {0}); }},
      {"pad",
       [&] {
         (void)pad(x, {1, 1});
       }},
      {"tril", [&] { (void)tril(x); }},
      {"expand",
       [&] {
         (void)expand(x, {2, 2, 3});
       }},
      {"einsum", [&] { (void)einsum("ij->i", {x}); }},
      {"l1_loss", [&] { (void)nn::l1_loss(x, targets); }},
      {"nll_loss", [&] { (void)nn::nll_loss(x, index.select(1, 0)); }},
  };
  for (const auto& [name, call] : operations) {
    const std::string said = message_of(call);
    BOOST_TEST(mentions(said, "usage: ", name, "take parx::full_logits(logits)"),
               name << ": " << said);
  }
}

BOOST_AUTO_TEST_CASE(losses_count_by_the_weights_of_rows_and_add_up) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto values = tensor<double>::from({1, 2, nan, nan, 5, 7}, {3, 2});
  const variable<double> x(values, gradient::wanted);
  const auto zeros = tensor<double>::zeros({3, 2});
  const std::vector<float> weights{1, 0, 0.5F};
  const auto l1 = nn::l1_loss(x, zeros, {.row_weights = weights});
  BOOST_TEST(l1.count == 3.0);
  BOOST_TEST(l1.sum.item() == 9.0);
  l1.backward();
  BOOST_TEST(x.grad().at(1, 0) == 0.0);
  BOOST_TEST(x.grad().at(2, 1) == 0.5 / 3);
  const auto rows = nn::triplet_margin_loss(x, zeros, zeros, {.row_weights = weights});
  BOOST_TEST(rows.count == 1.5);
  BOOST_TEST(rows.mean() == 1.0);

  const auto both = l1 + 0.5 * nn::smooth_l1_loss(x, zeros, 1, {.row_weights = weights});
  BOOST_TEST(both.count == 3.0);
  BOOST_TEST(both.sum.item() == 9.0 + 0.5 * (0.5 + 1.5 + 0.5 * (4.5 + 6.5)));
  const auto row = nn::nll_loss(x, tensor<int>::from({0, 1, 1}, {3}), {.row_weights = weights});
  BOOST_TEST(row.count == 1.5);
  BOOST_TEST(row.sum.item() == -1 - 0.5 * 7);
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_number_of_threads) {
  const auto x = tensor<double>::empty({40, 30, 60});
  random_stream(1, "x").normal(x, 0.0, 1.0);
  const auto index = tensor<int>::full({70'000}, 7).reshape({70'000});
  const auto many = tensor<double>::empty({70'000, 4});
  random_stream(1, "many").normal(many, 0.0, 1.0);
  require_same_bits_by_threads("sin", [&] { return sin(x); });
  require_same_bits_by_threads("var", [&] { return var(x, {0, 2}); });
  require_same_bits_by_threads("logsumexp", [&] { return logsumexp(x, {1}); });
  require_same_bits_by_threads("cumsum", [&] { return cumsum(x, 1); });
  require_same_bits_by_threads("sort", [&] { return sort(x).values; });
  require_same_bits_by_threads("index_add", [&] {
    return index_add(tensor<double>::zeros({8, 4}), 0, index, many);
  });
  require_same_bits_by_threads("conv_transpose2d", [&] {
    const variable<double> w(tensor<double>::full({30, 2, 3, 3}, 0.25), gradient::wanted);
    const variable<double> images(x.reshape({40, 30, 6, 10}), gradient::wanted);
    sum(square(conv_transpose2d(images, w, {}, {.stride = 2}))).backward();
    return w.grad();
  });
}

BOOST_AUTO_TEST_CASE(recurrent_layers_are_pytorchs) {
  const auto compare = [](const std::string& name, auto& layers, const shape& s,
                          std::vector<shape> states) {
    std::size_t k = 0;
    layers.initialize(1);
    layers.for_each_parameter(
        [&](const std::string&, auto& p) { p.value().copy_from(grid(++k, p.shape())); });
    using V = variable<double>;
    const V x(grid(0, s), gradient::wanted);
    std::vector<V> first;
    for (std::size_t i = 0; i < states.size(); ++i) {
      first.emplace_back(grid(i + 2, states[i]), gradient::wanted);
    }
    std::vector<V> results;
    const auto keep = [&](const auto& result) {
      results = {result.output, result.h};
      if constexpr (requires { result.c; }) results.push_back(result.c);
    };
    if (first.empty()) keep(layers(x));
    else if (first.size() == 1) keep(layers(x, first[0]));
    else if constexpr (requires { layers.forward(x, x, x); }) keep(layers(x, first[0], first[1]));
    V total = sum(results[0] * grid(9, results[0].shape()));
    std::vector<V> rows;
    for (std::size_t i = 0; i < results.size(); ++i) {
      rows.push_back(reshape(results[i], {results[i].size()}));
      if (i > 0) total = total + sum(results[i] * grid(i + 2, results[i].shape()));
    }
    total.backward();
    BOOST_TEST(difference(name + ".y", concat(rows, 0).value()) < 1e-12, name);
    std::vector<tensor<double>> gradients{x.grad().reshape({x.size()})};
    for (const V& each : first) gradients.push_back(each.grad().reshape({each.size()}));
    BOOST_TEST(difference(name + ".dx", concat(gradients, 0)) < 1e-12, name);
    layers.for_each_parameter([&](const std::string& path, auto& p) {
      BOOST_TEST(difference(name + "." + path, p.grad()) < 1e-12, name << ", " << path);
    });
  };
  nn::gru<double> gru{3, 2, {.layers = 2}};
  compare("gru", gru, {3, 2, 3}, {{2, 2, 2}});
  nn::gru<double> both_ways{2, 2, {.bidirectional = true, .batch_first = true}};
  compare("gru_bidirectional", both_ways, {2, 3, 2}, {});
  nn::lstm<double> lstm{3, 2, {.layers = 2}};
  compare("lstm", lstm, {3, 2, 3}, {{2, 2, 2}, {2, 2, 2}});
  nn::lstm<double> without_bias{2, 2, {.bias = nn::bias::none, .bidirectional = true}};
  compare("lstm_bidirectional", without_bias, {3, 2, 2}, {});

  nn::gru_cell<double> cell{3, 2};
  nn::lstm_cell<double> other{3, 2};
  cell.initialize(1);
  other.initialize(1);
  const variable<double> x(grid(0, {2, 3})), h(grid(1, {2, 2}));
  BOOST_TEST((cell(x, h).shape() == shape{2, 2}));
  BOOST_TEST((other(x, lstm_state<double>{h, h}).c.shape() == shape{2, 2}));
}

BOOST_AUTO_TEST_CASE(a_model_of_these_layers_trains) {
  nn::sequential model{nn::conv1d<double>{2, 4, 3, {.padding = 1}}, nn::group_norm<double>{2, 4},
                       nn::apply{[](const auto& x) { return elu(upsample(x, 2)); }}, nn::flatten{},
                       nn::linear<double>{4 * 8, 1}};
  model.initialize(1);
  const auto x = grid(0, {5, 2, 4});
  const auto y = grid(1, {5, 1});
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    const auto loss = nn::smooth_l1_loss(model(x), y);
    loss.backward();
    last = loss.mean();
    if (step == 0) first = last;
    for (auto& p : model.parameters()) {
      map_into(
          p.value(), [](double v, double g) { return v - 0.1 * g; }, p.value(), p.grad());
      p.zero_grad();
    }
  }
  BOOST_TEST(last < first / 3);
}

BOOST_AUTO_TEST_CASE(what_refuses_its_operands_has_noted_its_caller_line) {
  const variable<double> a(tensor<double>::zeros({2, 3}));
  const variable<double> b(tensor<double>::zeros({2, 4}));
  const auto keys = tensor<double>::zeros({5});
  nn::linear<double> layer(3, 4);
  const auto names_line = [&](int line, const std::function<void()>& call) {
    const std::string text = with_last_call(message_of(call));
    const std::string end = " (at or after edges_test.cpp:" + std::to_string(line) + ")";
    BOOST_TEST((text.ends_with(end) || names_a_line(text)), text + " is not of line " + end);
  };
  names_line(__LINE__, [&] { (void)concat({a, b}); });
  names_line(__LINE__, [&] { (void)stack({a, b}); });
  names_line(__LINE__, [&] { (void)split(a, 9, 5); });
  names_line(__LINE__, [&] { (void)reshape(a, {7}); });
  names_line(__LINE__, [&] { (void)a.value().reshape({7}); });
  names_line(__LINE__, [&] { (void)a.value().slice(1, 2, 9); });
  names_line(__LINE__, [&] { (void)a.value().item(); });
  names_line(__LINE__, [&] { (void)maximum(a, b); });
  names_line(__LINE__, [&] { (void)where(keys < 1.0, a, b); });
  names_line(__LINE__, [&] { (void)einsum("ij,jk->ik", {a, b}); });
  names_line(__LINE__, [&] { (void)bmm(a, b); });
  names_line(__LINE__, [&] { (void)glu(a); });
  names_line(__LINE__, [&] { (void)topk(a, 9); });
  names_line(__LINE__, [&] { (void)max_pool2d(a, {.size = 2}); });
  names_line(__LINE__, [&] { (void)scaled_dot_product_attention(a, b, b); });
  names_line(__LINE__, [&] { (void)swiglu(a, b); });
  names_line(__LINE__, [&] { (void)sum(a, 7); });
  names_line(__LINE__, [&] { (void)softmax(a, 4); });
  names_line(__LINE__, [&] { (void)layer(b); });
}

BOOST_AUTO_TEST_CASE(what_has_no_value_is_refused) {
  const variable<double> a(tensor<double>::ones({2})), none;
  const tensor<double> b = tensor<double>::ones({2}), empty;
  const auto refuses = [&](const std::function<void()>& call) {
    BOOST_TEST(mentions(message_of(call), "not defined()"));
  };
  refuses([&] { (void)(none + a); });
  refuses([&] { (void)(a * none); });
  refuses([&] { (void)relu(none); });
  refuses([&] { (void)concat({a, none}); });
  refuses([&] { (void)reshape(none, {2}); });
  refuses([&] { (void)matmul(none, a); });
  refuses([&] { (void)sum(none); });
  refuses([&] { none.backward(); });
  refuses([&] { (void)(empty + b); });
  refuses([&] { (void)empty.clone(); });
}
