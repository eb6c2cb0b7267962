#include <parx/fsdp/unit_plan.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using parx::dtype;
using parx::unit_parameter;
using parx::unit_plan;

// Two layers of a matrix and a bias, the second frozen; an embedding and a head around them.
std::vector<unit_parameter> small_model() {
  return {{"words", {}, dtype::float32, {10, 3}},
          {"layers.0.weight", {}, dtype::float32, {5, 4}},
          {"layers.0.bias", {}, dtype::float32, {5}},
          {"layers.0.scale", {}, dtype::float64, {2}},
          {"layers.1.weight", {}, dtype::float32, {5, 4}, false},
          {"layers.1.bias", {}, dtype::float32, {5}, false},
          {"head", {}, dtype::float32, {0, 3}}};
}

bool names_both(const parx::usage_error& refused) {
  const std::string text = refused.what();
  return text.find("unit \"a\"") != std::string::npos &&
         text.find("unit \"b\"") != std::string::npos &&
         text.find("a.weight") != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_unit_has_one_flat_for_each_type_and_the_frozen_apart) {
  const unit_plan plan(small_model(), {"layers.0", "layers.1"}, 2);
  BOOST_TEST(plan.units().size() == 3);
  BOOST_TEST(plan.units()[0].flats.size() == 1);
  BOOST_TEST(plan.units()[1].flats.size() == 2);
  BOOST_TEST(plan.units()[2].flats.size() == 1);
  BOOST_TEST(!plan.flats()[plan.units()[2].flats[0]].is_trained);
  BOOST_TEST(plan.place(0).unit == 0);
  BOOST_TEST(plan.place(6).unit == 0);
  // 20 floats end in the middle of the second cache line; the bias begins with the third.
  BOOST_TEST(plan.place(1).offset == 0);
  BOOST_TEST(plan.place(2).offset == 32);
  // 37 floats: parts of two ranks end at cache lines.
  BOOST_TEST(plan.flats()[plan.place(1).flat].count == 37);
  BOOST_TEST(plan.flats()[plan.place(1).flat].part == 32);
}

BOOST_AUTO_TEST_CASE(the_parts_of_all_ranks_are_each_parameter_once) {
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 7U, 100U}) {
    const auto all = small_model();
    const unit_plan plan(all, {"layers.0", "layers.1"}, ranks);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::size_t next = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const parx::shard_spec part = plan.part(parx::shard_spec::whole(all[i].extents), i, rank);
        const parx::flat_parameter& flat = plan.flats()[plan.place(i).flat];
        BOOST_TEST(plan.part_offset(i, rank) + part.size() <= flat.part);
        if (part.size() == 0) continue;
        const parx::shard_run run = part.run_at(0);
        BOOST_TEST(run.global == next);
        BOOST_TEST(run.length == part.size());
        // The same element, counted from the start of the flat.
        BOOST_TEST(rank * flat.part + plan.part_offset(i, rank) == plan.place(i).offset + next);
        next += part.size();
      }
      BOOST_TEST(next == all[i].extents.size());
    }
  }
}

BOOST_AUTO_TEST_CASE(units_within_units_know_it) {
  const std::vector<unit_parameter> all{{"a.weight", {}, dtype::float32, {4}},
                                        {"a.b.weight", {}, dtype::float32, {4}},
                                        {"ab.weight", {}, dtype::float32, {4}}};
  const unit_plan plan(all, {"a", "a.b"}, 2);
  BOOST_TEST(plan.depth() == 2);
  BOOST_TEST(plan.units()[2].parent == 1);
  BOOST_TEST(plan.is_within(2, 1));
  BOOST_TEST(!plan.is_within(1, 2));
  BOOST_TEST(plan.place(1).unit == 2);
  BOOST_TEST(plan.place(2).unit == 0);  // "ab" is not within "a"
}

BOOST_AUTO_TEST_CASE(a_parameter_that_two_units_share_is_an_error_that_names_both) {
  const std::vector<unit_parameter> all{{"a.weight", {"b.weight"}, dtype::float32, {4}}};
  BOOST_CHECK_EXCEPTION(unit_plan(all, {"a", "b"}, 2), parx::usage_error, names_both);
  // In the unit around both, or in the root, it is allowed.
  BOOST_TEST(unit_plan(all, {"a"}, 2).place(0).unit == 0);
}

BOOST_AUTO_TEST_CASE(a_star_stands_for_one_part_of_a_path) {
  using parx::detail::matches_path;
  BOOST_TEST(matches_path("h.*", "h.3"));
  BOOST_TEST(matches_path("*.0.fc", "h.0.fc"));
  BOOST_TEST(!matches_path("h.*", "h.3.fc"));
  BOOST_TEST(!matches_path("h.*", "h"));
  BOOST_TEST(!matches_path("h", "h.3"));
  BOOST_TEST(matches_path("h.3", "h.3"));
}

BOOST_AUTO_TEST_CASE(modules_become_units_by_size_from_the_inside) {
  const std::vector<parx::detail::unit_candidate> modules{
      {""}, {"big"}, {"big.one"}, {"big.two"}, {"small"}};
  const auto bytes_of = [](const std::string& path) -> std::size_t {
    if (path.empty()) return 250;
    if (path == "big") return 200;
    return path == "big.one" ? 120 : path == "big.two" ? 80 : 50;
  };
  const auto at = [&](std::size_t bytes) {
    return parx::detail::chosen_units(parx::by_size(bytes), modules, bytes_of);
  };
  BOOST_TEST(at(100) == (std::vector<std::string>{"big.one"}), boost::test_tools::per_element());
  BOOST_TEST(at(80) == (std::vector<std::string>{"big.one", "big.two"}),
             boost::test_tools::per_element());
  BOOST_TEST(at(150) == (std::vector<std::string>{"big"}), boost::test_tools::per_element());
}
