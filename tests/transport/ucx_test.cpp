// What links over UCX carry, and what a rank that waits at one costs.
#include <parx/transport/ucx.hpp>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <parx/core/file_text.hpp>
#include <parx/store/hash.hpp>
#include <parx/tensor/detail/address_range.hpp>
#include <parx/transport/hybrid.hpp>

#include "sanitizers.hpp"
#include "ucx_sides.hpp"

using namespace ucx_sides;

namespace {

/// Resident memory in bytes.
std::size_t resident() {
  const std::string text = parx::detail::file_text("/proc/self/statm").value_or("");
  return std::stoul(text.substr(text.find(' '))) * 4096;
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& of) {
    return static_cast<double>(of.tv_sec) + 1e-6 * static_cast<double>(of.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

bool is_mapped(const char* library) {
  return parx::detail::file_text("/proc/self/maps").value_or("").find(library) != std::string::npos;
}

std::unique_ptr<parx::hybrid_links> rank_zero_with(const char* transport) {
  return std::make_unique<parx::hybrid_links>(std::make_shared<parx::detail::endpoint>(
      parx::detail::endpoint_options{.job_store = std::make_shared<parx::hash_store>(),
                                     .store_host = "127.0.0.1",
                                     .rank = 0,
                                     .world_size = 2,
                                     .local_world_size = 2,
                                     .may_spin = false,
                                     .env = {{"PARX_TRANSPORT", transport}}}));
}

}  // namespace

BOOST_AUTO_TEST_CASE(ucx_is_loaded_only_by_who_asks_and_leaves_the_signal_handlers_alone) {
  const std::string failures = on_two_processes("tcp", [](const side&) {});
  BOOST_TEST(failures == "");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto handler_of_segv = [] {
      struct sigaction action {};
      ::sigaction(SIGSEGV, nullptr, &action);
      return action.sa_handler;
    };
    int wrong = 0;
    { const auto plain = rank_zero_with("auto"); }
    if (is_mapped("libucp") || is_mapped("libucs")) wrong |= 1;
    const auto before = handler_of_segv();
    ::setenv("UCX_TLS", "tcp", 1);
    { const auto over_ucx = rank_zero_with("ucx"); }
    if (!is_mapped("libucp")) wrong |= 2;
    if (handler_of_segv() != before) wrong |= 4;
    ::_exit(wrong);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0), "bits " << WEXITSTATUS(status));
}

BOOST_AUTO_TEST_CASE(memory_moves_as_before_while_ucx_watches_the_process_s_mappings) {
  const std::string failures = on_two_processes("tcp", [](const side&) {
    parx::detail::address_range range(2 * parx::detail::address_range::huge_page);
    std::byte* const from = range.fill(0, 4096);
    std::byte* const to = range.data() + parx::detail::address_range::huge_page;
    from[7] = std::byte{42};
    parx::detail::address_range::move(from, to, 4096);
    side::check(to[7] == std::byte{42}, "the memory went elsewhere");
  });
  BOOST_TEST(failures == "");
}

