#include <parx/mesh/layout.hpp>

#include <set>

#include <boost/test/unit_test.hpp>

using namespace parx;

namespace {

std::vector<int> one_host(int ranks) {
  return std::vector<int>(static_cast<std::size_t>(ranks), 0);
}

std::string refusal(std::vector<mesh_axis> axes, int ranks) {
  try {
    static_cast<void>(mesh_layout(std::move(axes), one_host(ranks)));
  } catch (const usage_error& refused) {
    return refused.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(coordinates_count_in_row_major_order) {
  const mesh_layout mesh({{"pp", 2}, {"dp", 3}, {"tp", 4}}, one_host(24));
  int rank = 0;
  for (int pp = 0; pp < 2; ++pp) {
    for (int dp = 0; dp < 3; ++dp) {
      for (int tp = 0; tp < 4; ++tp, ++rank) {
        BOOST_TEST(mesh.coordinate(rank, 0) == pp);
        BOOST_TEST(mesh.coordinate(rank, 1) == dp);
        BOOST_TEST(mesh.coordinate(rank, 2) == tp);
      }
    }
  }
}

// Megatron-LM's documented example for tp=2, pp=4 of 16 ranks in the order tp-dp-pp (fast to slow).
BOOST_AUTO_TEST_CASE(lines_are_the_groups_that_megatron_documents) {
  const mesh_layout mesh({{"pp", 4}, {"dp", 2}, {"tp", 2}}, one_host(16));
  const auto lines = [&](std::size_t axis) {
    std::set<std::vector<int>> all;
    for (int rank = 0; rank < 16; ++rank) all.insert(mesh.line(rank, std::span(&axis, 1)));
    return all;
  };
  const std::set<std::vector<int>> tensor{{0, 1}, {2, 3},   {4, 5},   {6, 7},
                                          {8, 9}, {10, 11}, {12, 13}, {14, 15}};
  const std::set<std::vector<int>> data{{0, 2}, {1, 3},  {4, 6},   {5, 7},
                                        {8, 10}, {9, 11}, {12, 14}, {13, 15}};
  const std::set<std::vector<int>> pipeline{
      {0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}};
  BOOST_TEST((lines(2) == tensor));
  BOOST_TEST((lines(1) == data));
  BOOST_TEST((lines(0) == pipeline));
}

BOOST_AUTO_TEST_CASE(lines_of_any_axes_partition_the_ranks) {
  for (const auto& sizes : {std::vector<int>{2, 3, 2}, {1, 4, 2}, {3, 1, 1}, {1, 1, 1}}) {
    const int world = sizes[0] * sizes[1] * sizes[2];
    std::vector<int> hosts;  // cyclic over three hosts
    for (int rank = 0; rank < world; ++rank) hosts.push_back(rank % 3);
    const mesh_layout mesh({{"a", sizes[0]}, {"b", sizes[1]}, {"c", sizes[2]}}, hosts);
    for (unsigned chosen = 0; chosen < 8; ++chosen) {
      std::vector<std::size_t> along;
      int expected = 1;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        if ((chosen >> axis & 1U) == 0) continue;
        along.push_back(axis);
        expected *= sizes[axis];
      }
      std::vector<int> seen(static_cast<std::size_t>(world), 0);
      for (int rank = 0; rank < world; ++rank) {
        const auto line = mesh.line(rank, along);
        BOOST_TEST(static_cast<int>(line.size()) == expected);
        BOOST_TEST(std::count(line.begin(), line.end(), rank) == 1);
        if (line.front() != rank) continue;
        for (const int member : line) {
          ++seen[static_cast<std::size_t>(member)];
          BOOST_TEST((mesh.line(member, along) == line));
        }
      }
      BOOST_TEST(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_innermost_axis_stays_inside_a_host_however_ranks_are_dealt) {
  const std::size_t tp = 1;
  const std::vector<int> cyclic{0, 1, 0, 1, 0, 1, 0, 1};
  const mesh_layout mesh({{"dp", 4}, {"tp", 2}}, cyclic);
  BOOST_TEST((mesh.line(0, std::span(&tp, 1)) == std::vector<int>{0, 2}));
  BOOST_TEST((mesh.line(7, std::span(&tp, 1)) == std::vector<int>{5, 7}));
  BOOST_TEST(!mesh.crosses_hosts(tp));
  const mesh_layout odd({{"dp", 3}, {"tp", 2}}, std::vector<int>{0, 0, 0, 1, 1, 1});
  BOOST_TEST(odd.crosses_hosts(tp));
}

BOOST_AUTO_TEST_CASE(one_axis_takes_the_remaining_ranks) {
  const mesh_layout mesh({{"dp", remaining_ranks}, {"tp", 2}}, one_host(6));
  BOOST_TEST(mesh.text() == "dp=3 x tp=2");
}

BOOST_AUTO_TEST_CASE(an_impossible_mesh_is_refused_with_the_reason) {
  BOOST_TEST(holds(refusal({{"dp", 4}, {"tp", 2}}, 6),
                   "needs exactly 8 ranks, and its group has 6"));
  BOOST_TEST(holds(refusal({{"dp", 2}, {"tp", 2}}, 6), "exactly 4 ranks, and its group has 6"));
  BOOST_TEST(holds(refusal({{"dp", -1}, {"tp", 4}}, 6), "a multiple of 4 ranks"));
  BOOST_TEST(holds(refusal({{"dp", -1}, {"tp", -1}}, 6), "only one axis"));
  BOOST_TEST(holds(refusal({{"dp", 6}, {"dp", 1}}, 6), "\"dp\" twice"));
  BOOST_TEST(holds(refusal({{"dp", 0}}, 6), "size 0"));
  BOOST_TEST(holds(refusal({{"", 6}}, 6), "needs a name"));
  BOOST_TEST(holds(refusal({}, 6), "needs an axis"));
  const mesh_layout mesh({{"dp", 6}}, one_host(6));
  BOOST_CHECK_EXCEPTION(static_cast<void>(mesh.axis("tp")), usage_error,
                        [](const usage_error& e) { return holds(e.what(), "its axes are dp=6"); });
}

BOOST_AUTO_TEST_CASE(lines_have_names_and_the_mesh_a_table) {
  const mesh_layout mesh({{"pp", 2}, {"cp", 1}, {"dp", 2}}, one_host(4));
  const std::size_t dp = 2;
  BOOST_TEST(mesh.line_name(2, std::span(&dp, 1)) == "dp at pp=1");
  const std::vector<std::size_t> both{0, 2};
  BOOST_TEST(mesh.line_name(2, both) == "pp+dp");
  BOOST_TEST(mesh.table() ==
             "pp=2 x cp=1 x dp=2 over 4 ranks\n"
             "rank  host   pp   cp   dp\n"
             "   0     0    0    0    0\n"
             "   1     0    0    0    1\n"
             "   2     0    1    0    0\n"
             "   3     0    1    0    1\n");
}
