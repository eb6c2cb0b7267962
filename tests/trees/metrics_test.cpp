// Figures are those of their definitions, and the same wherever the rows are.
#include <parx/trees/metrics.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <trees/generated.hpp>

namespace {

namespace trees = parx::trees;
using trees::table;

/// Labels, weights and queries of generated rows, with predictions of `width` values that have
/// ties.
struct judged_rows {
  table rows;
  std::vector<float> predictions;
};
judged_rows judged(std::int64_t count, std::size_t width) {
  judged_rows made{generated::mixed(count), {}};
  made.rows.group.push_back(0);
  for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
    double sum = 0;
    for (std::size_t c = 0; c < width; ++c) {
      const double p = std::floor(generated::uniform(row, 300 + c) * 50 + 1) / 52;
      made.predictions.push_back(static_cast<float>(p));
      sum += p;
    }
    if (width > 1) {
      for (std::size_t c = 0; c < width; ++c) {
        made.predictions[row * width + c] /= static_cast<float>(sum);
      }
      made.rows.label[row] =
          static_cast<float>(std::floor(generated::uniform(row, 400) * static_cast<double>(width)));
    }
    if (row % 7 == 6) made.rows.group.push_back(static_cast<std::int64_t>(row) + 1);
  }
  if (made.rows.group.back() != count) made.rows.group.push_back(count);
  return made;
}

/// Of rows first ... last - 1, which are whole queries.
judged_rows part(const judged_rows& all, std::int64_t first, std::int64_t last) {
  const auto width =
      static_cast<std::int64_t>(all.predictions.size()) / std::max<std::int64_t>(all.rows.rows, 1);
  judged_rows made{generated::part(all.rows, first, last), {}};
  made.predictions.assign(all.predictions.begin() + first * width,
                          all.predictions.begin() + last * width);
  for (const std::int64_t begin : all.rows.group) {
    if (begin >= first && begin <= last) made.rows.group.push_back(begin - first);
  }
  return made;
}

/// The figure over these numbers of ranks, one of which has no rows where there are three or more;
/// the bits are the same for all.
double figure(const trees::metric& of, const judged_rows& all) {
  std::set<std::uint64_t> bits;
  std::mutex lock;
  for (const int ranks : {1, 2, 5}) {
    const std::string failure =
        jobs::run(jobs::kind::inproc, ranks, [&](parx::process_group& world) {
          const auto cut = [&](int rank) -> std::int64_t {
            if (rank == ranks) return all.rows.rows;
            return std::min<std::int64_t>(all.rows.rows, (rank > 1 ? rank - 1 : rank) * 77);
          };
          const judged_rows mine = part(all, cut(world.rank()), cut(world.rank() + 1));
          const double value = of.value(world, mine.predictions, mine.rows);
          const std::lock_guard hold(lock);
          bits.insert(std::bit_cast<std::uint64_t>(value));
        });
    BOOST_TEST(failure == "");
  }
  BOOST_TEST(bits.size() == 1U, of.name << " has " << bits.size() << " values");
  return std::bit_cast<double>(*bits.begin());
}

void is_close(double found, double wanted) { BOOST_TEST(std::abs(found - wanted) <= 1e-9); }

/// sum of w loss / sum of w, by a loop.
template <typename Loss>
double mean(const judged_rows& all, const Loss& loss) {
  double sum = 0, weights = 0;
  for (std::size_t row = 0; row < all.rows.label.size(); ++row) {
    const auto weight = static_cast<double>(all.rows.weight[row]);
    sum += weight * loss(static_cast<double>(all.predictions[row]),
                         static_cast<double>(all.rows.label[row]));
    weights += weight;
  }
  return sum / weights;
}

}  // namespace

BOOST_AUTO_TEST_CASE(means_are_those_of_a_loop) {
  const judged_rows all = judged(500, 1);
  is_close(figure(trees::rmse(), all),
           std::sqrt(mean(all, [](double p, double y) { return (p - y) * (p - y); })));
  is_close(figure(trees::mae(), all),
           mean(all, [](double p, double y) { return std::abs(p - y); }));
  is_close(figure(trees::logloss(), all),
           mean(all, [](double p, double y) { return y == 1 ? -std::log(p) : -std::log(1 - p); }));
  is_close(figure(trees::find_metric("error@0.3"), all),
           mean(all, [](double p, double y) { return (p > 0.3) == (y == 1) ? 0.0 : 1.0; }));
  is_close(figure(trees::find_metric("quantile@0.9"), all),
           mean(all, [](double p, double y) { return y > p ? 0.9 * (y - p) : 0.1 * (p - y); }));
  is_close(figure(trees::poisson_nloglik(), all),
           mean(all, [](double p, double y) { return p - y * std::log(p); }));  // 0! = 1! = 1
}

BOOST_AUTO_TEST_CASE(classes_are_judged_by_their_probabilities) {
  const judged_rows all = judged(400, 3);
  double loss = 0, wrong = 0, weights = 0;
  for (std::size_t row = 0; row < 400; ++row) {
    const float* const p = all.predictions.data() + 3 * row;
    const auto label = static_cast<std::size_t>(all.rows.label[row]);
    const auto weight = static_cast<double>(all.rows.weight[row]);
    loss -= weight * std::log(static_cast<double>(p[label]));
    std::size_t best = p[1] > p[0] ? 1 : 0;
    if (p[2] > p[best]) best = 2;
    wrong += best == label ? 0 : weight;
    weights += weight;
  }
  is_close(figure(trees::mlogloss(), all), loss / weights);
  is_close(figure(trees::merror(), all), wrong / weights);
}

