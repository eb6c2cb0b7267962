// The search of generation_search.hpp, over small jobs with few faults each, and over nine
// mistakes.
#include "tools/parxrun/nodes/generation.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <utility>

#include "launch/generation_search.hpp"

namespace {

using generation_search::mutant;
using generation_search::searched;
using generation_search::setting;

std::size_t states_where_all_holds(const setting& how) {
  searched all(how);
  BOOST_TEST(all.run() == "");
  BOOST_TEST_MESSAGE(all.states() << " states");
  return all.states();
}

BOOST_AUTO_TEST_CASE(every_interleaving_of_two_agents_keeps_the_promises) {
  std::size_t states = 0;
  states += states_where_all_holds({.kills = 1, .crashes = 1, .cuts = 1});
  states += states_where_all_holds({.kills = 1, .cuts = 1, .coordinator_deaths = 1});
  states += states_where_all_holds({.ranks = 2, .kills = 2});
  states += states_where_all_holds({.kills = 1, .freezes = 1});
  states += states_where_all_holds({.cuts = 1, .tells = 1});
  BOOST_TEST(states >= 300'000U);
}

BOOST_AUTO_TEST_CASE(every_interleaving_of_three_agents_keeps_the_promises) {
  states_where_all_holds({.agents = 3, .least = 2, .crashes = 1});
}

BOOST_AUTO_TEST_CASE(every_interleaving_of_ranks_that_go_on_after_losses_keeps_the_promises) {
  constexpr auto go_on = parx::on_loss::go_on;
  states_where_all_holds({.kills = 2, .crashes = 1, .losses = go_on});
  states_where_all_holds({.kills = 1, .cuts = 1, .losses = go_on});
  states_where_all_holds({.agents = 3, .least = 2, .kills = 1, .losses = go_on});
  searched broken({.kills = 1, .losses = go_on, .broken = mutant::waits_for_failed});
  BOOST_TEST(broken.run() != "");
}

BOOST_AUTO_TEST_CASE(each_of_nine_mistakes_in_the_protocol_is_found) {
  for (const mutant each :
       {mutant::no_fence, mutant::orphans, mutant::counts_twice, mutant::waits_for_lost,
        mutant::node_names, mutant::forgets_joiners, mutant::no_end_without_coordinator}) {
    searched broken({.kills = 1, .crashes = 1, .cuts = 1, .broken = each});
    const std::string found = broken.run();
    BOOST_TEST(found != "", "mutant " << static_cast<int>(each) << " was not found");
    BOOST_TEST_MESSAGE("mutant " << static_cast<int>(each) << ", " << broken.states()
                                 << " states: " << found);
  }
  for (const auto& [each, coordinator_deaths] :
       {std::pair(mutant::second_coordinator, 1), std::pair(mutant::forgets_told, 0)}) {
    searched broken({.cuts = 1 - coordinator_deaths,
                     .coordinator_deaths = coordinator_deaths,
                     .tells = 1 - coordinator_deaths,
                     .broken = each});
    const std::string found = broken.run();
    BOOST_TEST(found != "");
    BOOST_TEST_MESSAGE(broken.states() << " states: " << found);
  }
}

}  // namespace
