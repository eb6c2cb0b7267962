// Ranks whose hosts do not answer, and to which no link is open yet.
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/failure_record.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/store/hash.hpp>
#include <parx/store/tcp.hpp>
#include <parx/transport/hybrid.hpp>

#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx::detail::socket_address;
using parx_test::mentions;
using clock_type = std::chrono::steady_clock;

/// A port of this host at which connections are attempted in vain, without an answer: its backlog
/// is full.
class deaf_port {
 public:
  deaf_port() {
    const auto any = socket_address::tcp("127.0.0.1", 0);
    BOOST_REQUIRE_EQUAL(::bind(listener_.get(), any.data(), any.length), 0);
    BOOST_REQUIRE_EQUAL(::listen(listener_.get(), 0), 0);
    const auto address = socket_address::of(listener_.get());
    while (fillers_.size() < 8) {
      fillers_.push_back(parx::detail::stream_socket(AF_INET));
      ::connect(fillers_.back().get(), address.data(), address.length);
      if (parx::detail::connection_state(fillers_.back().get(), 100) == EINPROGRESS) return;
    }
    BOOST_FAIL("the backlog takes all");
  }
  [[nodiscard]] std::uint16_t number() const { return socket_address::of(listener_.get()).port(); }

 private:
  parx::descriptor listener_ = parx::detail::stream_socket(AF_INET);
  std::vector<parx::descriptor> fillers_;
};

/// One rank of a job in which all others are on hosts that do not answer.
struct lonely_rank {
  deaf_port port;
  std::shared_ptr<parx::hash_store> store = std::make_shared<parx::hash_store>();
  std::shared_ptr<parx::detail::endpoint> shared;

  lonely_rank(int rank, int world, std::chrono::milliseconds longest_silence) {
    shared = std::make_shared<parx::detail::endpoint>(
        parx::detail::endpoint_options{.job_store = store,
                                       .store_host = "127.0.0.1",
                                       .rank = rank,
                                       .world_size = world,
                                       .local_world_size = 1,
                                       .may_spin = false,
                                       .env = {{"PARX_TRANSPORT", "tcp"}},
                                       .longest_silence = longest_silence});
    const auto record = deaf_record();
    for (int other = 0; other < world; ++other) {
      if (other != rank) store->set(parx::detail::endpoint::record_key(other), record.to_text());
    }
  }
  [[nodiscard]] parx::detail::peer_record deaf_record() const {
    auto record = shared->own();
    record.address = "127.0.0.1";
    record.port = port.number();
    return record;
  }
  [[nodiscard]] parx::process_group group() const {
    return parx::process_group(std::make_unique<parx::hybrid_links>(shared), "world");
  }
};

