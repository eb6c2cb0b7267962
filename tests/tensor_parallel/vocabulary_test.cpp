// The loss of logits that are cut by classes, and the embedding that is cut by rows.
#include <parx/autograd/ops/vocabulary.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <tensor_parallel/dense.hpp>

#include <parx/autograd/ops/across.hpp>
#include <parx/autograd/ops/loss.hpp>
#include <parx/comm/collectives/barrier.hpp>
#include <parx/tensor_parallel/axis.hpp>

using parx::tensor;
using parx::variable;

namespace {

constexpr std::size_t rows = 6, classes = 11;

/// In double, row by row, by the definition: sum, count and the gradient of the sum.
struct definition {
  double sum = 0, count = 0;
  std::vector<double> gradient;

  definition(const tensor<float>& logits, const std::vector<int>& labels,
             const parx::cross_entropy_options& options)
      : gradient(logits.size()) {
    for (std::size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] == options.ignore_index) continue;
      const double weight =
          options.row_weights.empty() ? 1 : static_cast<double>(options.row_weights[row]);
      count += weight;
      double highest = -1e300, total = 0;
      for (std::size_t c = 0; c < classes; ++c)
        highest = std::max(highest, static_cast<double>(logits.at(row, c)));
      for (std::size_t c = 0; c < classes; ++c)
        total += std::exp(static_cast<double>(logits.at(row, c)) - highest);
      for (std::size_t c = 0; c < classes; ++c) {
        const double log_p = static_cast<double>(logits.at(row, c)) - highest - std::log(total);
        const bool hit = static_cast<std::size_t>(labels[row]) == c;
        const double target =
            (hit ? 1 - options.label_smoothing : 0) + options.label_smoothing / classes;
        sum -= weight * target * log_p;
        gradient[row * classes + c] = weight * (std::exp(log_p) - target);
      }
    }
  }
};

void require_definition(const tensor<float>& logits, const std::vector<int>& labels,
                        const parx::cross_entropy_options& options) {
  const definition expected(logits, labels, options);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto wrong = on_ranks(ranks, [&](parx::process_group& group) -> std::string {
      parx::tp::axis axis{group};
      const variable<float> here(chunk_of(logits, 1, group.rank(), ranks), parx::gradient::wanted);
      const auto loss = parx::vocab_cross_entropy(axis, here, classes,
                                                  tensor<int>::from(labels, {rows}), options);
      loss.backward({.of = parx::gradient_of::sum});
      if (loss.count != expected.count) return "the count";
      if (!(std::abs(static_cast<double>(loss.sum.item()) - expected.sum) <=
            1e-5 * std::max(1.0, std::abs(expected.sum)))) {
        return fmt::format("{} for {}", loss.sum.item(), expected.sum);
      }
      const std::size_t first = parx::chunk_begin(classes, ranks, group.rank());
      const auto gradient = here.grad();
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t c = 0; c < here.extent(1); ++c) {
          const double want = expected.gradient[row * classes + first + c];
          if (!(std::abs(static_cast<double>(gradient.at(row, c)) - want) < 1e-5))
            return fmt::format("the gradient of class {} of row {}", first + c, row);
        }
      }
      return "";
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", ranks << " ranks: " << each);
  }
}

const std::vector<int> labels{0, 10, 5, 3, 7, 3};

}  // namespace

BOOST_AUTO_TEST_CASE(the_loss_and_its_gradient_are_those_of_the_definition) {
  const std::vector<float> weights{1, 0.5F, 0, 2, 1, 1};
  const auto logits = integers({rows, classes}, 1, 4);
  require_definition(logits, labels, {});
  require_definition(logits, labels, {.ignore_index = 3});
  require_definition(logits, labels, {.row_weights = weights});
  require_definition(logits, labels, {.label_smoothing = 0.1});
  require_definition(logits, labels,
                     {.ignore_index = 3, .row_weights = weights, .label_smoothing = 0.3});
}

BOOST_AUTO_TEST_CASE(large_logits_on_one_rank_alone_do_not_overflow) {
  const auto logits = integers({rows, classes}, 2, 4);
  for (std::size_t row = 0; row < rows; ++row) logits.at(row, row) += 1e4F;
  require_definition(logits, labels, {});
}

