// A table cut by rows: lookups see the values of all ranks' owners, and owners get the sum of all
// ranks' gradients. The oracle is one table in a loop over the ranks, in float, rank by rank.
#include <parx/reduction/rows/row_table.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "../comm/jobs.hpp"
#include "../messages.hpp"
#include "../sanitizers.hpp"
#include <parx/nn/embedding.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/train/usage.hpp>

using namespace parx;
using parx::detail::equal_row_blocks;
using parx::detail::row_table;

namespace {

constexpr std::size_t words = 203, width = 6;

float start_of(std::size_t row, std::size_t column) {
  return static_cast<float>(row * 7 % 31) * 0.37F + static_cast<float>(column);
}
/// What `rank` looks up in a step: with repetitions, and rows that other ranks have, too. Rank 1
/// has nothing in step 1.
std::vector<std::int64_t> tokens_of(int step, int rank) {
  std::vector<std::int64_t> tokens;
  if (step == 1 && rank == 1) return tokens;
  for (int i = 0; i < 12; ++i) {
    tokens.push_back(i % 4 == 0 ? 3 + step : (i * 31 + step * 17 + rank * 5) % 203);
  }
  return tokens;
}
/// The derivative by element `column` of the i-th lookup.
float slope(int step, int rank, std::size_t i, std::size_t column) {
  return 0.1F + static_cast<float>((static_cast<std::size_t>(step + 3 * rank) + i * 13 + column) %
                                   19) * 0.173F;
}

using rows_of_floats = std::map<std::size_t, std::array<float, width>>;

/// What a loop makes of it: each rank's rows in the order of its lookups, then rank by rank.
rows_of_floats expected_gradient(int step, int world, float factor) {
  rows_of_floats sums;
  for (int rank = 0; rank < world; ++rank) {
    rows_of_floats own;
    const auto tokens = tokens_of(step, rank);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      auto& row = own[static_cast<std::size_t>(tokens[i])];
      for (std::size_t c = 0; c < width; ++c) row[c] += slope(step, rank, i, c);
    }
    for (const auto& [row, values] : own) {
      const auto [sum, is_new] = sums.emplace(row, values);
      for (std::size_t c = 0; c < width && !is_new; ++c) sum->second[c] += values[c];
    }
  }
  for (auto& [row, values] : sums) {
    for (float& value : values) value *= factor;
  }
  return sums;
}

nn::embedding<> table_with_values(std::size_t rows = words, std::size_t columns = width) {
  nn::embedding<> table{rows, columns};
  table.materialize();
  float* value = table.weight().value().data();
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t c = 0; c < columns; ++c) *value++ = start_of(row, c);
  }
  return table;
}

/// A table and its part on this rank.
struct cut_table {
  cut_table(process_group& group, nn::embedding<>& table)
      : alone(group.subgroup(std::array{group.rank()})), part("table", table.weight().shape()),
        part_of(static_cast<std::size_t>(group.size())),
        rows({group, alone, group, numbered(part_of)}, table.weight(), part,
             call_site::current()) {}
  static const std::vector<std::size_t>& numbered(std::vector<std::size_t>& parts) {
    std::iota(parts.begin(), parts.end(), std::size_t{0});
    return parts;
  }

  process_group alone;
  parameter<float> part;
  std::vector<std::size_t> part_of;
  row_table<float> rows;
};

void backward_of(const variable<float>& looked_up, int step, int rank) {
  tensor<float> slopes = tensor<float>::empty(looked_up.shape());
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    slopes.data()[i] = slope(step, rank, i / width, i % width);
  }
  looked_up.backward_from(slopes);
}

void sum_up(cut_table& table, double factor, bool is_used = true) {
  table.rows.announce();
  table.rows.start();
  table.rows.finish(factor, is_used);
}

/// Runs body(group) on ranks that share memory and on ranks that do not.
template <typename Body>
void on_ranks(std::initializer_list<int> worlds, Body body) {
  for (const int world : worlds) {
    for (const jobs::kind network : {jobs::kind::inproc, jobs::kind::tcp}) {
      for (const auto& failure : jobs::run_collecting(network, world, body)) {
        BOOST_TEST(failure == "", jobs::name_of(network) << ", " << world << " ranks");
      }
    }
  }
}
void demand(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_are_cut_into_equal_parts_of_which_the_last_may_be_short_or_empty) {
  const equal_row_blocks seven{7, 3}, few{2, 4};
  BOOST_TEST((seven.begin(0) == 0 && seven.begin(1) == 3 && seven.begin(2) == 6 &&
              seven.begin(3) == 7));
  BOOST_TEST((few.begin(1) == 1 && few.begin(2) == 2 && few.begin(3) == 2 && few.begin(4) == 2));
  std::array<std::uint32_t, 3> counts{};
  seven.count_owned(std::array<std::size_t, 4>{0, 2, 3, 6}, counts);
  BOOST_TEST((counts == std::array<std::uint32_t, 3>{2, 1, 1}));
}

