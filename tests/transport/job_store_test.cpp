// A store that was once too slow is left alone for a while, or until it is known to answer.
#include <parx/transport/detail/job_store.hpp>

#include <boost/test/unit_test.hpp>

#include <memory>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/store/hash.hpp>

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
