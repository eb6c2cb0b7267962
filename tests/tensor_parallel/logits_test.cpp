// Logits that are cut by classes: losses and metrics are those of one process, full_logits() gives
// all classes, and every other operation throws.
#include <parx/autograd/ops/full_logits.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <messages.hpp>
#include <tensor_parallel/dense.hpp>

#include <parx/autograd/checkpoint.hpp>
#include <parx/nn.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

using parx::tensor;
using parx::variable;
using parx_test::mentions;
using parx_test::message_of;

namespace {

constexpr std::size_t rows = 6, width = 4, classes = 7;  // no number of ranks divides the classes
const std::vector<int> all_labels{0, 6, 3, 2, 6, 3};

tensor<int> labels() { return tensor<int>::from(all_labels, {rows}); }
variable<float> inputs() { return integers({rows, width}, 5); }

/// This rank's classes of `all`, as a layer makes them.
variable<float> cut(parx::process_group& group, const tensor<float>& all) {
  const auto here = chunk_of(all, 1, group.rank(), group.size()).clone();
  here.note_cut(std::make_shared<const parx::cut_rows>(parx::cut_rows{
      std::make_shared<parx::tp::axis>(group, parx::call_site::current()),
      parx::cut_result::logits, here.extent(-1), all.extent(-1), "output"}));
  return {here, parx::gradient::wanted};
}

/// "" or what each of the ranks said.
template <typename Check>
void require_on_ranks(Check check) {
  for (const int ranks : {2, 3}) {
    const auto said = on_ranks(
        ranks, [&](parx::process_group& group) -> std::string { return check(group); });
    for (const std::string& each : said) BOOST_TEST(each == "", ranks << " ranks: " << each);
  }
}

std::string difference(const tensor<std::int64_t>& found, const std::vector<std::int64_t>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (found.data()[i] != wanted[i])
      return fmt::format("row {}: {} for {}", i, found.data()[i], wanted[i]);
  }
  return found.size() == wanted.size() ? "" : "another number of rows";
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_loss_and_the_gradients_of_a_cut_output_are_those_of_one_process) {
  const std::vector<float> weights{1, 0.5F, 0, 2, 1, 1};
  using options = parx::cross_entropy_options;
  for (const options& how : {options{}, options{.ignore_index = 3},
                             options{.row_weights = weights, .label_smoothing = 0.2}}) {
    parx::nn::sequential one{parx::nn::linear{width, classes}};
    one.initialize(3);
    const auto expected = parx::nn::cross_entropy(one(inputs()), labels(), how);
    expected.backward();
    const auto gradient = one.parameters()[0].grad();
    require_on_ranks([&](parx::process_group& group) -> std::string {
      parx::nn::sequential model{parx::nn::linear{width, classes}};
      const auto tp = parx::parallelize(model, group, {{"0", parx::tp::head}});
      model.initialize(3);
      const auto logits = model(inputs());
      const auto loss = parx::nn::cross_entropy(logits, labels(), how);
      const auto parts =
          parx::vocab_cross_entropy(tp.axis(), logits, classes, labels(), how);
      if (loss.sum.item() != parts.sum.item()) return "other bits than those of the parts' loss";
      if (loss.count != expected.count) return "another count";
      if (!(std::abs(loss.mean() - expected.mean()) <= 1e-6F * expected.mean()))
        return fmt::format("{} for {}", loss.mean(), expected.mean());
      loss.backward();
      const auto here = model.parameters()[0].grad();
      const auto wanted = chunk_of(gradient, 0, group.rank(), group.size());
      for (std::size_t i = 0; i < here.size(); ++i) {
        if (!(std::abs(here.data()[i] - wanted.data()[i]) < 1e-6F))
          return fmt::format("gradient {}: {} for {}", i, here.data()[i], wanted.data()[i]);
      }
      return "";
    });
  }
}

BOOST_AUTO_TEST_CASE(the_largest_class_is_that_of_one_process_and_the_first_of_equal_ones) {
  auto all = integers({rows, classes}, 9, 2);
  for (const std::size_t c : {2U, 4U, 6U}) all.at(1, c) = 8;  // on different ranks
  for (std::size_t c = 0; c < classes; ++c) all.at(2, c) = -5;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t c : {3U, 4U, 5U}) all.at(4, c) = nan;  // the first of a part, or all of it
  all.at(5, 0) = nan;
  const auto of_one = parx::argmax(all);
  const std::vector<std::int64_t> wanted{of_one.begin(), of_one.end()};
  BOOST_TEST(wanted[1] == 2);
  BOOST_TEST(wanted[2] == 0);
  const auto hits = parx::nn::accuracy(all, labels(), {.ignore_index = 2});
  require_on_ranks([&](parx::process_group& group) -> std::string {
    const auto here = cut(group, all);
    const auto right = parx::nn::accuracy(here, labels(), {.ignore_index = 2});
    if (right.sum != hits.sum || right.count != hits.count) return "another accuracy";
    return difference(parx::argmax(here.value()), wanted);
  });
}