BOOST_AUTO_TEST_CASE(lookups_see_rank_0s_values_and_owners_get_the_sums_in_rank_order) {
  on_ranks({1, 2, 3, 4}, [](process_group& group) {
    auto table = table_with_values();
    if (group.rank() != 0) table.weight().value().fill(-1);
    cut_table cut(group, table);
    const std::size_t first = equal_row_blocks{words, static_cast<std::size_t>(group.size())}.begin(
        static_cast<std::size_t>(group.rank()));
    for (int step = 0; step < 4; ++step) {
      const auto tokens = tokens_of(step, group.rank());
      const auto seen = table(tensor<std::int64_t>::from(tokens, {tokens.size()}));
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        for (std::size_t c = 0; c < width; ++c) {
          demand(seen.value().at(i, c) == start_of(static_cast<std::size_t>(tokens[i]), c),
                 "a lookup saw another value");
        }
      }
      backward_of(seen, step, group.rank());
      sum_up(cut, 0.125);
      const auto all = expected_gradient(step, group.size(), 0.125F);
      const auto got = cut.part.row_grad();
      demand(got.has_value(), "the part has no rows");
      std::size_t next = 0;
      for (const auto& [row, values] : all) {
        if (row < first || row >= first + cut.part.shape()[0]) continue;
        demand(next < got->rows.size() && got->rows[next++] == row - first, "other rows");
        for (std::size_t c = 0; c < width; ++c) {
          demand(got->values.at(row - first, c) == values[c], "another sum");
        }
      }
      demand(next == got->rows.size(), "more rows than were used");
      demand(!table.weight().has_grad(), "the model's gradient is still there");
      cut.part.zero_grad();
    }
  });
}

BOOST_AUTO_TEST_CASE(an_optimizer_on_the_parts_ends_in_the_bits_of_one_on_the_whole) {
  on_ranks({2, 3}, [](process_group& group) {
    auto table = table_with_values(), reference = table_with_values();
    cut_table cut(group, table);
    optim::adamw<float> opt{std::vector{cut.part}, {.lr = 0.05F}};
    optim::adamw<float> alone{std::vector{reference.weight()}, {.lr = 0.05F}};
    for (int step = 0; step < 20; ++step) {
      const auto tokens = tokens_of(step, group.rank());
      const auto ids = tensor<std::int64_t>::from(tokens, {tokens.size()});
      const auto seen = table(ids);
      demand(std::equal(seen.value().begin(), seen.value().end(), reference(ids).value().begin()),
             "a lookup is behind");
      backward_of(seen, step, group.rank());
      sum_up(cut, 0.5);
      opt.step();
      std::vector<std::size_t> rows;
      const auto gradient = expected_gradient(step, group.size(), 0.5F);
      for (const auto& each : gradient) rows.push_back(each.first);
      const tensor<float> memory = reference.weight().add_rows(rows);
      for (const auto& [row, values] : gradient) {
        for (std::size_t c = 0; c < width; ++c) memory.at(row, c) = values[c];
      }
      alone.step();
    }
    const auto part = cut.part.spec();
    const tensor<float>&mine = cut.part.value(), &whole = reference.weight().value();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      demand(mine.data()[i] == whole.data()[part.run_at(i).global], "another value");
    }
  });
}

BOOST_AUTO_TEST_CASE(more_ranks_than_rows_and_tables_that_nobody_uses) {
  on_ranks({4}, [](process_group& group) {
    auto table = table_with_values(2);
    cut_table cut(group, table);
    demand(cut.part.shape()[0] == (group.rank() < 2 ? 1U : 0U), "rows are cut otherwise");
    const auto seen = table(tensor<std::int64_t>::from({1, 0, 1}, {3}));
    demand(seen.value().at(2, 3) == start_of(1, 3), "a lookup saw another value");
    backward_of(seen, 0, group.rank());
    sum_up(cut, 1);
    demand(cut.part.has_grad(), "a rank without rows has no gradient");
    cut.part.zero_grad();
    sum_up(cut, 1, false);
    demand(!cut.part.has_grad(), "there is a gradient that no rank has made");
  });
}

