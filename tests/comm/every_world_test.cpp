#include <comm/proof_cases.hpp>

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <vector>

// What schedule_proof claims, on every world of up to 64 ranks.

BOOST_AUTO_TEST_CASE(every_algorithm_is_exact_on_every_world) {
  using parx::operation;
  std::vector<int> worlds(64);
  std::iota(worlds.begin(), worlds.end(), 1);
  const auto all = {operation::all_reduce, operation::reduce_scatter, operation::all_gather,
                    operation::broadcast,  operation::reduce,         operation::gather,
                    operation::scatter,    operation::all_to_all,     operation::scan,
                    operation::exscan,     operation::barrier};
  BOOST_TEST(proof::prove_all(all, worlds) == "");
}