BOOST_AUTO_TEST_CASE(operations_on_single_values_and_views_of_rows_keep_the_cut) {
  const auto all = integers({rows, classes}, 4, 40);
  const auto of_one = parx::argmax(all);
  const std::vector<std::int64_t> wanted{of_one.begin(), of_one.end()};
  require_on_ranks([&](parx::process_group& group) -> std::string {
    const auto here = cut(group, all);
    const auto n = here.extent(-1);
    const std::vector<std::pair<const char*, variable<float>>> same{
        {"temperature", here / 0.7F},
        {"a number more", 3.0F + here},
        {"reshape", parx::reshape(parx::reshape(here, {2, rows / 2, n}), {rows, n})},
        {"unsqueeze", parx::select(parx::unsqueeze(here, 1), 1, 0)},
        {"permute", parx::permute(parx::permute(parx::reshape(here, {2, 3, n}), {1, 0, 2}),
                                  {1, 0, 2})},
        {"bfloat16", parx::cast<float>(parx::cast<parx::bfloat16>(here))},
        {"detach", here.detach()},
        {"a copy", here.value().clone()},
        {"map", parx::map([](float x) { return 2 * x; }, here.value())},
        {"recomputation", parx::checkpoint([](const auto& x) { return x * 2.0F; }, here)},
    };
    for (const auto& [name, each] : same) {
      const auto wrong = difference(
          parx::argmax(parx::reshape(each, {rows, n}).value()), wanted);
      if (!wrong.empty()) return fmt::format("{}: {}", name, wrong);
    }
    const auto last = parx::argmax(parx::slice(here, 0, rows - 1, rows).value());
    const auto low = parx::argmax(parx::cast<parx::bfloat16>(here).value());
    return last.item() == wanted[rows - 1] ? difference(low, wanted) : "the last row";
  });
}

BOOST_AUTO_TEST_CASE(whole_gathers_all_classes_and_its_gradient_is_of_the_own_ones) {
  const auto all = integers({rows, classes}, 6), upstream = integers({rows, classes}, 7);
  require_on_ranks([&](parx::process_group& group) -> std::string {
    const auto here = cut(group, all);
    const auto together = parx::full_logits(here);
    if (together.cut() != nullptr || !equal(together.value(), all)) return "the values";
    if (!equal(parx::full_logits(here.value()), all)) return "the values of a tensor";
    (void)(together * variable<float>(upstream));  // an operation that refuses cut logits
    together.backward_from(upstream);
    if (!equal(here.grad(), chunk_of(upstream, 1, group.rank(), group.size())))
      return "the gradient";
    const variable<float> uncut(all);
    return parx::full_logits(uncut).value().shares_memory_with(all) ? "" : "a copy of uncut logits";
  });
}

BOOST_AUTO_TEST_CASE(every_other_operation_says_to_take_whole_logits) {
  const auto all = integers({classes, classes}, 2);
  const auto told = on_ranks(2, [&](parx::process_group& group) {
    const auto x = cut(group, all);
    const std::size_t n = x.extent(-1);
    const variable<float> other = integers({classes, n}, 3);
    const parx::no_grad evaluating;
    const std::vector<std::pair<std::string, std::function<void()>>> operations{
        {"softmax at", [&] { (void)parx::softmax(x); }},
        {"log_softmax at", [&] { (void)parx::log_softmax(x); }},
        {"mse_loss at", [&] { (void)parx::nn::mse_loss(x, other); }},
        {"operator+", [&] { (void)(x + other); }},
        {"operator-", [&] { (void)(other - x); }},
        {"operator*", [&] { (void)(x * other); }},
        {"operator/", [&] { (void)(x / other); }},
        {"relu", [&] { (void)parx::relu(x); }},
        {"sigmoid", [&] { (void)parx::sigmoid(x); }},
        {"gelu", [&] { (void)parx::gelu(x); }},
        {"sum at", [&] { (void)parx::sum(x); }},
        {"mean at", [&] { (void)parx::mean(x, {-1}); }},
        {"sum at", [&] { (void)parx::sum(x, {0}); }},
        {"concat", [&] { (void)parx::concat<float>({other, x}, 0); }},
        {"matmul", [&] { (void)parx::matmul(x, parx::transpose(other)); }},
        {"linear", [&] { (void)parx::linear(x, other); }},
        {"transpose", [&] { (void)parx::transpose(x); }},
        {"slice", [&] { (void)parx::slice(x, 1, 0, 2); }},
        {"select", [&] { (void)parx::select(x, 1, 0); }},
        {"reshape", [&] { (void)parx::reshape(x, {n, classes}); }},
        {"softmax at", [&] { (void)parx::softmax(x, 0); }},
        {"sum at", [&] { (void)parx::sum(x.value(), {0}); }},
        {"max at", [&] { (void)parx::max(x.value(), {-1}); }},
        {"min at", [&] { (void)parx::min(x.value(), {-1}); }},
        {"argmax at", [&] { (void)parx::argmax(x.value().slice(1, 0, 2)); }},
        {"argmax at", [&] { (void)parx::argmax(x.value().transpose().contiguous()); }},
        {"layer_norm", [&] {
           (void)parx::layer_norm(x, variable<float>(tensor<float>::ones({n})),
                                  variable<float>(tensor<float>::zeros({n})));
         }},
    };
    std::vector<std::string> wrong;
    for (const auto& [name, call] : operations) {
      const std::string said = message_of(call);
      const bool is_sentence =
          mentions(said, "usage: ", name, ": these logits are cut by classes over 2 ranks",
                   ": take parx::full_logits(logits)");
      const bool has_site = mentions(said, "logits_test.cpp:");
      if (!is_sentence || !has_site) wrong.push_back(fmt::format("{}: {}", name, said));
    }
    return wrong;
  });
  for (const auto& of_rank : told) {
    for (const std::string& each : of_rank) BOOST_ERROR(each);
  }
}

