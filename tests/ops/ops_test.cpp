// Operations are PyTorch's: results and gradients, in double, of torch_ops.txt (which torch_ops.py
// has written), gradients that are those of finite differences, and NaN and infinities, in float,
// too. A new operation is a line here and one in torch_ops.py.
#include <parx/ops.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <parx/autograd/gradcheck.hpp>

#include <ops/golden.hpp>

using namespace parx;
using parx_test::difference;
using parx_test::grid;

namespace {

using V = variable<double>;
using Vs = std::vector<V>;

struct input {
  shape s;
  double shift = 0;
};

enum class smooth { yes, no };  // no: finite differences are others, as of floor()

struct entry {
  std::string name;
  std::vector<input> inputs;
  std::function<V(const Vs&)> f;
  smooth kind = smooth::yes;
};

void check(const entry& e) {
  std::vector<tensor<double>> inputs;
  for (std::size_t k = 0; k < e.inputs.size(); ++k) {
    const auto values = grid(k, e.inputs[k].s);
    for (double& each : values) each += e.inputs[k].shift;
    inputs.push_back(values);
  }
  Vs leaves;
  for (const auto& each : inputs) leaves.emplace_back(each.clone(), gradient::wanted);
  const V y = e.f(leaves);
  double worst = difference(e.name + ".y", y.value());
  BOOST_TEST(worst <= 1e-12, e.name);
  if (y.requires_grad()) y.backward_from(grid(9, y.shape()));
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const auto dx =
        leaves[k].grad().defined() ? leaves[k].grad() : tensor<double>::zeros(leaves[k].shape());
    const double of_gradient = difference(e.name + "." + std::to_string(k), dx);
    BOOST_TEST(of_gradient <= 1e-12, e.name << ", gradient " << k);
    worst = std::max(worst, of_gradient);
  }
  BOOST_TEST_MESSAGE(e.name << ": " << worst);  // shown with --log_level=message
  if (e.kind == smooth::no) return;
  const auto result = gradcheck(e.f, inputs);
  BOOST_TEST(result.passed, e.name << ": " << result.report);
}

tensor<double> special_values() {  // as in torch_ops.py
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double inf = std::numeric_limits<double>::infinity();
  return tensor<double>::from({nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 30.0, -30.0}, {11});
}

/// A function of single numbers: special values, too, and the same of tensors of floats.
template <typename F>
void check_unary(const char* name, F f, double shift = 0, smooth kind = smooth::yes) {
  check({name, {{{2, 8}, shift}}, [f](const Vs& x) { return f(x[0]); }, kind});
  const tensor<double> special = special_values();
  const std::string of_special = std::string(name) + ".special";
  BOOST_TEST(difference(of_special, f(V(special)).value()) <= 1e-12, name);
  BOOST_TEST(difference(of_special, f(special.cast<float>())) <= 2e-6, name << " in float");
  const auto usual = grid(0, {2, 8});
  for (double& each : usual) each += shift;
  BOOST_TEST(difference(std::string(name) + ".y", f(usual.cast<float>())) <= 2e-6,
             name << " in float");
  BOOST_TEST(f(V(tensor<double>::zeros({0, 3}))).size() == 0U);
}

tensor<bool> mask() { return tensor<bool>::from({true, false, true, false, false, true}, {2, 3}); }
tensor<std::int64_t> index() { return tensor<std::int64_t>::from({1, 0, 1, 0, 0, 1}, {2, 3}); }
tensor<int> picks() { return tensor<int>::from({2, 0, 2}, {3}); }
tensor<double> row() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return tensor<double>::from({1.0, nan, 3.0, nan, 2.0, 5.0, 5.0, -1.0}, {2, 4});
}
V mean_of(const weighted_loss<double>& loss) { return loss.sum * (1 / loss.count); }

}  // namespace