/// By hand, what the order was proven with: PARX_TEST_MESSAGES=100000.
BOOST_DATA_TEST_CASE(messages_of_all_sizes_arrive_in_order, transports, over) {
  const char* const wanted = std::getenv("PARX_TEST_MESSAGES");
  const int messages = wanted != nullptr ? std::stoi(wanted) : 4'000;
  const auto sizes = [random = std::mt19937(5)]() mutable {
    const auto up_to = [&](std::size_t most) {
      return std::uniform_int_distribution<std::size_t>(0, most)(random);
    };
    const auto kind = up_to(999);
    return kind < 2 ? up_to(700'000) : kind < 20 ? up_to(20'000) : up_to(300);
  };
  const std::string failures = on_two_processes(over, [&](const side& own) {
    ucx_link stream = own.open(3);
    auto next_size = sizes;
    std::vector<std::byte> bytes(1 << 20);
    std::mt19937 random(static_cast<unsigned>(9 + own.rank));
    std::size_t at = 0;  // in the whole stream
    for (int message = 0; message < messages; ++message) {
      const std::size_t body = next_size(), whole = 64 + body;
      if (own.rank == 0) {
        for (std::size_t i = 0; i < whole; ++i) bytes[i] = pattern(at + i);
      } else {
        std::fill_n(bytes.begin(), whole, std::byte{0xEE});
      }
      for (std::size_t done = 0; done < whole;) {
        const std::size_t head = 64 - std::min<std::size_t>(done, 64);
        std::byte* const first = bytes.data() + done;
        const std::size_t left = whole - done - head;
        std::size_t moved = 0;
        if (own.rank == 0) {
          moved = stream.try_send({first, head}, {.data = first + head, .size = left});
        } else {
          // A part, as a collective that reduces; all; or a part with room for all.
          const auto how = random() % 3;
          const std::size_t part = how == 1 ? left : std::min<std::size_t>(left, random() % 60'000);
          moved = stream.try_receive({first, head}, {.data = first + head,
                                                     .size = part,
                                                     .room = how == 2 ? left : 0,
                                                     .steady = how == 1});
        }
        if (moved == 0) sleep_on(stream, own.rank == 1, own.rank == 0, 5s);
        done += moved;
      }
      for (std::size_t i = 0; own.rank == 1 && i < whole; ++i) {
        side::check(bytes[i] == pattern(at + i), "byte " + std::to_string(i) + " of message " +
                                                     std::to_string(message) + " is wrong");
      }
      at += whole;
    }
    // Neither leaves before the other has everything.
    std::byte last{};
    if (own.rank == 0) receive_all(stream, &last, 1);
    else send_all(stream, &last, 1);
  });
  BOOST_TEST(failures == "");
}

BOOST_DATA_TEST_CASE(a_rank_that_does_not_receive_stores_little_and_loses_nothing, transports,
                     over) {
  for (const std::size_t size : {std::size_t{64}, std::size_t{4096}, std::size_t{65536}}) {
    const std::string failures = on_two_processes(over, [&](const side& own) {
      ucx_link stream = own.open(1);
      ucx_link other = own.open(2);
      std::vector<std::byte> bytes(size);
      std::byte byte{};
      if (own.rank == 0) {
        send_all(stream, &byte, 1);
        own.await('r');
        std::size_t sent = 0;
        for (auto since = clock_type::now(); seconds_since(since) < 0.2;) {
          const std::size_t done = sent % size;
          for (std::size_t i = done; i < size; ++i) bytes[i] = pattern(sent - done + i);
          const auto now = stream.try_send({}, {.data = bytes.data() + done, .size = size - done});
          sent += now;
          if (now > 0) since = clock_type::now();
        }
        side::check(sent <= (std::size_t{1} << 20) + size, "sent " + std::to_string(sent));
        own.tell('f');
        while (sent % size != 0) {
          const std::size_t done = sent % size;
          sent += stream.try_send({}, {.data = bytes.data() + done, .size = size - done});
        }
        send_all(other, reinterpret_cast<const std::byte*>(&sent), sizeof sent);
        receive_all(other, &byte, 1);
      } else {
        receive_all(stream, &byte, 1);
        const std::size_t before = resident();
        own.tell('r');
        pollfd told{own.control, POLLIN, 0};
        while (::poll(&told, 1, 0) == 0) sleep_on(other, true, false, 5ms);
        const std::size_t after = resident();
        const std::size_t most =
            parx_test::sanitized ? std::size_t{64} << 20 : std::size_t{2} << 20;
        side::check(after - std::min(before, after) < most,
                    "grew by " + std::to_string((after - before) >> 10) + " KiB");
        own.await('f');
        std::size_t sent = 0, received = 0;
        std::size_t told_bytes = 0;
        while (told_bytes < sizeof sent || received < sent) {
          if (told_bytes < sizeof sent) {
            told_bytes +=
                other.try_receive({}, {.data = reinterpret_cast<std::byte*>(&sent) + told_bytes,
                                       .size = sizeof sent - told_bytes});
          }
          const auto got = stream.try_receive({}, {.data = bytes.data(), .size = bytes.size()});
          for (std::size_t i = 0; i < got; ++i) {
            side::check(bytes[i] == pattern(received + i), "a byte is wrong");
          }
          received += got;
        }
        send_all(other, &byte, 1);
      }
    });
    BOOST_TEST(failures == "", over << ", messages of " << size << ": " << failures);
  }
}

BOOST_DATA_TEST_CASE(a_rank_that_waits_sleeps_and_is_woken, transports, over) {
  const std::string failures = on_two_processes(over, [](const side& own) {
    ucx_link stream = own.open(1);
    std::byte byte{};
    if (own.rank == 0) {
      send_all(stream, &byte, 1);
      std::this_thread::sleep_for(2s);
      send_all(stream, &byte, 1);
      receive_all(stream, &byte, 1);
    } else {
      receive_all(stream, &byte, 1);
      const double before = cpu_seconds();
      const auto since = clock_type::now();
      int sleeps = 0;
      while (stream.try_receive({}, {.data = &byte, .size = 1}) == 0) {
        sleep_on(stream, true, false, 10s);
        ++sleeps;
      }
      const double waited = seconds_since(since), used = cpu_seconds() - before;
      send_all(stream, &byte, 1);
      side::check(waited > 1.5 && waited < 4, "waited " + std::to_string(waited) + " s");
      side::check(used < 0.05, "used " + std::to_string(used) + " s of a processor, slept " +
                                   std::to_string(sleeps) + " times");
    }
  });
  BOOST_TEST(failures == "");
}

BOOST_AUTO_TEST_CASE(messages_of_strangers_are_dropped_and_counted) {
  const std::string failures = on_two_processes("tcp", [](const side& own) {
    ucx_link stream = own.open(1);
    std::vector<std::byte> bytes(1000);
    std::byte byte{};
    if (own.rank == 0) {
      // It knows the address, and nothing else.
      ucx_network stranger({.rank = 0,
                            .challenge = "challenge",
                            .own_interface = "lo",
                            .env = {{"UCX_TLS", "tcp"}},
                            .tag = [](const auto&, std::string_view) { return 12345ull; },
                            .wake = [](std::uint64_t) {},
                            .lost = [] {}});
      ucx_link taken(stranger, {1, 1, purpose::collective}, 0, 1, own.address, "challenge");
      ucx_link unknown(stranger, {9, 1, purpose::message}, 0, 1, own.address, "challenge");
      for (int i = 0; i < 50; ++i) {
        send_all(taken, bytes.data(), bytes.size());
        send_all(unknown, bytes.data(), bytes.size());
      }
      std::this_thread::sleep_for(100ms);
      byte = std::byte{42};
      send_all(stream, &byte, 1);
      own.await('d');
    } else {
      receive_all(stream, &byte, 1);
      side::check(byte == std::byte{42}, "a stranger's byte");
      const auto until = clock_type::now() + 5s;
      while (own.network.refused() < 100 && clock_type::now() < until) {
        const std::lock_guard lock(own.network.mutex());
        own.network.progress();
      }
      side::check(own.network.refused() >= 100, std::to_string(own.network.refused()) + " dropped");
      own.tell('d');
    }
  });
  BOOST_TEST(failures == "");
}

BOOST_AUTO_TEST_CASE(the_lanes_of_an_endpoint_are_read_from_what_ucx_prints) {
  BOOST_TEST(
      parx::detail::ucx_lanes(
          "#\n# UCP endpoint\n#   lane[0]:  2:tcp/eth0.0 md[2]    -> md[2]/tcp/sysdev[255] am "
          "am_bw#0 wireup\n#   lane[1]:  5:rc_mlx5/mlx5_0:1.0 md[4] -> md[4]/ib/sysdev[0] "
          "rma_bw#0\n#\n") == "tcp/eth0.0 am am_bw#0 wireup\nrc_mlx5/mlx5_0:1.0 rma_bw#0\n");
  BOOST_TEST(parx::detail::ucx_lanes("lane[") == "");
}