BOOST_AUTO_TEST_CASE(a_column_that_the_plan_does_not_call_an_output_has_no_loss_and_no_metric) {
  const auto told = on_ranks(2, [&](parx::process_group& group) {
    parx::nn::sequential model{parx::nn::linear{width, classes}};
    const auto tp = parx::parallelize(model, group, {{"0", parx::tp::column}});
    model.initialize(1);
    const auto y = model(parx::reshape(inputs(), {2, 3, width}));
    const auto x = parx::reshape(y, {rows, y.extent(-1)});
    const auto target = tensor<float>::ones(x.shape());
    return std::vector{
        message_of([&] { (void)parx::nn::cross_entropy(x, labels()); }),
        message_of([&] { (void)parx::nn::accuracy(x, labels()); }),
        message_of([&] { (void)parx::argmax(x.value().cast<double>()); }),
        message_of([&] { (void)parx::nn::mse_loss(x, target); }),
        message_of([&] { (void)parx::log_softmax(x, 1); }),
        message_of([&] { (void)parx::full_logits(x); }),
        message_of([&] { (void)parx::sum(parx::relu(x) * target); })};
  });
  for (const auto& said : told) {
    for (std::size_t i = 0; i + 1 < said.size(); ++i) {
      BOOST_TEST(mentions(said[i], "usage: ", " at ", "logits_test.cpp:", " of the 7 values",
                          "\"0\" is cut by columns over 2 ranks", "parx::tp::head"),
                 said[i]);
    }
    BOOST_TEST(said.back() == "nothing was thrown");
  }
}

BOOST_AUTO_TEST_CASE(metrics_of_a_cut_model_are_those_of_one_process_also_after_the_model) {
  const auto target = tensor<float>::iota({rows, classes});
  const auto measure = [&](const variable<float>& logits) {
    return std::pair(parx::nn::accuracy(logits, labels()).sum,
                     parx::nn::mse_loss(parx::full_logits(logits), target).sum.item());
  };
  parx::nn::sequential one{parx::nn::linear{width, classes}};
  one.initialize(3);
  const auto expected = measure(one(inputs()));
  require_on_ranks([&](parx::process_group& group) -> std::string {
    const auto logits = [&] {
      parx::nn::sequential model{parx::nn::linear{width, classes}};
      const auto cut = parx::parallelize(model, group, {{"0", parx::tp::head}});
      model.initialize(3);
      const parx::no_grad evaluating;
      return model(inputs());
    }();
    return measure(logits) == expected ? "" : "other figures";
  });
}

BOOST_AUTO_TEST_CASE(a_tied_output_is_cut_by_classes_and_an_output_of_one_rank_is_not) {
  const std::vector<int> ids{1, 5, 0, 6, 6, 2};
  for (const int ranks : {1, 2, 3}) {
    const auto wrong = on_ranks(ranks, [&](parx::process_group& group) -> std::string {
      parx::nn::sequential model{parx::nn::embedding{classes, width}};
      const auto tp = parx::parallelize(model, group, {{"0", parx::tp::tied_vocab}});
      model.initialize(3);
      auto& table = model.template get<0>();
      const auto logits = table.multiply(inputs());
      const parx::cut_rows* const how = logits.cut();
      if (ranks == 1) return how == nullptr ? "" : "a cut of one rank";
      return how != nullptr && how->whole == classes && how->here == logits.extent(-1)
                 ? ""
                 : "no cut";
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", ranks << " ranks: " << each);
  }
}

BOOST_AUTO_TEST_CASE(memory_that_is_used_again_is_not_cut) {
  const auto all = integers({64, classes}, 2);
  const auto again = on_ranks(2, [&](parx::process_group& group) {
    std::size_t reused = 0;
    for (int i = 0; i < 10; ++i) {
      const void* before = nullptr;
      {
        const auto here = cut(group, all);
        before = here.value().data();
      }
      const auto fresh = tensor<float>::empty({64, parx::chunk_begin(classes, 2, 1)});
      if (fresh.cut() != nullptr) return std::string("it is cut");
      if (fresh.data() == before) ++reused;
    }
    return std::string(reused > 0 || group.rank() == 1 ? "" : "no memory was used again");
  });
  for (const std::string& each : again) BOOST_TEST(each == "", each);
}