BOOST_AUTO_TEST_CASE(functions_of_single_numbers_are_pytorchs) {
#define UNARY(name, ...) \
  check_unary(           \
      #name, [](const auto& x) { return name(x); } __VA_OPT__(, ) __VA_ARGS__)
  UNARY(exp);
  UNARY(expm1);
  UNARY(sqrt, 0.75);
  UNARY(rsqrt, 0.75);
  UNARY(log, 0.75);
  UNARY(log2, 0.75);
  UNARY(log10, 0.75);
  UNARY(log1p);
  UNARY(square);
  UNARY(reciprocal, 0.75);
  UNARY(abs);
  UNARY(sign, 0.0, smooth::no);
  UNARY(floor, 0.0, smooth::no);
  UNARY(ceil, 0.0, smooth::no);
  UNARY(trunc, 0.0, smooth::no);
  UNARY(round, 0.0, smooth::no);
  UNARY(sin);
  UNARY(cos);
  UNARY(tan);
  UNARY(atan);
  UNARY(asin);
  UNARY(acos);
  UNARY(sinh);
  UNARY(cosh);
  UNARY(erf);
  UNARY(relu);
  UNARY(sigmoid);
  UNARY(tanh);
  UNARY(silu);
  UNARY(gelu);
  UNARY(softplus);
  UNARY(leaky_relu);
  UNARY(elu);
  UNARY(selu);
  UNARY(logsigmoid);
  UNARY(mish);
  UNARY(softsign);
#undef UNARY
  check_unary("clamp", [](const auto& x) { return clamp(x, -0.3, 0.2); });
  check_unary("clamp_min", [](const auto& x) { return clamp_min(x, -0.1); });
  check_unary("clamp_max", [](const auto& x) { return clamp_max(x, 0.1); });
  check_unary("softplus_2_10", [](const auto& x) { return softplus(x, 2, 10); });
  check_unary("leaky_relu_2", [](const auto& x) { return leaky_relu(x, 0.2); });
  check_unary("elu_2", [](const auto& x) { return elu(x, 0.2); });
  check_unary("celu", [](const auto& x) { return celu(x, 0.5); });
  check_unary("hardtanh", [](const auto& x) { return hardtanh(x, -0.2, 0.3); });
  check_unary("relu6", [](const auto& x) { return relu6(x * 20); });
  check_unary("hardsigmoid", [](const auto& x) { return hardsigmoid(x * 10); });
  check_unary("hardswish", [](const auto& x) { return hardswish(x * 10); });
  for (const auto& [name, exponent] : std::map<std::string, double>{{"2", 2},
                                                                    {"3", 3},
                                                                    {"half", 0.5},
                                                                    {"1", 1},
                                                                    {"0", 0},
                                                                    {"minus_half", -0.5},
                                                                    {"minus_1", -1},
                                                                    {"minus_2", -2},
                                                                    {"other", 1.7}}) {
    check_unary(("pow_" + name).c_str(), [e = exponent](const auto& x) { return pow(x, e); }, 0.75);
  }
}

BOOST_AUTO_TEST_CASE(functions_of_two_numbers_and_masks_are_pytorchs) {
  const shape s{2, 3};
  for (const entry& e : std::vector<entry>{
           {"maximum", {{s}, {s}}, [](const Vs& x) { return maximum(x[0], x[1]); }},
           {"maximum_rows", {{s}, {{3}}}, [](const Vs& x) { return maximum(x[0], x[1]); }},
           {"maximum_ties",
            {{s}},
            [](const Vs& x) { return maximum(x[0], x[0].value()); },
            smooth::no},
           {"minimum", {{{2, 1}}, {s}}, [](const Vs& x) { return minimum(x[0], x[1]); }},
           {"where", {{s}, {{3}}}, [](const Vs& x) { return where(mask(), x[0], x[1]); }},
           {"masked_fill", {{s}}, [](const Vs& x) { return masked_fill(x[0], mask(), 2.5); }},
           {"lerp", {{s}, {s}}, [](const Vs& x) { return lerp(x[0], x[1], 0.3); }},
           {"pow_of", {{s, 0.75}, {{3}}}, [](const Vs& x) { return pow(x[0], x[1]); }},
           {"pow_base", {{s}}, [](const Vs& x) { return pow(2, x[0]); }},
           {"prelu", {{{2, 3, 2}}, {{3}}}, [](const Vs& x) { return prelu(x[0], x[1]); }},
           {"glu", {{{2, 4, 2}}}, [](const Vs& x) { return glu(x[0], 1); }},
       }) {
    check(e);
  }
}

BOOST_AUTO_TEST_CASE(reductions_are_pytorchs) {
  const shape s{2, 3, 2}, m{3, 4};
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const entry& e : std::vector<entry>{
           {"sum",
            {{s}},
            [](const Vs& x) {
              return sum(x[0], {0, 2});
            }},
           {"mean", {{s}}, [](const Vs& x) { return mean(x[0], {1}); }},
           {"mean_all", {{{2, 3}}}, [](const Vs& x) { return mean(x[0]); }},
           {"var", {{m}}, [](const Vs& x) { return var(x[0], {1}); }},
           {"var_0",
            {{s}},
            [](const Vs& x) {
              return var(x[0], {0, 2}, 0);
            }},
           {"var_all", {{m}}, [](const Vs& x) { return var(x[0]); }},
           {"stddev", {{m}}, [](const Vs& x) { return stddev(x[0], {1}); }},
           {"max",
            {{s}},
            [](const Vs& x) {
              return max(x[0], {1, 2});
            }},
           {"max_ties", {{{2, 8}}}, [](const Vs& x) { return max(round(x[0]), {1}); }, smooth::no},
           {"min", {{s}}, [](const Vs& x) { return min(x[0], {0}); }},
           {"max_all", {{{2, 3}}}, [](const Vs& x) { return max(x[0]); }},
           {"min_all", {{{2, 3}}}, [](const Vs& x) { return min(x[0]); }},
           {"max_at", {{s}}, [](const Vs& x) { return max(x[0], 1).values; }},
           {"min_at", {{s}}, [](const Vs& x) { return min(x[0], -1).values; }},
           {"logsumexp",
            {{s}},
            [](const Vs& x) {
              return logsumexp(x[0], {0, 2});
            }},
           {"norm", {{m}}, [](const Vs& x) { return norm(x[0], 2, {1}); }},
           {"norm_1",
            {{m}},
            [](const Vs& x) {
              return norm(x[0], 1, {0, 1});
            }},
           {"norm_3", {{m}}, [](const Vs& x) { return norm(x[0], 3, {0}); }},
           {"norm_inf", {{m}}, [](const Vs& x) { return norm(x[0], inf, {1}); }},
           {"norm_0", {{m}}, [](const Vs& x) { return norm(x[0], 0, {1}); }, smooth::no},
           {"norm_all", {{m}}, [](const Vs& x) { return norm(x[0]); }},
           {"prod", {{s}}, [](const Vs& x) { return prod(x[0], 1); }},
           {"prod_zeros",
            {{s}},
            [](const Vs& x) { return prod(floor(x[0] * 4.0 + 0.1), 0) + prod(x[0], 0); }},
           {"cumsum", {{s}}, [](const Vs& x) { return cumsum(x[0], 1); }},
           {"cumsum_last", {{{2, 4}}}, [](const Vs& x) { return cumsum(x[0], -1); }},
           {"softmax", {{s}}, [](const Vs& x) { return softmax(x[0], 1); }},
           {"log_softmax", {{{2, 3}}}, [](const Vs& x) { return log_softmax(x[0]); }},
       }) {
    check(e);
  }
  BOOST_TEST(difference("argmax.y", argmax(row(), 1)) == 0.0);
  BOOST_TEST(difference("argmin.y", argmin(row(), 1)) == 0.0);
  BOOST_TEST(difference("amax_nan.y", max(row(), {1})) == 0.0);
  BOOST_TEST(difference("amin_nan.y", min(row(), {1})) == 0.0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto beyond = tensor<double>::from({inf, 1.0, -inf, -inf, -inf, 2.0, nan, 1.0}, {4, 2});
  BOOST_TEST(difference("logsumexp_inf.y", logsumexp(beyond, {1})) < 1e-12);
}

BOOST_AUTO_TEST_CASE(what_picks_and_puts_elements_is_pytorchs) {
  const shape s{2, 3}, m{3, 4};
  for (const entry& e : std::vector<entry>{
           {"gather", {{s}}, [](const Vs& x) { return gather(x[0], 0, index()); }},
           {"gather_1", {{m}}, [](const Vs& x) { return gather(x[0], 1, index()); }},
           {"scatter_add",
            {{s}, {s}},
            [](const Vs& x) { return scatter_add(x[0], 0, index(), x[1]); }},
           {"scatter_add_1",
            {{m}, {s}},
            [](const Vs& x) { return scatter_add(x[0], 1, index(), x[1]); }},
           {"scatter",
            {{s}, {s}},
            [](const Vs& x) {
              return scatter(x[0], 1, tensor<int>::from({1, 0, 2, 0, 2, 1}, {2, 3}), x[1]);
            }},
           {"index_select",
            {{{2, 3, 2}}},
            [](const Vs& x) { return index_select(x[0], 1, picks()); }},
           {"index_select_last",
            {{s}},
            [](const Vs& x) { return index_select(x[0], -1, picks()); }},
           {"index_add",
            {{{3, 2}}, {{3, 2}}},
            [](const Vs& x) { return index_add(x[0], 0, picks(), x[1]); }},
           {"masked_select", {{s}}, [](const Vs& x) { return masked_select(x[0], mask()); }},
           {"sort", {{{2, 5}}}, [](const Vs& x) { return sort(x[0], 1).values; }},
           {"sort_down",
            {{m}},
            [](const Vs& x) { return sort(x[0], 0, sort_order::descending).values; }},
           {"topk", {{{2, 5}}}, [](const Vs& x) { return topk(x[0], 2, 1).values; }},
           {"topk_smallest",
            {{m}},
            [](const Vs& x) { return topk(x[0], 2, 0, sort_order::ascending).values; }},
           {"concat",
            {{s}, {{2, 1}}},
            [](const Vs& x) {
              return concat({x[0], x[1]}, 1);
            }},
           {"stack",
            {{s}, {s}},
            [](const Vs& x) {
              return stack({x[0], x[1]}, -1);
            }},
           {"split", {{s}}, [](const Vs& x) { return split(x[0], 2, 1)[1] * 2.0; }},
           {"split_sizes",
            {{s}},
            [](const Vs& x) {
              return split(x[0], std::vector<std::size_t>{1, 2}, 1)[1];
            }},
           {"chunk", {{{5, 2}}}, [](const Vs& x) { return chunk(x[0], 2)[0]; }},
           {"unbind", {{s}}, [](const Vs& x) { return unbind(x[0], 1)[2]; }},
           {"expand",
            {{{2, 1}}},
            [](const Vs& x) {
              return expand(x[0], {4, 2, 3});
            }},
           {"movedim", {{{2, 3, 4}}}, [](const Vs& x) { return movedim(x[0], 0, 2); }},
           {"repeat",
            {{{2, 2}}},
            [](const Vs& x) {
              return repeat(x[0], {2, 1, 3});
            }},
           {"repeat_interleave",
            {{{2, 2}}},
            [](const Vs& x) { return repeat_interleave(x[0], 2, 0); }},
           {"flip",
            {{{2, 3, 2}}},
            [](const Vs& x) {
              return flip(x[0], {0, 2});
            }},
           {"roll", {{{2, 4}}}, [](const Vs& x) { return roll(x[0], 1, 1); }},
           {"roll_back", {{{3, 2}}}, [](const Vs& x) { return roll(x[0], -5, 0); }},
           {"pad",
            {{s}},
            [](const Vs& x) {
              return pad(x[0], {1, 2, 0, 1}, pad_mode::constant, 0.5);
            }},
           {"pad_reflect",
            {{{1, 2, 4}}},
            [](const Vs& x) {
              return pad(x[0], {2, 1}, pad_mode::reflect);
            }},
           {"pad_replicate",
            {{{1, 2, 4}}},
            [](const Vs& x) {
              return pad(x[0], {2, 1}, pad_mode::replicate);
            }},
           {"pad_circular",
            {{{1, 2, 4}}},
            [](const Vs& x) {
              return pad(x[0], {2, 1}, pad_mode::circular);
            }},
           {"triu", {{{2, 3, 4}}}, [](const Vs& x) { return triu(x[0], 1); }},
           {"tril", {{{3, 3}}}, [](const Vs& x) { return tril(x[0], -1); }},
       }) {
    check(e);
  }
  BOOST_TEST(difference("one_hot.y", one_hot(index(), 3)) == 0.0);
  BOOST_TEST(difference("sort_places.y", argsort(row(), 1)) == 0.0);
  BOOST_TEST(difference("sort_places_down.y", argsort(row(), 1, sort_order::descending)) == 0.0);
}

BOOST_AUTO_TEST_CASE(sums_of_products_are_pytorchs) {
  const auto sums = [](const char* equation) {
    return [=](const Vs& x) { return einsum(equation, std::span<const V>(x)); };
  };
  const shape s{2, 3};
  for (const entry& e : std::vector<entry>{
           {"einsum_matmul", {{s}, {{3, 4}}}, sums("ij,jk->ik")},
           {"einsum_batched", {{{2, 2, 3}}, {{2, 4, 3}}}, sums("bij,bkj->bik")},
           {"einsum_implicit", {{s}, {{4, 3}}}, sums("ba,ca")},
           {"einsum_heads", {{{2, 3, 2, 2}}, {{2, 4, 2, 2}}}, sums("bqhd,bkhd->bhqk")},
           {"einsum_outer", {{{2}}, {{3}}}, sums("i,j->ji")},
           {"einsum_trace", {{{3, 3}}}, sums("ii->")},
           {"einsum_diagonal", {{{3, 2, 3}}}, sums("iji->ji")},
           {"einsum_sum", {{s}}, sums("ij->j")},
           {"einsum_dots", {{{2, 3, 4}}, {{4, 2}}}, sums("...d,de->...e")},
           {"einsum_three", {{s}, {{3, 2}}, {{2, 4}}}, sums("ij,jk,kl->il")},
           {"einsum_left_sum", {{{2, 3, 2}}, {{3, 4}}}, sums("ijm,jk->k")},
           {"bmm", {{{2, 2, 3}}, {{2, 3, 2}}}, [](const Vs& x) { return bmm(x[0], x[1]); }},
           {"mv", {{s}, {{3}}}, [](const Vs& x) { return mv(x[0], x[1]); }},
           {"dot", {{{3}}, {{3}}}, [](const Vs& x) { return dot(x[0], x[1]); }},
           {"outer", {{{2}}, {{3}}}, [](const Vs& x) { return outer(x[0], x[1]); }},
       }) {
    check(e);
  }
}

BOOST_AUTO_TEST_CASE(convolutions_pools_and_norms_are_pytorchs) {
  for (const entry& e : std::vector<entry>{
           {"conv1d",
            {{{2, 2, 7}}, {{3, 2, 3}}, {{3}}},
            [](const Vs& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1}); }},
           {"conv1d_groups",
            {{{2, 4, 6}}, {{4, 2, 3}}},
            [](const Vs& x) {
              return conv1d(x[0], x[1], {}, {.padding = 2, .dilation = 2, .groups = 2});
            }},
           {"conv_transpose2d",
            {{{2, 2, 3, 4}}, {{2, 3, 3, 3}}, {{3}}},
            [](const Vs& x) {
              return conv_transpose2d(x[0], x[1], x[2],
                                      {.stride = 2, .padding = 1, .output_padding = 1});
            }},
           {"conv_transpose2d_groups",
            {{{2, 4, 2, 3}}, {{4, 1, 2, 3}}},
            [](const Vs& x) {
              return conv_transpose2d(x[0], x[1], {}, {.dilation = 2, .groups = 2});
            }},
           {"conv_transpose1d",
            {{{2, 2, 4}}, {{2, 3, 3}}, {{3}}},
            [](const Vs& x) {
              return conv_transpose1d(x[0], x[1], x[2],
                                      {.stride = 3, .padding = 1, .output_padding = 2});
            }},
           {"max_pool1d",
            {{{2, 2, 7}}},
            [](const Vs& x) { return max_pool1d(x[0], {.size = 3, .stride = 2, .padding = 1}); }},
           {"avg_pool1d",
            {{{2, 2, 5}}},
            [](const Vs& x) { return avg_pool1d(x[0], {.size = 2, .stride = 1}); }},
           {"adaptive_avg_pool1d",
            {{{2, 2, 7}}},
            [](const Vs& x) { return adaptive_avg_pool1d(x[0], 3); }},
           {"adaptive_max_pool1d",
            {{{2, 2, 7}}},
            [](const Vs& x) { return adaptive_max_pool1d(x[0], 3); },
            smooth::no},
           {"adaptive_max_pool2d",
            {{{1, 2, 5, 7}}},
            [](const Vs& x) { return adaptive_max_pool2d(x[0], 2, 3); },
            smooth::no},
           {"upsample", {{{1, 2, 2, 3}}}, [](const Vs& x) { return upsample(x[0], 2); }},
           {"upsample_to",
            {{{1, 2, 2, 3}}},
            [](const Vs& x) {
              return upsample(x[0], {3, 7});
            }},
           {"upsample_linear",
            {{{1, 2, 3}}},
            [](const Vs& x) { return upsample(x[0], 2, upsample_mode::linear); }},
           {"upsample_bilinear",
            {{{1, 2, 4, 3}}},
            [](const Vs& x) {
              return upsample(x[0], {3, 7}, upsample_mode::linear);
            }},
           {"upsample_corners",
            {{{1, 2, 2, 3}}},
            [](const Vs& x) {
              return upsample(x[0], {5, 4}, upsample_mode::linear_corners);
            }},
           {"pixel_shuffle", {{{1, 8, 2, 1}}}, [](const Vs& x) { return pixel_shuffle(x[0], 2); }},
           {"group_norm",
            {{{2, 4, 3}}, {{4}}, {{4}}},
            [](const Vs& x) { return group_norm(x[0], 2, x[1], x[2]); }},
           {"instance_norm", {{{2, 3, 4}}}, [](const Vs& x) { return group_norm(x[0], 3); }},
       }) {
    check(e);
  }
}

