// When calls begin and end: in the flight record, and for their deadlines. The clock of a brief
// call is read beside its path (comm/detail/progress/call_record.hpp).
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tools/common/flight/reader.hpp"
#include <parx/comm/flight/recorder.hpp>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx::flight_record;
using parx::flight_state;

/// What two ranks record that share one recorder, in the order of issue.
std::vector<flight_record> recorded(jobs::kind which, const jobs::body& run) {
  const std::string folder = "/tmp/parx-test-times." + std::to_string(::getpid());
  parx::group_options options;
  options.recorder = std::make_shared<parx::flight_recorder>(
      parx::flight_options{.directory = folder, .rank = 0, .world_size = 1, .job = 1});
  BOOST_TEST(jobs::run(which, 2, run, options) == "");
  std::ifstream file(folder + "/rank_0.flight", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove_all(folder);
  return parx::parse_flight_log(bytes, "rank_0.flight").records;
}

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}
std::int64_t duration(const flight_record& each) { return each.finished_ns - each.entered_ns; }

}  // namespace

BOOST_AUTO_TEST_CASE(brief_calls_have_times_within_those_of_their_loop) {
  for (const jobs::kind which : {jobs::kind::shm, jobs::kind::inproc, jobs::kind::tcp}) {
    const std::int64_t before = now_ns();
    const auto calls = recorded(which, [](parx::process_group& group) {
      std::vector<float> x(1);
      for (int i = 0; i < 200; ++i) parx::all_reduce(group, x);
    });
    const std::int64_t after = now_ns();
    BOOST_TEST(calls.size() >= 400u);
    for (const flight_record& each : calls) {
      BOOST_TEST((each.state == flight_state::finished));
      BOOST_TEST(each.entered_ns >= before);
      BOOST_TEST(each.finished_ns >= each.entered_ns);
      BOOST_TEST(each.finished_ns <= after);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_brief_call_that_waits_shows_how_long) {
  for (const jobs::kind which : {jobs::kind::shm, jobs::kind::inproc}) {
    const auto calls = recorded(which, [](parx::process_group& group) {
      std::vector<float> x(1);
      parx::all_reduce(group, x);
      if (group.rank() == 1) std::this_thread::sleep_for(60ms);
      parx::all_reduce(group, x);
    });
    const flight_record& early = calls[calls.size() - 2];
    const flight_record& late = calls.back();
    BOOST_TEST(duration(early) >= 50'000'000);
    BOOST_TEST(duration(late) < 50'000'000);
    BOOST_TEST(late.entered_ns - early.entered_ns >= 50'000'000);
  }
}

BOOST_AUTO_TEST_CASE(a_brief_call_that_fails_has_an_end) {
  const auto calls = recorded(jobs::kind::shm, [](parx::process_group& group) {
    std::vector<float> x(1);
    parx::all_reduce(group, x);
    try {
      if (group.rank() == 0) parx::all_reduce(group, x);
      else parx::barrier(group);
    } catch (const parx::error&) {
    }
  });
  int failed = 0;
  for (const flight_record& each : calls) {
    if (each.state != flight_state::failed) continue;
    ++failed;
    BOOST_TEST(each.finished_ns >= each.entered_ns);
  }
  BOOST_TEST(failed == 2);
}

BOOST_AUTO_TEST_CASE(a_brief_call_behind_one_that_hangs_has_its_own_deadline) {
  const auto failures = jobs::run_collecting(jobs::kind::shm, 2, [](parx::process_group& group) {
    std::vector<float> x(1), y(1);
    parx::all_reduce(group, x);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(600ms);
      parx::all_reduce(group, y);
      return;
    }
    const auto hangs = parx::async_all_reduce(group, x);
    const auto begun = std::chrono::steady_clock::now();
    try {
      parx::all_reduce(group, y, {.timeout = 100ms});
    } catch (const parx::error&) {
      if (std::chrono::steady_clock::now() - begun < 500ms) throw;
    }
    throw std::runtime_error("it did not end by its own deadline");
  });
  BOOST_TEST(parx_test::mentions(failures[0], "timed out"), failures[0]);
}