BOOST_AUTO_TEST_CASE(a_label_outside_of_all_classes_is_refused_on_all_ranks) {
  const auto said = on_ranks(2, [&](parx::process_group& group) -> std::string {
    parx::tp::axis axis{group};
    const variable<float> here(chunk_of(integers({1, classes}, 1), 1, group.rank(), 2));
    try {
      (void)parx::vocab_cross_entropy(axis, here, classes, tensor<int>::from({11}, {1}));
    } catch (const parx::usage_error& refused) {
      return refused.what();
    }
    return "";
  });
  for (const std::string& each : said)
    BOOST_TEST(each.find("of row 0 is 11, but there are 11 classes") != std::string::npos, each);
}

BOOST_AUTO_TEST_CASE(ranks_with_other_batches_are_told_so_at_the_line_of_the_loss) {
  const auto said = on_ranks(3, [&](parx::process_group& group) -> std::string {
    parx::tp::axis axis{group};
    const variable<float> here(chunk_of(integers({2, classes}, 1), 1, group.rank(), 3));
    try {
      const int other = group.rank() == 1 ? 5 : 4;
      (void)parx::vocab_cross_entropy(axis, here, classes, tensor<int>::from({3, other}, {2}));
    } catch (const parx::error& refused) {
      return refused.what();
    }
    return "";
  });
  for (const std::string& each : said) {
    BOOST_TEST(each.find("vocabulary_test.cpp:") != std::string::npos, each);
    BOOST_TEST(each.find("have different labels. They need the same batch") != std::string::npos,
               each);
  }
}

BOOST_AUTO_TEST_CASE(it_sends_a_thousandth_of_a_gather_of_logits_and_is_faster) {
  struct cost {
    std::size_t bytes = 0;
    std::vector<double> seconds = {};
    [[nodiscard]] double median() {
      std::sort(seconds.begin(), seconds.end());
      return seconds[seconds.size() / 2];
    }
  };
  const auto costs = on_ranks(2, [&](parx::process_group& group) {
    parx::tp::axis axis{group};
    const std::size_t many = 30522, of_rows = 64;
    const variable<float> here(tensor<float>::zeros({of_rows, many / 2}), parx::gradient::wanted);
    const auto labels_here = tensor<int>::zeros({of_rows});
    std::pair<cost, cost> found;  // of the loss in parts, of the gathered one
    const auto measure = [&](cost& into, auto loss_of) {
      parx::barrier(group);
      const std::size_t before = group.bytes_sent();
      const auto start = std::chrono::steady_clock::now();
      loss_of().backward();
      into.seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      into.bytes = group.bytes_sent() - before;
    };
    for (int round = 0; round < 7; ++round) {
      measure(found.first,
              [&] { return parx::vocab_cross_entropy(axis, here, many, labels_here); });
      measure(found.second, [&] {
        using parx::across::whole_gradient;
        return parx::cross_entropy(
            parx::across::gather(axis, here, -1, whole_gradient::same, many), labels_here);
      });
    }
    return found;
  });
  for (auto [parts, gathered] : costs) {
    BOOST_TEST(gathered.bytes >= 64 * 15261 * 4U);
    BOOST_TEST(parts.bytes * 1000 <= gathered.bytes, parts.bytes);
    BOOST_TEST(parts.median() < gathered.median(),
               parts.median() << " s and " << gathered.median() << " s");
    BOOST_TEST_MESSAGE(gathered.bytes / parts.bytes << " times fewer bytes, "
                                                    << gathered.median() / parts.median()
                                                    << " times faster");
  }
}

BOOST_AUTO_TEST_CASE(rows_of_an_embedding_are_summed_and_their_gradients_added_where_they_lie) {
  const auto table = integers({7, 3}, 1), upstream = integers({5, 3}, 2);
  const std::vector<int> ids{6, 0, 3, 6, 4};
  for (const int ranks : {1, 2, 3, 4}) {
    const auto wrong = on_ranks(ranks, [&](parx::process_group& group) -> std::string {
      parx::tp::axis axis{group};
      const variable<float> here(chunk_of(table, 0, group.rank(), ranks), parx::gradient::wanted);
      const auto y = parx::across::sum(
          axis, parx::embedding_of_chunk(axis, here, 7, tensor<int>::from(ids, {5})),
          parx::across::whole_gradient::same);
      y.backward_from(upstream);
      auto gradient = tensor<float>::zeros({7, 3});
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t j = 0; j < 3; ++j) {
          const auto row = static_cast<std::size_t>(ids[i]);
          if (y.value().at(i, j) != table.at(row, j)) return "a value";
          gradient.at(row, j) += upstream.at(i, j);
        }
      }
      return equal(here.grad(), chunk_of(gradient, 0, group.rank(), ranks)) ? "" : "the gradient";
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", ranks << " ranks: " << each);
  }
}