BOOST_AUTO_TEST_CASE(recurrent_cells_are_pytorchs) {
  for (const entry& e : std::vector<entry>{
           {"gru_cell",
            {{{3, 4}}, {{3, 2}}, {{6, 4}}, {{6, 2}}, {{6}}, {{6}}},
            [](const Vs& x) { return gru_cell(x[0], x[1], x[2], x[3], x[4], x[5]); }},
           {"gru_cell_without_bias",
            {{{3, 4}}, {{3, 2}}, {{6, 4}}, {{6, 2}}},
            [](const Vs& x) { return gru_cell(x[0], x[1], x[2], x[3]); }},
           {"lstm_cell",
            {{{3, 4}}, {{3, 2}}, {{3, 2}}, {{8, 4}}, {{8, 2}}, {{8}}, {{8}}},
            [](const Vs& x) {
              const auto next = lstm_cell(x[0], {x[1], x[2]}, x[3], x[4], x[5], x[6]);
              return concat({next.h, next.c}, 1);
            }}})
    check(e);
}

BOOST_AUTO_TEST_CASE(recurrent_layers_and_largest_pixels_have_the_gradients_of_differences) {
  const auto random = [](const char* name, const shape& s) {  // no two are equal
    const auto values = tensor<double>::empty(s);
    random_stream(1, name).normal(values, 0.0, 1.0);
    return values;
  };
  const auto passes = [](const char* name, const auto& f, const std::vector<tensor<double>>& x) {
    const auto result = gradcheck(f, x);
    BOOST_TEST(result.passed, name << ": " << result.report);
  };
  passes(
      "adaptive_max_pool2d", [](const Vs& x) { return adaptive_max_pool2d(x[0], 2, 3); },
      {random("images", {1, 2, 5, 7})});
  nn::gru<double> gru{3, 2, {.layers = 2, .bidirectional = true}};
  nn::lstm<double> lstm{3, 2, {.layers = 2, .batch_first = true}};
  gru.initialize(1);
  lstm.initialize(1);
  passes(
      "gru",
      [&](const Vs& x) {
        const auto made = gru(x[0], x[1]);
        return concat({reshape(made.output, {24}), reshape(made.h, {16})}, 0);
      },
      {random("x", {3, 2, 3}), random("h", {4, 2, 2})});
  passes(
      "lstm",
      [&](const Vs& x) {
        const auto made = lstm(x[0], x[1], x[2]);
        return concat({reshape(made.output, {12}), reshape(made.h, {8}), reshape(made.c, {8})}, 0);
      },
      {random("x", {2, 3, 3}), random("h", {2, 2, 2}), random("c", {2, 2, 2})});
}

