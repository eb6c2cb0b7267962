// Which rank parxrun takes for the cause of a failure: all small worlds.
#include "tools/parxrun/failures/verdict.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace {

using parx::errc;
using parx::failure_record;
using parx::detail::judge;
using parx::detail::rank_end;

failure_record record_by(int rank, std::optional<errc> code, int blamed, std::string text = {}) {
  return {.code = code,
          .rank = rank,
          .blamed = blamed,
          .operation = "barrier",
          .group = "world",
          .text = std::move(text)};
}

/// Calls visit(digits) for all numbers of `length` digits below `base`.
template <typename Visit>
void for_all(int length, int base, Visit visit) {
  std::vector<int> digits(static_cast<std::size_t>(length), 0);
  for (;;) {
    visit(digits);
    auto next = digits.begin();
    while (next != digits.end() && ++*next == base) *next++ = 0;
    if (next == digits.end()) return;
  }
}

enum class fault { killed, throws, exits, throws_on_full_disk, leaves, stops };
constexpr fault all_faults[] = {fault::killed,              fault::throws, fault::exits,
                                fault::throws_on_full_disk, fault::leaves, fault::stops};

rank_end end_of_culprit(int rank, fault what) {
  switch (what) {
    case fault::killed: return {.rank = rank, .pid = 1, .status = {0, 9}};
    case fault::throws:
      return {.rank = rank,
              .pid = 1,
              .status = {1, 0},
              .record = record_by(rank, std::nullopt, -1)};
    case fault::exits: return {.rank = rank, .pid = 1, .status = {7, 0}};
    case fault::throws_on_full_disk: return {.rank = rank, .pid = 1, .status = {1, 0}};
    case fault::leaves: return {.rank = rank, .pid = 1, .status = {0, 0}};
    case fault::stops:
      return {.rank = rank, .pid = 1, .status = {0, 15}, .was_signalled = true};
  }
  return {};
}

