// Strangers on the same host, who connect to whatever a job listens at.
#include <parx/launch/rendezvous.hpp>

#include <launch/processes.hpp>
#include <messages.hpp>
#include <store/raw_client.hpp>

#include <chrono>
#include <list>
#include <string>

#include <boost/test/unit_test.hpp>

#include <parx/comm.hpp>

using namespace processes;
using parx_test::mentions;

BOOST_AUTO_TEST_CASE(a_job_ends_without_waiting_for_strangers) {
  for (const std::string secret : {"", "open-sesame-0123456789"}) {
    job all;
    for (int rank = 0; rank < 3; ++rank) {
      all.start(rank, 3,
                [](parx::world& world) {
                  std::this_thread::sleep_for(600ms);
                  parx::barrier(world);
                },
                {{"PARX_SECRET", secret}});
    }
    std::this_thread::sleep_for(300ms);
    std::list<raw_client> strangers;
    for (int i = 0; i < 3; ++i) strangers.emplace_back(all.port()).send("\x06");  // counts the keys
    strangers.emplace_back(all.port());
    for (const auto& each : all.wait()) {
      BOOST_TEST(each.exit_code == 0, each.text);
      BOOST_TEST(each.seconds < 3);
    }
  }
}

BOOST_AUTO_TEST_CASE(rank_0_waits_for_the_others_and_not_for_a_stranger_where_it_leaves_first) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [rank](parx::world& world) {
      std::this_thread::sleep_for(600ms);
      parx::barrier(world);
      std::this_thread::sleep_for(rank * 300ms);
    });
  }
  std::this_thread::sleep_for(300ms);
  raw_client stranger(all.port());
  BOOST_TEST(stranger.send("\x06"));
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 0, each.text);
    BOOST_TEST(each.seconds < 3);
  }
}

BOOST_AUTO_TEST_CASE(the_last_rank_has_the_jobs_store_until_it_leaves) {
  static constexpr int world_size = 3;
  job all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.start(rank, world_size, [rank](parx::world& world) {
      parx::barrier(world);
      std::this_thread::sleep_for(rank * 200ms);
      if (rank < world_size - 1) return;
      std::this_thread::sleep_for(600ms);  // the others have left
      world.job_store()->set("result", "1");
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(a_process_with_another_secret_is_refused_and_delays_nobody) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2,
              [](parx::world& world) {
                std::this_thread::sleep_for(800ms);
                parx::barrier(world);
              },
              {{"PARX_SECRET", "open-sesame-0123456789"}});
  }
  std::this_thread::sleep_for(200ms);
  all.start(1, 2, [](parx::world&) {}, {{"PARX_SECRET", "open-sesame-9876543210"}});
  all.start(1, 2, [](parx::world&) {});
  const auto results = all.wait();
  for (const auto& each : results) BOOST_TEST(each.seconds < 3, each.text);
  BOOST_TEST(results[0].exit_code == 0, results[0].text);
  BOOST_TEST(results[1].exit_code == 0, results[1].text);
  BOOST_TEST(mentions(results[2].text, "has another secret"), results[2].text);
  BOOST_TEST(mentions(results[3].text, "this process has none"), results[3].text);
}
