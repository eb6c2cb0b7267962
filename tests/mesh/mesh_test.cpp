#include <parx/mesh/mesh.hpp>

#include <array>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/threads.hpp>

#include <boost/test/unit_test.hpp>

using namespace parx;

namespace {

/// The sum of 1 << rank over a group of at most 8 ranks tells exactly which ranks took part.
int members(process_group& group, int world_rank) {
  std::array<int, 1> bits{1 << world_rank};
  all_reduce(group, bits);
  return bits[0];
}

}  // namespace

BOOST_AUTO_TEST_CASE(groups_along_the_axes_of_a_cube_join_the_right_ranks) {
  std::array<std::array<int, 5>, 8> seen{};
  run_threads(8, [&](process_group& world) {
    mesh<"pp", "dp", "tp"> cube{world, {2, remaining_ranks, 2}};
    auto& mine = seen[static_cast<std::size_t>(world.rank())];
    mine = {members(cube["pp"], world.rank()), members(cube["dp"], world.rank()),
            members(cube["tp"], world.rank()), members(cube.flatten({"tp", "dp"}), world.rank()),
            cube.rank("pp") * 100 + cube.rank("dp") * 10 + cube.rank("tp")};
  });
  for (int rank = 0; rank < 8; ++rank) {
    const auto& mine = seen[static_cast<std::size_t>(rank)];
    const int pp = rank / 4, dp = rank / 2 % 2, tp = rank % 2;
    BOOST_TEST(mine[0] == (1 << (dp * 2 + tp)) + (1 << (4 + dp * 2 + tp)));
    BOOST_TEST(mine[1] == (1 << (pp * 4 + tp)) + (1 << (pp * 4 + 2 + tp)));
    BOOST_TEST(mine[2] == (1 << (pp * 4 + dp * 2)) + (1 << (pp * 4 + dp * 2 + 1)));
    BOOST_TEST(mine[3] == (pp == 0 ? 0x0F : 0xF0));
    BOOST_TEST(mine[4] == pp * 100 + dp * 10 + tp);
  }
}

BOOST_AUTO_TEST_CASE(two_meshes_over_the_same_ranks_keep_apart_in_whatever_order_they_are_used) {
  std::array<int, 4> sums{};
  run_threads(4, [&](process_group& world) {
    mesh first{world, {{"dp", 2}, {"tp", 2}}};
    mesh second{world, {{"dp", 2}, {"tp", 2}}};
    std::array<int, 1> a{1}, b{10};
    // Made in other orders on other ranks; used in one.
    if (world.rank() % 2 == 0) static_cast<void>(first["tp"].size());
    static_cast<void>(second["tp"].size());
    all_reduce(first["tp"], a);
    all_reduce(second["tp"], b);
    sums[static_cast<std::size_t>(world.rank())] = a[0] * 100 + b[0];
  });
  for (const int sum : sums) BOOST_TEST(sum == 220);
}

BOOST_AUTO_TEST_CASE(a_group_is_called_by_its_axis_and_place_and_axes_of_size_1_are_free) {
  std::mutex lock;
  std::set<std::string> names;
  run_threads(4, [&](process_group& world) {
    mesh grid{world, {{"pp", 2}, {"cp", 1}, {"dp", 2}}};
    const std::string name = grid["dp"].name();
    const bool alone =
        grid["cp"].size() == 1 && members(grid["cp"], world.rank()) == 1 << world.rank();
    const bool same = &grid.flatten({"cp", "dp"}) == &grid["dp"];
    const std::lock_guard guard(lock);
    names.insert(name + (alone ? "" : " is not alone") + (same ? "" : " is not the same"));
  });
  BOOST_TEST((names == std::set<std::string>{"dp at pp=0", "dp at pp=1"}));
}

BOOST_AUTO_TEST_CASE(a_name_that_is_no_axis_is_refused_with_the_axes) {
  std::string refusal;
  run_threads(1, [&](process_group& world) {
    mesh grid{world, {{"dp", remaining_ranks}}};
    try {
      static_cast<void>(grid["tp"]);
    } catch (const usage_error& refused) {
      refusal = refused.what();
    }
  });
  BOOST_TEST(refusal.find("no axis \"tp\": its axes are dp=1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_mesh_that_does_not_fit_says_where_it_is_made) {
  std::string named, at_run_time;
  int line = 0;
  run_threads(1, [&](process_group& world) {
    try {
      line = __LINE__ + 1;
      mesh<"pp", "dp"> grid{world, {4, 2}};
    } catch (const usage_error& refused) {
      named = refused.what();
    }
    try {
      mesh grid{world, {{"dp", 3}}};
    } catch (const usage_error& refused) {
      at_run_time = refused.what();
    }
  });
  BOOST_TEST(named == "mesh at mesh_test.cpp:" + std::to_string(line) +
                          ": the mesh pp=4 x dp=2 needs exactly 8 ranks, and its group has 1");
  BOOST_TEST(at_run_time == "mesh at mesh_test.cpp:" + std::to_string(line + 5) +
                                ": the mesh dp=3 needs exactly 3 ranks, and its group has 1");
}
