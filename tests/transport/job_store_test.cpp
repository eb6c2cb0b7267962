// A store that was once too slow is left alone for a while, or until it is known to answer. What
// the ranks of a job leave in it for each other.
#include <parx/transport/detail/job_store.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/store/hash.hpp>
#include <parx/transport/detail/peer_directory.hpp>
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
  for (std::uint64_t group = 0; group < 17; ++group) own.post_wait_report(group, "x");
  own.post_wait_report(16, "last");
  BOOST_TEST(own.wait_reports_of(0) == std::string(15, 'x') + "last");
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

namespace {

using parx::detail::peer_directory;

/// A store in which `world` ranks have arrived, the last one on a host of its own.
std::shared_ptr<parx::hash_store> arrived(int world) {
  auto all = std::make_shared<parx::hash_store>();
  for (int rank = 0; rank < world; ++rank) {
    const bool is_last = rank + 1 == world;
    const parx::detail::peer_record record{"n",      "boot", "127.0.0.1", is_last ? "b" : "a",
                                           "memory", 1,      rank + 1};
    all->set(peer_directory::key(rank), record.to_text());
  }
  return all;
}
void forget_records(parx::store& all, int world) {
  for (int rank = 0; rank < world; ++rank) all.delete_key(peer_directory::key(rank));
}
bool are_right(const std::vector<parx::detail::placement>& places, int world) {
  return std::ssize(places) == world && places.front().host == 0 && places.front().memory &&
         places.back().host == 1;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_rank_reads_the_records_for_all) {
  for (const int world : {3, 256, 257, 1000}) {
    const auto all = arrived(world);
    job_store first(all), second(all);
    peer_directory reader(first, world), other(second, world);
    BOOST_TEST(are_right(reader.placements(), world));
    forget_records(*all, world);
    BOOST_TEST(are_right(other.placements(), world));
    if (world <= 256)
      BOOST_TEST(other.record_of(world - 1, parx::deadline::after({})).pid == world);
  }
}

BOOST_AUTO_TEST_CASE(the_others_wait_for_the_rank_that_reads_the_records) {
  for (const int world : {3, 300}) {
    const auto all = arrived(world);
    job_store first(all), second(all);
    peer_directory reader(first, world), other(second, world);
    static_cast<void>(reader.placements());
    const std::string name = world == 3 ? "rank/records" : "rank/placements";
    const std::string published = all->get(name);
    forget_records(*all, world);
    all->delete_key(name);  // as it is while the reader reads
    if (world == 3) {
      const auto soon = parx::deadline::after(std::chrono::milliseconds(50));
      BOOST_CHECK_THROW(other.read_ahead(soon), parx::error);
    }
    std::jthread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      all->set(name, published);
    });
    BOOST_TEST(are_right(other.placements(), world));
  }
}