BOOST_AUTO_TEST_CASE(losses_are_pytorchs) {
  const shape s{2, 3}, m{3, 4};
  const auto labels = [] { return tensor<int>::from({2, -100, 0}, {3}); };
  for (const entry& e : std::vector<entry>{
           {"l1_loss", {{s}, {s}}, [](const Vs& x) { return mean_of(nn::l1_loss(x[0], x[1])); }},
           {"smooth_l1_loss",
            {{s}, {s}},
            [](const Vs& x) { return mean_of(nn::smooth_l1_loss(x[0], x[1], 0.3)); }},
           {"huber_loss",
            {{s}, {s}},
            [](const Vs& x) { return mean_of(nn::huber_loss(x[0], x[1], 0.3)); }},
           {"binary_cross_entropy_with_logits",
            {{s}, {s, 0.75}},
            [](const Vs& x) { return mean_of(nn::binary_cross_entropy_with_logits(x[0], x[1])); }},
           {"binary_cross_entropy_pos_weight",
            {{s}, {s, 0.75}},
            [](const Vs& x) {
              return mean_of(nn::binary_cross_entropy_with_logits(x[0], x[1], {.pos_weight = 3}));
            }},
           {"binary_cross_entropy",
            {{s}, {s}},
            [](const Vs& x) {
              return mean_of(nn::binary_cross_entropy(sigmoid(x[0]), sigmoid(x[1])));
            }},
           {"nll_loss", {{m}}, [=](const Vs& x) { return mean_of(nn::nll_loss(x[0], labels())); }},
           {"nll_loss_weight",
            {{m}},
            [=](const Vs& x) {
              const std::vector<float> weights{0.5F, 1, 2, 0};
              return mean_of(nn::nll_loss(x[0], labels(), {.class_weights = weights}));
            }},
           {"kl_div",
            {{s}, {s, 0.75}},
            [](const Vs& x) { return mean_of(nn::kl_div(x[0], x[1])); }},
           {"kl_div_batch",
            {{s}, {s}},
            [](const Vs& x) {
              return mean_of(nn::kl_div(
                  x[0], x[1], {.target = nn::kl_target::logarithms, .mean = nn::kl_mean::rows}));
            }},
           {"cosine_embedding_loss",
            {{m}, {m}},
            [](const Vs& x) {
              const auto y = tensor<double>::from({1, -1, -1}, {3});
              return mean_of(nn::cosine_embedding_loss(x[0], x[1], y, {.margin = 0.1}));
            }},
           {"triplet_margin_loss",
            {{m}, {m}, {m}},
            [](const Vs& x) { return mean_of(nn::triplet_margin_loss(x[0], x[1], x[2])); }},
           {"margin_ranking_loss",
            {{{3}}, {{3}}},
            [](const Vs& x) {
              const auto y = tensor<double>::from({1, -1, 1}, {3});
              return mean_of(nn::margin_ranking_loss(x[0], x[1], y, {.margin = 0.2}));
            }},
           {"gaussian_nll_loss",
            {{s}, {s}, {s, 0.75}},
            [](const Vs& x) { return mean_of(nn::gaussian_nll_loss(x[0], x[1], x[2])); }},
       }) {
    check(e);
  }
}

BOOST_AUTO_TEST_CASE(comparisons_are_pytorchs) {
  const auto a = special_values(), b = flip(a, {0});
  const auto found = [](const tensor<bool>& mask) { return mask.cast<double>(); };
  BOOST_TEST(difference("lt.y", found(lt(a, b))) == 0);
  BOOST_TEST(difference("le.y", found(le(a, b))) == 0);
  BOOST_TEST(difference("gt.y", found(gt(a, b))) == 0);
  BOOST_TEST(difference("ge.y", found(ge(a, b))) == 0);
  BOOST_TEST(difference("eq.y", found(eq(a, b))) == 0);
  BOOST_TEST(difference("ne.y", found(ne(a, b))) == 0);
}