/// What becomes of another rank.
constexpr int victims = 7;
rank_end end_of_victim(int rank, int culprit, int what) {
  const auto with = [&](std::optional<errc> code, parx::detail::exit_status status) {
    return rank_end{.rank = rank,
                    .pid = 1,
                    .status = status,
                    .record = record_by(rank, code, culprit)};
  };
  switch (what) {
    case 0: return with(errc::peer_lost, {1, 0});
    case 1: return with(errc::aborted, {1, 0});
    case 2: return with(errc::timeout, {1, 0});
    case 3: return with(errc::aborted, {0, 6});  // an exception that nobody catches
    case 4: return {.rank = rank, .pid = 1, .status = {1, 0}};  // could not write its record
    case 5: return {.rank = rank, .pid = 1, .status = {0, 15}, .was_signalled = true};
    default: return {.rank = rank, .pid = 1, .status = {0, 0}};  // was done before
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_culprit_is_named_in_every_world_in_which_a_record_blames_it) {
  int worlds = 0, wrong = 0;
  for (int size = 2; size <= 4; ++size) {
    for (int culprit = 0; culprit < size; ++culprit) {
      for (const fault what : all_faults) {
        for_all(size - 1, victims, [&](const std::vector<int>& others) {
          std::vector<rank_end> ends;
          for (int rank = 0; rank < size; ++rank) {
            ends.push_back(rank == culprit
                               ? end_of_culprit(rank, what)
                               : end_of_victim(rank, culprit,
                                               others[static_cast<std::size_t>(
                                                   rank - (rank > culprit ? 1 : 0))]));
          }
          const bool anybody_tells =
              std::any_of(others.begin(), others.end(), [](int each) { return each < 4; });
          const bool by_itself = what == fault::killed || what == fault::throws;
          if (!anybody_tells && !by_itself) return;
          std::vector<int> order;
          for (int rank = 0; rank < size; ++rank) order.push_back(rank);
          do {
            for (int rank = 0; rank < size; ++rank) {
              ends[static_cast<std::size_t>(order[static_cast<std::size_t>(rank)])].seconds = rank;
            }
            ++worlds;
            const auto found = judge(ends);
            const rank_end& cause = ends[found.cause];
            const bool is_cause = cause.rank == culprit && found.blamed == -1;
            const bool is_blamed = cause.rank != culprit && found.blamed == culprit;
            const bool fails = ends[static_cast<std::size_t>(culprit)].failed_by_itself();
            wrong += !cause.failed_by_itself() || (fails ? !is_cause : !is_blamed);
          } while (std::next_permutation(order.begin(), order.end()));
        });
      }
    }
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(worlds > 150'000);
}

BOOST_AUTO_TEST_CASE(the_verdict_depends_on_no_sentence_and_on_no_number_of_a_rank) {
  constexpr int size = 3;
  constexpr std::optional<errc> codes[] = {std::nullopt,   errc::io,        errc::timeout,
                                           errc::mismatch, errc::peer_lost, errc::aborted};
  constexpr int with_record = 6 * (size + 1);
  const auto end_of = [&](int rank, int kind, std::string text) -> rank_end {
    if (kind < with_record) {
      return {.rank = rank,
              .pid = 1,
              .status = {1, 0},
              .record = record_by(rank, codes[kind / (size + 1)], kind % (size + 1) - 1,
                                  std::move(text))};
    }
    if (kind == with_record) return {.rank = rank, .pid = 1, .status = {2, 0}};
    if (kind == with_record + 1) return {.rank = rank, .pid = 1, .status = {0, 11}};
    return {.rank = rank, .pid = 1, .status = {0, 0}};
  };
  const std::vector<int> renamed{2, 0, 1};
  int by_words = 0, by_number = 0, innocent = 0;
  for_all(size, with_record + 3, [&](const std::vector<int>& kinds) {
    std::vector<rank_end> ends, garbled, turned(size);
    for (int rank = 0; rank < size; ++rank) {
      const int kind = kinds[static_cast<std::size_t>(rank)];
      ends.push_back(end_of(rank, kind, "barrier failed: lost rank 1 (vm)"));
      garbled.push_back(end_of(rank, kind, "because another rank failed first: rank 2"));
      ends.back().seconds = garbled.back().seconds = rank;
      const auto to = static_cast<std::size_t>(renamed[static_cast<std::size_t>(rank)]);
      turned[to] = ends.back();
      turned[to].rank = renamed[static_cast<std::size_t>(rank)];
      if (auto& record = turned[to].record) {
        record->rank = turned[to].rank;
        if (record->blamed >= 0) record->blamed = renamed[static_cast<std::size_t>(record->blamed)];
      }
    }
    if (std::none_of(ends.begin(), ends.end(),
                     [](const rank_end& each) { return each.failed_by_itself(); })) {
      return;
    }
    const auto found = judge(ends), again = judge(garbled), other = judge(turned);
    by_words += found.cause != again.cause || found.blamed != again.blamed;
    by_number += static_cast<int>(other.cause) != renamed[found.cause];
    // A rank that says whose fault it is is not the cause beside one with a failure of its own.
    const auto has_own = [](const rank_end& each) {
      return each.failed_by_itself() &&
             (each.record ? each.record->kind() == parx::failure_kind::own
                          : each.status.signal != 0);
    };
    innocent += std::any_of(ends.begin(), ends.end(), has_own) && ends[found.cause].record &&
                ends[found.cause].record->kind() != parx::failure_kind::own;
  });
  BOOST_TEST(by_words == 0);
  BOOST_TEST(by_number == 0);
  BOOST_TEST(innocent == 0);
}

BOOST_AUTO_TEST_CASE(of_several_causes_the_blamed_the_killed_and_the_earlier_one_comes_first) {
  const rank_end own{.rank = 0, .pid = 1, .status = {2, 0}, .seconds = 1.2};
  const rank_end own_later{.rank = 1, .pid = 2, .status = {3, 0}, .seconds = 1.3};
  const rank_end killed{.rank = 2, .pid = 3, .status = {0, 9}, .seconds = 1.4};
  const rank_end told{
      .rank = 3, .pid = 4, .status = {0, 15}, .was_signalled = true, .seconds = 0.5};
  const rank_end well{.rank = 4, .pid = 5, .status = {0, 0}, .seconds = 0.1};
  const rank_end saved{.rank = 5, .pid = 6, .status = {75, 0}, .seconds = 0.1};
  const auto blaming = [](int rank, int blamed) {
    return rank_end{.rank = rank,
                    .pid = 9,
                    .status = {1, 0},
                    .seconds = 0.2,
                    .record = record_by(rank, errc::peer_lost, blamed)};
  };
  BOOST_TEST(judge({own, own_later}).cause == 0U);
  BOOST_TEST(judge({own_later, own, told, well, saved}).cause == 1U);
  BOOST_TEST(judge({own, own_later, killed}).cause == 2U);
  BOOST_TEST(judge({own, own_later, blaming(6, 1)}).cause == 1U);
  BOOST_TEST(judge({own, killed, blaming(6, 2)}).cause == 1U);
  BOOST_TEST(judge({well, told, blaming(6, 3)}).cause == 2U);
  BOOST_TEST(judge({well, told, blaming(6, 3)}).blamed == 3);
  BOOST_TEST(judge({well, blaming(6, 6)}).blamed == -1);  // of itself it says no more
}
