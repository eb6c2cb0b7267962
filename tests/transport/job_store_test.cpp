// A store that was once too slow is left alone for a while, or until it is known to answer. What
// the ranks of a job leave in it for each other.
#include <parx/transport/detail/job_store.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/store/hash.hpp>
#include <parx/transport/job.hpp>

namespace {

using parx::detail::job_store;

void does_not_answer(parx::store&, const parx::deadline&) {
  parx::throw_error(parx::errc::timeout, "no answer");
}
void answers(parx::store&, const parx::deadline&) {}
void fails(parx::store&, const parx::deadline&) { parx::throw_error(parx::errc::protocol, "no"); }

}  // namespace

BOOST_AUTO_TEST_CASE(a_store_that_was_too_slow_is_not_asked_again_until_it_answers_somebody) {
  job_store all(std::make_shared<parx::hash_store>());
  BOOST_TEST(!all.is_silent());
  BOOST_TEST(all.ask_for_diagnosis(answers));
  BOOST_TEST(!all.ask_for_diagnosis(does_not_answer));
  BOOST_TEST(all.is_silent());
  BOOST_TEST(!all.ask_for_diagnosis(answers));
  all.note_answer();
  BOOST_TEST(all.ask_for_diagnosis(answers));
  BOOST_TEST(!all.ask_for_diagnosis(does_not_answer));
  BOOST_TEST(all.is_answered([] {}));  // a request that cannot be left out
  BOOST_TEST(!all.is_silent());
}

BOOST_AUTO_TEST_CASE(a_store_that_refuses_is_not_silent) {
  job_store all(std::make_shared<parx::hash_store>());
  BOOST_TEST(!all.ask_for_diagnosis(fails));
  BOOST_TEST(all.ask_for_diagnosis(answers));
  all.release().reset();
  BOOST_TEST(!all.ask_for_diagnosis(answers));
}

BOOST_AUTO_TEST_CASE(a_rank_publishes_the_latest_notice_of_each_of_its_sixteen_latest_groups) {
  parx::job own({.store = std::make_shared<parx::hash_store>()});
  for (std::uint64_t group = 0; group < 17; ++group) own.post_notice(group, "x");
  own.post_notice(16, "last");
  BOOST_TEST(own.notices_of(0) == std::string(15, 'x') + "last");
}

BOOST_AUTO_TEST_CASE(
    a_rank_that_leaves_says_what_its_latest_groups_have_told_and_a_killed_one_nothing) {
  const auto store = std::make_shared<parx::hash_store>();
  parx::job first({.store = store, .rank = 0, .world_size = 2});
  parx::job second({.store = store, .rank = 1, .world_size = 2});
  first.note_end_of("dropped");
  for (int i = 0; i < 64; ++i) first.note_end_of(std::to_string(i % 10));
  first.publish_exit();
  std::string wanted;
  for (int i = 0; i < 64; ++i) wanted += std::to_string(i % 10);
  BOOST_TEST(second.parting_words_of(0).value_or("none") == wanted);
  BOOST_TEST(!first.parting_words_of(1));
  BOOST_TEST(!first.parting_words_of(1));  // also when asked again
}

BOOST_AUTO_TEST_CASE(of_a_rank_that_has_ended_nothing_is_known_while_the_store_does_not_answer) {
  parx::job own({.store = std::make_shared<parx::hash_store>(), .rank = 0, .world_size = 2});
  static_cast<void>(own.store().ask_for_diagnosis(does_not_answer));
  BOOST_TEST(own.parting_words_of(1).value_or("killed") == "");
  own.store().note_answer();
  BOOST_TEST(!own.parting_words_of(1));
}