BOOST_AUTO_TEST_CASE(auc_is_the_count_of_all_pairs) {
  for (const bool weighted : {true, false}) {
    judged_rows all = judged(420, 1);
    if (!weighted) all.rows.weight.clear();
    double wins = 0, pairs = 0;
    for (std::size_t a = 0; a < 420; ++a) {
      for (std::size_t b = 0; b < 420; ++b) {
        if (all.rows.label[a] != 1.0F || all.rows.label[b] != 0.0F) continue;
        const double weight = weighted ? static_cast<double>(all.rows.weight[a]) *
                                             static_cast<double>(all.rows.weight[b])
                                       : 1.0;
        pairs += weight;
        if (all.predictions[a] > all.predictions[b]) wins += weight;
        if (all.predictions[a] == all.predictions[b]) wins += weight / 2;
      }
    }
    BOOST_TEST(std::abs(figure(trees::auc(), all) - wins / pairs) <= 1e-8);
  }
  judged_rows one_class = judged(50, 1);
  one_class.rows.label.assign(50, 1);
  BOOST_TEST(std::isnan(figure(trees::auc(), one_class)));
}

BOOST_AUTO_TEST_CASE(ndcg_is_known_for_a_known_order) {
  judged_rows all;
  all.rows.rows = 6;
  all.rows.label = {3, 0, 1, 0, 0, 0};
  all.rows.group = {0, 4, 6};  // the second query has nothing relevant, and counts 1
  all.predictions = {0.1F, 0.9F, 0.5F, 0.0F, 0.3F, 0.2F};  // in order: 0, 1, 3 relevant
  const double found = 1 / std::log2(3.0) + 7 / std::log2(4.0);
  const double best = 7 + 1 / std::log2(3.0);
  const std::string failure = jobs::run(jobs::kind::inproc, 1, [&](parx::process_group& world) {
    const auto close = [&](const char* name, double wanted) {
      const double value = trees::find_metric(name).value(world, all.predictions, all.rows);
      jobs::check(std::abs(value - (wanted + 1) / 2) < 1e-12, name);
    };
    close("ndcg", found / best);
    close("ndcg@1", 0);
    close("ndcg@2", 1 / std::log2(3.0) / best);
  });
  BOOST_TEST(failure == "");
  judged_rows many = judged(490, 1);
  for (float& label : many.rows.label) label *= 3;
  const double value = figure(trees::ndcg(3), many);
  BOOST_TEST((value > 0.2 && value < 0.9));
}

BOOST_AUTO_TEST_CASE(sums_are_exact_whatever_their_range) {
  const std::string failure = jobs::run(jobs::kind::inproc, 1, [](parx::process_group& world) {
    const double values[] = {0x1p40, 1, -0x1p40, 0x1p-15};
    const double sum = trees::exact_sum(
        world, 4, [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
    jobs::check(sum == 1 + 0x1p-15, "the sum");
    const double none = trees::exact_sum(world, 0, [](std::int64_t) { return 1.0; });
    jobs::check(none == 0, "no rows");
    const double bad = trees::exact_sum(
        world, 2, [](std::int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
    jobs::check(std::isnan(bad), "NaN");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(a_lambda_gradient_is_that_of_the_pairs) {
  // Two rows: one pair. p = 1 / (1 + exp(m_j - m_i)), change = |gain| |1 - 1 / log2(3)| / IDCG.
  table rows;
  rows.rows = 2;
  rows.label = {0, 1};
  rows.group = {0, 2};
  const std::vector<float> margins{0.5F, 0.25F};
  std::vector<trees::gradient> out(2);
  trees::lambdarank_gradients({}, margins, rows, out);
  const double p = 1 / (1 + std::exp(0.25));
  const double change = (1 - 1 / std::log2(3.0)) / (0.25 + 0.01);
  const double sum = 2 * (1 - p) * change;
  const double damped = std::log2(1 + sum) / sum;
  BOOST_TEST(std::abs(static_cast<double>(out[1].g) + (1 - p) * change * damped) < 1e-6);
  BOOST_TEST(out[0].g == -out[1].g);
  BOOST_TEST(std::abs(static_cast<double>(out[0].h) - 2 * p * (1 - p) * change * damped) < 1e-6);
  rows.label = {1, 1};
  trees::lambdarank_gradients({}, margins, rows, out);
  BOOST_TEST(out[0].g == 0);
}

BOOST_AUTO_TEST_CASE(a_metric_that_does_not_exist_is_named) {
  for (const char* const name : {"aucpr", "ndcg@0", "ndcg@1.5", "rmse@1", "error@x", ""}) {
    BOOST_CHECK_THROW((void)trees::find_metric(name), parx::usage_error);
  }
  BOOST_TEST(trees::default_metric(trees::logistic{}).name == "logloss");
  BOOST_TEST(trees::default_metric(trees::quantile{.alpha = 0.9}).name == "quantile");
}