BOOST_AUTO_TEST_CASE(an_operation_other_than_a_lookup_is_refused_with_the_tables_name) {
  on_ranks({2}, [](process_group& group) {
    auto table = table_with_values();
    table.weight().rename("words.weight");
    cut_table cut(group, table);
    const std::string said =
        parx_test::message_of([&] { static_cast<void>(table.weight().value()); });
    demand(said.find("usage: all of table \"words.weight\" is read: ") == 0, said);
    demand(said.find("nn::embedding_use::whole") != std::string::npos, said);
  });
}

BOOST_AUTO_TEST_CASE(rows_of_the_batch_are_what_is_on_the_wire) {
  // 1000 rows of 256 bytes. Each rank looks up 20 rows, of which the other one owns 12.
  std::array<std::size_t, 2> fetched{}, summed{};
  const auto failures = jobs::run_collecting(jobs::kind::tcp, 2, [&](process_group& group) {
    auto table = table_with_values(1000, 64);
    cut_table cut(group, table);
    const auto rank = static_cast<std::size_t>(group.rank());
    std::vector<std::int64_t> tokens;
    for (std::int64_t i = 0; i < 20; ++i)
      tokens.push_back(i * 3 + ((i < 12) != (rank == 1) ? 500 : 0));
    const auto ids = tensor<std::int64_t>::from(tokens, {20});
    barrier(group);
    const std::size_t before = group.bytes_sent();
    const auto seen = table(ids);
    fetched[rank] = group.bytes_sent() - before;
    seen.backward_from(tensor<float>::full({20, 64}, 1));
    const std::size_t between = group.bytes_sent();
    sum_up(cut, 1);
    summed[rank] = group.bytes_sent() - between;
  });
  for (const auto& failure : failures) BOOST_TEST(failure == "");
  // A number is 4 bytes; a rank asks 12 and answers 12.
  const std::size_t values = 12 * 4 + 12 * 256, gradients = 12 * (4 + 256);
  for (const std::size_t rank : {0U, 1U}) {
    BOOST_TEST_MESSAGE("fetched " << fetched[rank] << ", summed " << summed[rank]);
    BOOST_TEST(fetched[rank] >= values);
    BOOST_TEST(fetched[rank] < values + 400);
    BOOST_TEST(summed[rank] >= gradients);
    BOOST_TEST(summed[rank] < gradients + 300);
  }
}

BOOST_AUTO_TEST_CASE(a_table_takes_the_memory_of_its_part_and_of_a_few_batches) {
  // 160 MiB of values and as much of gradients on each of 4 ranks, of which each owns a quarter.
  // All rows are used in turn.
  constexpr std::size_t rows = 40'960, columns = 1024;
  constexpr double MiB = 1 << 20;
  std::atomic<double> most = 0;
  const double before = train::usage_now().resident_bytes;
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 4, [&](process_group& group) {
    nn::embedding<> table{rows, columns};
    cut_table cut(group, table);
    cut.part.value().fill(0.5F);
    for (std::size_t step = 0; step < 10; ++step) {
      std::vector<std::int64_t> tokens;
      for (std::size_t i = 0; i < 1024; ++i) {
        tokens.push_back(static_cast<std::int64_t>((i * 10 + step) * 4) + group.rank());
      }
      const auto seen = table(tensor<std::int64_t>::from(tokens, {tokens.size()}));
      demand(seen.value().at(77, 5) == 0.5F, "a lookup saw another value");
      seen.backward_from(tensor<float>::full({1024, columns}, 1));
      sum_up(cut, 1);
      cut.part.zero_grad();
      const double now = train::usage_now().resident_bytes - before;
      if (group.rank() == 0) most = std::max(most.load(), now);
    }
  });
  for (const auto& failure : failures) BOOST_TEST(failure == "");
  // The parts and their gradients 320 MiB; a rank's batches 32 MiB of pages and what is in flight.
  BOOST_TEST_MESSAGE(most / MiB << " MiB");
  if constexpr (parx_test::sanitized) return;  // which takes memory of its own
  BOOST_TEST(most < (320 + 4 * 100) * MiB);
  BOOST_TEST(most < 4 * 320 * MiB / 1.5);
}