template <typename Operation>
std::string error_of(Operation run) {
  try {
    run();
  } catch (const parx::error& failure) {
    return failure.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_looks_for_many_silent_ones_hears_at_once_that_the_job_has_ended) {
  const lonely_rank here(0, 40, 24s);
  auto group = here.group();
  clock_type::time_point ended;
  std::thread other([&] {
    std::this_thread::sleep_for(1s);
    ended = clock_type::now();
    here.store->set(std::string(parx::first_failure_key),
                    parx::to_text(parx::failure_record{.text = "rank 7 has failed"}));
  });
  std::vector<int> x(10);
  const std::string told =
      error_of([&] { static_cast<void>(parx::recv_any(group, x, {.timeout = 10s})); });
  const auto returned = clock_type::now();
  other.join();
  BOOST_TEST(mentions(told, "rank 7 has failed"), told);
  BOOST_TEST((returned - ended < 1s));
}

BOOST_AUTO_TEST_CASE(a_rank_that_looks_for_many_silent_ones_keeps_its_deadline) {
  const lonely_rank here(0, 40, 24s);
  auto group = here.group();
  std::vector<int> x(10);
  const auto since = clock_type::now();
  const std::string told =
      error_of([&] { static_cast<void>(parx::recv_any(group, x, {.timeout = 500ms})); });
  BOOST_TEST(mentions(told, "timed out"), told);
  BOOST_TEST((clock_type::now() - since < 1500ms));
}

BOOST_AUTO_TEST_CASE(a_rank_that_must_connect_but_whose_host_falls_silent_is_given_up) {
  const lonely_rank here(0, 2, 1s);
  auto group = here.group();
  std::vector<int> x(10);
  const std::string told = error_of([&] { parx::recv(group, x, 1, {.timeout = 10s}); });
  BOOST_TEST(mentions(told, "nothing was heard from it for 1 s"), told);
}

BOOST_AUTO_TEST_CASE(
    a_rank_that_the_store_has_lost_and_whose_host_is_silent_is_not_said_to_have_ended) {
  const lonely_rank here(0, 2, 24s);
  here.store->set(parx::lost_key(1), "1");
  auto group = here.group();
  std::vector<int> x(10);
  const std::string told = error_of([&] { parx::recv(group, x, 1, {.timeout = 10s}); });
  BOOST_TEST(mentions(told, "its host does not answer, and the job's store has lost it"), told);
}

BOOST_AUTO_TEST_CASE(a_rank_that_computes_answers_more_probes_than_its_backlog_takes) {
  const lonely_rank busy(1, 2, 24s);
  const auto address = socket_address::tcp(busy.shared->own().address, busy.shared->own().port);
  int answered = 0;
  while (answered < 5000 && parx::detail::probe_address(address.data(), address.length, 200) == 0) {
    ++answered;
  }
  BOOST_TEST(answered == 5000);
}

BOOST_AUTO_TEST_CASE(a_connection_that_is_not_made_yet_has_the_limits_of_one_that_is) {
  const lonely_rank here(1, 2, 24s);
  const parx::detail::tcp_stream opening(*here.shared, {1, 0}, 1, 0, here.deaf_record());
  BOOST_TEST(!opening.is_open());
  int silence = 0;
  socklen_t size = sizeof silence;
  ::getsockopt(opening.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, &size);
  BOOST_TEST(silence == 24'000);
}

BOOST_AUTO_TEST_CASE(a_store_that_cannot_be_reached_in_time_is_one_that_does_not_answer) {
  const deaf_port port;
  try {
    static_cast<void>(
        parx::detail::dial({"127.0.0.1", port.number()}, parx::deadline::after(50ms)));
    BOOST_ERROR("it was reached");
  } catch (const parx::detail::store_failure& failure) {
    BOOST_TEST((failure.code == parx::errc::timeout));
  }
}

BOOST_AUTO_TEST_CASE(a_silence_is_made_of_probes_that_follow_each_other_closely) {
  parx::detail::unanswered_probes known(2);
  const parx::detail::unanswered_probes::clock::time_point start(1h);
  known.note_no_answer(1, start);
  BOOST_TEST((known.of(1) == 0s));
  known.note_no_answer(1, start + 10s);
  known.note_no_answer(1, start + 20s);
  BOOST_TEST((known.of(1) == 20s));
  BOOST_TEST((known.of(0) == 0s));
  known.note_no_answer(1, start + 40s);
  BOOST_TEST((known.of(1) == 0s));
  known.note_no_answer(1, start + 41s);
  known.note_answer(1);
  BOOST_TEST((known.of(1) == 0s));
}

BOOST_AUTO_TEST_CASE(a_host_is_silent_once_it_has_not_answered_what_the_kernel_asked_it) {
  tcp_info now{};
  const auto silent = [&now](unsigned heard_ms, unsigned rto_ms, unsigned backoff) {
    now.tcpi_last_ack_recv = now.tcpi_last_data_recv = heard_ms;
    now.tcpi_rto = 1000 * rto_ms;
    now.tcpi_backoff = static_cast<std::uint8_t>(backoff);
    return parx::detail::is_silent(now, 24s);
  };
  BOOST_TEST(!silent(30'000, 200, 0));  // nothing was asked: keepalive looks after that
  now.tcpi_unacked = 5;
  BOOST_TEST(!silent(10'000, 6'400, 5));
  BOOST_TEST(silent(24'000, 12'800, 6));   // bytes were sent again, the last time before 11.4 s
  BOOST_TEST(!silent(25'500, 51'200, 8));  // they have just been sent again
  BOOST_TEST(silent(39'000, 25'600, 7));
  now.tcpi_unacked = 0;  // all was taken, and the window is closed
  BOOST_TEST(!silent(50'000, 200, 8));
  now.tcpi_probes = 1;
  BOOST_TEST(!silent(25'000, 200, 7));  // it was asked just now
  BOOST_TEST(silent(77'000, 200, 8));
  BOOST_TEST(!silent(110'000, 200, 15));  // from here on it is asked every two minutes
  BOOST_TEST(silent(181'000, 200, 15));
  now.tcpi_unacked = 5;
  static_cast<void>(silent(39'000, 25'600, 7));
  now.tcpi_last_data_recv = 10;  // it sends, and has nothing to acknowledge
  BOOST_TEST(!parx::detail::is_silent(now, 24s));
}
