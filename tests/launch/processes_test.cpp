// Real processes over real sockets: what happens when ranks die, stop or throw.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;

/// As a container's seccomp profile does: memfd_create is refused from now on.
void deny_shared_memory() {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof rules / sizeof rules[0], rules};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  parx::require(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "no seccomp");
}

void reduce_for_ever(parx::world& world) {
  std::vector<float> x(10'000);
  for (;;) parx::all_reduce(world, x, {.use = parx::algorithm::ring});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_job_of_processes_adds_up_and_ends_well) {
  for (const int world : {1, 2, 4}) {
    job all;
    for (int rank = 0; rank < world; ++rank) {
      all.start(rank, world, [world](parx::world& group) {
        std::vector<int> x(100'000, group.rank() + 1);
        for (int i = 0; i < 3; ++i) {
          auto y = x;
          parx::all_reduce(group, y);
          for (const int each : y) {
            if (each != world * (world + 1) / 2) throw std::runtime_error("wrong sum");
          }
        }
        auto half = *parx::split(group, group.rank() % 2);
        parx::barrier(half);
      });
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
  }
}

BOOST_AUTO_TEST_CASE(what_is_printed_where_standard_output_was_closed_gets_into_no_file) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    parx::init_options alone;
    alone.env = {};
    ::_exit(parx::run(
        [](parx::world& /*world*/) {
          const parx::descriptor opened(::open("/dev/null", O_WRONLY | O_CLOEXEC));
          if (opened.get() <= STDERR_FILENO) throw std::runtime_error("a file has its number");
        },
        alone));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(a_timeout_that_is_no_time_is_refused) {
  for (const char* name : {"PARX_TIMEOUT", "PARX_RENDEZVOUS_TIMEOUT"}) {
    for (const char* text : {"nan", "inf", "0", "-1", "1e300", "soon"}) {
      parx::init_options options;
      options.env = {{name, text}};
      BOOST_CHECK_EXCEPTION((void)parx::init(options), parx::usage_error,
                            [&](const auto& refused) { return mentions(refused.what(), name); });
    }
  }
}

BOOST_AUTO_TEST_CASE(a_groups_timeout_that_is_none_is_refused_before_anybody_is_waited_for) {
  for (const auto given : {0ms, -5ms}) {
    parx::init_options options;
    options.env = {{"PARX_RANK", "0"},
                   {"PARX_WORLD_SIZE", "2"},
                   {"PARX_MASTER_ADDR", "127.0.0.1"},
                   {"PARX_MASTER_PORT", "1"}};
    options.group.timeout = given;
    BOOST_CHECK_EXCEPTION((void)parx::init(options), parx::usage_error, [](const auto& refused) {
      return mentions(refused.what(), "must be positive");
    });
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_ends_all_others_within_two_seconds_and_is_named) {
  for (const int victim : {0, 2, 3}) {
    job all;
    for (int rank = 0; rank < 4; ++rank) all.start(rank, 4, reduce_for_ever);
    std::this_thread::sleep_for(400ms);
    ::kill(all.pid(static_cast<std::size_t>(victim)), SIGKILL);
    const auto results = all.wait();
    for (int rank = 0; rank < 4; ++rank) {
      const auto& each = results[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        BOOST_TEST(each.exit_code == 128 + SIGKILL);
        continue;
      }
      BOOST_TEST(each.exit_code == 1, each.text);
      BOOST_TEST(each.seconds < 2.0, each.text);
      const std::string name = "rank " + std::to_string(victim);
      BOOST_TEST(
          (mentions(each.text, "lost " + name) || (victim == 0 && mentions(each.text, name))),
          "victim " << victim << ", rank " << rank << ": " << each.text);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_exception_on_one_rank_is_what_all_ranks_report) {
  job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3, [](parx::world& world) {
      parx::barrier(world);
      if (world.rank() == 1) throw std::runtime_error("out of memory in forward()");
      std::vector<float> x(10);
      parx::all_reduce(world, x);
    });
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 1);
    BOOST_TEST(mentions(each.text, "out of memory in forward()"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(a_secret_is_in_nobodys_message) {
  const std::string secret = "open-sesame-0123456789";
  job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3, [](parx::world& world) {
      if (world.rank() == 1) {
        try {
          (void)world.job_store()->get("nobody sets this", parx::deadline::after(50ms));
        } catch (const parx::error& late) {
          parx::log(parx::log_level::error, "{}", late.what());
        }
      }
      reduce_for_ever(world);
    }, {{"PARX_SECRET", secret}});
  }
  std::this_thread::sleep_for(500ms);
  ::kill(all.pid(0), SIGKILL);  // and the store with it
  const auto results = all.wait();
  BOOST_TEST(mentions(results[1].text, "nobody sets this"), results[1].text);
  for (const auto& each : results) BOOST_TEST(!mentions(each.text, secret), each.text);
}

BOOST_AUTO_TEST_CASE(a_wrong_option_is_what_every_rank_reports) {
  for (int round = 0; round < 5; ++round) {
    job all;
    for (int rank = 0; rank < 4; ++rank) {
      all.start(rank, 4,
                [](parx::world&) { throw parx::usage_error("--epochs x: a whole number"); });
    }
    for (const auto& each : all.wait()) {
      BOOST_TEST(each.exit_code == 2, each.text);
      BOOST_TEST(mentions(each.text, "error: --epochs x"), each.text);
    }
  }
}

BOOST_AUTO_TEST_CASE(whatever_a_program_throws_is_reported_and_ends_the_others) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [](parx::world& world) {
      if (world.rank() == 1) throw 42;
      parx::barrier(world);
    });
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 1, each.text);
    BOOST_TEST(mentions(each.text, "not a std::exception"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(strangers_on_the_data_port_do_not_disturb_a_job) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [](parx::world& world) {
      const auto record = parx::detail::peer_record::from_text(
          world.job_store()->get(parx::detail::endpoint::record_key(0)));
      std::vector<int> strangers;
      if (world.rank() == 1) {
        for (int i = 0; i < 20; ++i) {
          const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
          sockaddr_in address{};
          address.sin_family = AF_INET;
          address.sin_port = htons(record.port);
          ::inet_pton(AF_INET, record.address.c_str(), &address.sin_addr);
          if (::connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
            throw std::runtime_error("the stranger could not connect");
          }
          const std::string garbage(i % 2 == 0 ? "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
                                               : std::string(200, '\x16'));
          ::send(stranger, garbage.data(), static_cast<std::size_t>(i) * 10 % garbage.size(),
                 MSG_NOSIGNAL);
          strangers.push_back(stranger);
        }
      }
      std::vector<int> x{1};
      parx::all_reduce(world, x);
      if (x[0] != 2) throw std::runtime_error("wrong sum");
      for (const int each : strangers) ::close(each);
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_when_the_deadline_passes) {
  job all;
  const parx::environment hurry{{"PARX_TIMEOUT", "1"}};
  for (int rank = 0; rank < 3; ++rank) all.start(rank, 3, reduce_for_ever, hurry);
  std::this_thread::sleep_for(400ms);
  ::kill(all.pid(1), SIGSTOP);
  std::this_thread::sleep_for(2500ms);
  ::kill(all.pid(1), SIGCONT);
  const auto results = all.wait();
  for (const auto& each : results) BOOST_TEST(each.exit_code == 1, each.text);
  BOOST_TEST(mentions(results[2].text, "rank 1"), results[2].text);
  BOOST_TEST(mentions(results[0].text, "timed out"), results[0].text);
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_that_keeps_the_store_delays_nobody_for_long) {
  job all;
  const parx::environment hurry{{"PARX_TIMEOUT", "1"}};
  for (int rank = 0; rank < 4; ++rank) all.start(rank, 4, reduce_for_ever, hurry);
  std::this_thread::sleep_for(400ms);
  ::kill(all.pid(0), SIGSTOP);
  const auto results = all.wait(5s);  // which then kills rank 0
  for (std::size_t rank = 1; rank < 4; ++rank) {
    BOOST_TEST(results[rank].exit_code == 1, results[rank].text);
  }
  BOOST_TEST(mentions(results[1].text, "waiting for rank 0"), results[1].text);
  BOOST_TEST(mentions(results[1].text, "the job's store, which rank 0"), results[1].text);
}

BOOST_AUTO_TEST_CASE(a_rank_of_a_group_is_named_by_its_number_in_the_job_too) {
  job all;
  for (int rank = 0; rank < 4; ++rank) {
    all.start(rank, 4, [](parx::world& world) {
      auto odd = parx::split(world, world.rank() % 2);
      parx::barrier(*odd);
      if (world.rank() == 3) ::raise(SIGKILL);
      // Who waits for rank 3 under another number could find out first.
      if (world.rank() % 2 == 0) std::this_thread::sleep_for(500ms);
      parx::barrier(*odd);
    });
  }
  const auto results = all.wait();
  BOOST_TEST(mentions(results[1].text, "lost rank 1 (rank 3 of the job, "), results[1].text);
}

BOOST_AUTO_TEST_CASE(what_outlives_its_world_ends_with_an_error) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start_program(rank, 2, [](parx::init_options options) {
      const auto expect_end = [](auto&& call) {
        try {
          call();
        } catch (const parx::error& ended) {
          return mentions(ended.what(), "has left the job, since its parx::world is gone");
        }
        return false;
      };
      std::vector<float> x(1000, 1.0F);
      std::optional<parx::process_group> half;
      std::shared_ptr<parx::store> store;
      parx::work late;
      {
        auto world = parx::init(std::move(options));
        store = world.job_store();
        half = parx::split(world, 0);
        parx::barrier(world);
        if (world.rank() == 0) late = parx::async_all_reduce(world, x);
      }
      try {
        store->set("key", "value");
        return 2;
      } catch (const parx::error& refused) {
        if (refused.code_value() != parx::errc::closed) return 2;
      }
      if (!expect_end([&] { parx::recv(*half, x, 1 - half->rank()); })) return 3;
      half->abort("this is not heard by anybody");
      return half->rank() == 1 || expect_end([&] { late.wait(); }) ? 0 : 4;
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(ranks_that_may_not_read_each_others_memory_add_up_all_the_same) {
  static constexpr int world_size = 3;
  job all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.start(rank, world_size, [](parx::world& world) {
      static std::vector<float> x(1'000'000, 1.0F);
      // Only root may look into a process that says no.
      if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) {
        throw std::runtime_error("setuid");
      }
      ::prctl(PR_SET_DUMPABLE, 0);
      const auto pid = std::to_string(::getpid()) + " " +
                       std::to_string(reinterpret_cast<std::uintptr_t>(x.data()));
      world.job_store()->set("mind/" + std::to_string(world.rank()), pid);
      std::stringstream next(
          world.job_store()->get("mind/" + std::to_string((world.rank() + 1) % world.size())));
      long other = 0;
      std::uintptr_t address = 0;
      next >> other >> address;
      float stolen = 0;
      iovec here{&stolen, sizeof stolen};
      iovec there{reinterpret_cast<void*>(address), sizeof stolen};
      parx::require(::process_vm_readv(static_cast<pid_t>(other), &here, 1, &there, 1, 0) < 0,
                    "the kernel permits it");
      for (int each = 0; each < world.size(); ++each) {
        (void)world.job_store()->get("mind/" + std::to_string(each));
      }
      parx::all_reduce(world, x);
      for (const float each : x) parx::require(each == 3.0F, "wrong sum");
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(a_switch_that_is_none_is_refused_on_every_rank) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [](parx::world&) {}, {{"PARX_SINGLE_COPY", rank == 0 ? "1" : "maybe"}});
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code != 0);
    BOOST_TEST(mentions(each.text, "PARX_SINGLE_COPY=\"maybe\""), each.text);
  }
}

BOOST_AUTO_TEST_CASE(where_a_sandbox_refuses_shared_memory_ranks_talk_over_tcp) {
  job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start_program(rank, 3, [](parx::init_options options) {
      if (options.env["PARX_RANK"] == "1") deny_shared_memory();
      return parx::run(
          [](parx::world& world) {
            std::vector<float> x(200'000, 1.0F);
            parx::all_reduce(world, x);
            auto area = parx::allocate_shared<float>(world, 1000);
            area[999] = 1.0F;
            parx::all_reduce(world, area);
            parx::require(x[7] == 3.0F && area[999] == 3.0F, "wrong sum");
          },
          std::move(options));
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(a_limit_on_file_sizes_that_memory_is_over_is_told_by_its_name) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [](parx::world& world) {
      const rlimit small{1'000'000, 1'000'000};
      ::setrlimit(RLIMIT_FSIZE, &small);
      auto area = parx::allocate_shared<float>(world, 4'000'000);
      parx::all_reduce(world, area);
    });
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 1, each.text);
    BOOST_TEST(mentions(each.text, "ulimit -f"), each.text);
  }
}

namespace {

/// A way for rank 0 to tell `others` a line, as PyTorch's store is one.
class line_of_rank_0 {
 public:
  explicit line_of_rank_0(int others) : others_(others) {
    if (::pipe(ends_) != 0) throw std::runtime_error("no pipe");
  }
  ~line_of_rank_0() {
    for (const int each : ends_) ::close(each);
  }
  line_of_rank_0(const line_of_rank_0&) = delete;
  line_of_rank_0& operator=(const line_of_rank_0&) = delete;

  [[nodiscard]] std::string share(const std::string& line) const {
    std::array<char, 256> record{};
    if (line.empty()) {
      if (::read(ends_[0], record.data(), record.size()) < 0) throw std::runtime_error("no line");
      return record.data();
    }
    std::copy(line.begin(), line.end(), record.begin());
    for (int i = 0; i < others_; ++i) {
      if (::write(ends_[1], record.data(), record.size()) < 0) throw std::runtime_error("no line");
    }
    return line;
  }

  /// Starts a rank that knows its number from the program alone.
  void start(job& all, int rank, parx::environment extra, const std::string& forged = "") const {
    const int size = others_ + 1;
    all.start_program(
        rank, size,
        [&, rank, size](parx::init_options options) {
          parx::launch_env self{.rank = rank, .world_size = size, .master_host = "127.0.0.1"};
          self.share_line = [&](const std::string& line) {
            const std::string given = share(line);
            return forged.empty() ? given : forged;
          };
          options.job = &self;
          options.rendezvous_timeout = 5s;
          const auto body = [](parx::world& world) {
            std::vector<int> x{world.rank()};
            parx::all_reduce(world, x);
            if (x[0] != 3) throw std::runtime_error("wrong sum");
          };
          return parx::run(body, std::move(options));
        },
        std::move(extra));
  }

 private:
  int others_;
  int ends_[2] = {-1, -1};
};

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_a_program_numbers_meet_by_a_line_of_rank_0) {
  const parx::environment secret{{"PARX_SECRET", "open-sesame-0123456789"}};
  parx::environment encrypted = secret;
  encrypted["PARX_TLS"] = "1";
  for (const auto& env : {parx::environment{}, secret, encrypted}) {
    job all;
    const line_of_rank_0 line(2);
    for (int rank = 0; rank < 3; ++rank) line.start(all, rank, env);
    for (const auto& each : all.wait()) {
      BOOST_TEST(each.exit_code == 0, each.text);
      BOOST_TEST(each.text == "");  // the line has a secret: there is nothing to warn of
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_a_program_numbers_are_told_why_they_cannot_meet) {
  {
    job all;
    const line_of_rank_0 line(2);
    for (int rank = 0; rank < 3; ++rank) line.start(all, rank, {{"PARX_TLS", "1"}});
    for (const auto& each : all.wait()) {
      BOOST_TEST(each.exit_code == 2);
      BOOST_TEST(mentions(each.text, "no key to encrypt with"), each.text);
    }
  }
  job all;
  const line_of_rank_0 line(2);
  line.start(all, 0, {{"PARX_SECRET", "open-sesame-0123456789"}});
  line.start(all, 1, {{"PARX_SECRET", "another-one-0123456789"}});
  line.start(all, 2, {{"PARX_SECRET", "open-sesame-0123456789"}}, "no address");
  const auto results = all.wait();
  BOOST_TEST(mentions(results[1].text, "secret"), results[1].text);
  BOOST_TEST(mentions(results[2].text, "does not say where rank 0 is"), results[2].text);
  for (const auto& each : results) BOOST_TEST(each.exit_code == 1);
}
