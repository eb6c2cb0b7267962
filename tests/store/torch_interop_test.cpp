// parx and real PyTorch in one store, both ways round. Needs a Python with torch (Debian:
// python3-torch); PARX_TEST_PYTHON names the interpreter, default /usr/bin/python3.
#include <parx/store.hpp>

#include <store/store_claims.hpp>

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using parx::deadline;
using store_claims::message_of;
using store_claims::soon;

const char* python() {
  const char* const chosen = std::getenv("PARX_TEST_PYTHON");
  return chosen != nullptr ? chosen : "/usr/bin/python3";
}

// A Python process with its standard input and output as pipes; killed at the end if it still runs.
class python_process {
 public:
  explicit python_process(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), python());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
    to_ = parx::descriptor(in[1]);
    from_ = parx::descriptor(out[0]);
    const parx::descriptor child_in(in[0]);
    const parx::descriptor child_out(out[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
    if (::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), ::environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~python_process() {
    kill();
    (void)exit_status();
  }

  // One line of its output, without the line end; empty at its end.
  std::string line() {
    std::string result;
    const auto limit = deadline::after(60s);
    while (true) {
      pollfd polled{from_.get(), POLLIN, 0};
      char c = 0;
      if (::poll(&polled, 1, limit.poll_timeout()) <= 0 || ::read(from_.get(), &c, 1) != 1)
        return result;
      if (c == '\n') return result;
      result.push_back(c);
    }
  }

  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }

  // 0 when it ended well; waits for its end.
  int exit_status() {
    if (pid_ <= 0) return -1;
    to_.close();
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
  parx::descriptor to_;
  parx::descriptor from_;
};

std::string script(const char* name) {
  return (std::filesystem::path(__FILE__).parent_path() / name).string();
}

// Asked once: importing torch takes seconds.
bool torch_is_there() {
  static const bool found = [] {
    python_process probe(
        {"-c", "import torch, torch.distributed as d; d.TCPStore; print(torch.__version__)"});
    const std::string version = probe.line();
    const bool usable = probe.exit_status() == 0;
    if (usable) {
      std::cout << "interoperation with PyTorch " << version << std::endl;
    } else {
      std::cout << "\n**** SKIPPED: no interoperation test with real PyTorch, because `" << python()
                << " -c 'import torch.distributed'` fails.\n**** SKIPPED: install Debian's "
                   "python3-torch, or "
                   "set PARX_TEST_PYTHON.\n"
                << std::endl;
    }
    return usable;
  }();
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(pytorch_clients_rendezvous_in_a_store_that_parx_hosts) {
  if (!torch_is_there()) return;
  const parx::tcp_store_server server;
  parx::tcp_store store({.port = server.port()});
  store.set("from parx", std::string("bytes \x00\xff", 8), soon());
  store.add("shared counter", 1, soon());
  parx::prefix_store inner("inner", store);
  parx::prefix_store(std::string("outer"), inner).set("key", "nested", soon());

  python_process torch({script("torch_client.py"), std::to_string(server.port())});
  BOOST_TEST(torch.line() == "OK");
  BOOST_TEST(torch.exit_status() == 0);

  BOOST_TEST(store.get("from torch", soon()) == "hello parx");
  BOOST_TEST(store.get("shared counter", soon()) == "6");
  BOOST_TEST(store.get("large", soon()).size() == 3'000'000U);
  // What real process groups leave behind: two ranks' addresses, and their count.
  const std::vector<std::string> of_gloo{"0/0/0", "0/0/1"};
  BOOST_TEST(store.check(of_gloo, soon()));
  BOOST_TEST(server.wait_for_leavers(1, soon()));
}

BOOST_AUTO_TEST_CASE(parx_joins_a_store_that_pytorch_hosts) {
  if (!torch_is_there()) return;
  std::uint16_t port = 0;
  {
    const parx::tcp_store_server reserve;
    port = reserve.port();
  }
  python_process torch({script("torch_host.py"), std::to_string(port)});
  parx::tcp_store a({.port = port, .timeout = 60s, .workers = parx::worker_count::increment});
  BOOST_TEST((a.dialect() == parx::store_dialect::torch_1_13));
  a.add("joint", 40, soon());
  a.set("from parx", "hello torch", soon());
  BOOST_TEST(torch.line() == "READY");
  BOOST_TEST(a.get("from torch", soon()) == "hello parx");

  parx::tcp_store b({.port = port});
  store_claims::hold_for({a, b, /*compare_set_wakes=*/false});

  const auto watch = a.watch("abort", soon());
  torch.kill();
  pollfd polled{watch->descriptor(), POLLIN, 0};
  BOOST_TEST(::poll(&polled, 1, 5000) == 1);
  BOOST_TEST((watch->ready() == parx::watch_state::lost));
  message_of([&] { a.set("k", "v", soon()); }, parx::errc::peer_lost);
}
