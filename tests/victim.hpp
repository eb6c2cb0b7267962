// A process whose door is attacked: its memory and its descriptors are watched.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <boost/test/unit_test.hpp>

#include <parx/core/descriptor.hpp>
#include <parx/core/log.hpp>

namespace parx_test {

class victim {
 public:
  /// `serve` runs in a process of its own with so many descriptors, says at which port it listens,
  /// and does not return.
  explicit victim(
      const std::function<void(const std::function<void(std::uint16_t)>& listens)>& serve,
      rlim_t descriptors = 1024) {
    int told[2];
    BOOST_TEST_REQUIRE(::pipe2(told, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const rlimit limit{descriptors, descriptors};
      ::setrlimit(RLIMIT_NOFILE, &limit);
      parx::logger::instance().set_level(parx::log_level::error);
      try {
        serve([&](std::uint16_t port) {
          if (::write(told[1], &port, sizeof port) != sizeof port) ::_exit(1);
          std::thread([&] { need_descriptors(told[1]); }).detach();
        });
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(told[1]);
    told_ = parx::descriptor(told[0]);
    BOOST_TEST_REQUIRE(::read(told_.get(), &port_, sizeof port_) == sizeof port_);
    ::fcntl(told_.get(), F_SETFL, O_NONBLOCK);
    idle_ = memory("VmRSS:");
  }
  ~victim() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Whether the rest of its process found no descriptor.
  [[nodiscard]] bool ran_out() const {
    char word = 0;
    return ::read(told_.get(), &word, 1) > 0;
  }
  /// The most that it has taken beyond what it took at first.
  [[nodiscard]] double grown_mib() const { return memory("VmHWM:") - idle_; }
  /// The processor's time that it has had.
  [[nodiscard]] double busy_seconds() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    std::string word;
    double ticks = 0, part = 0;
    for (int field = 1; field <= 15 && stat >> word; ++field) {
      if (field >= 14 && !word.empty()) part = std::stod(word), ticks += part;
    }
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

 private:
  static void need_descriptors(int told) {
    for (;;) {
      const parx::descriptor own(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!own.valid() && ::write(told, "n", 1) != 1) ::_exit(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  [[nodiscard]] double memory(const std::string& what) const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    std::string word;
    double kib = 0;
    while (status >> word) {
      if (word == what) status >> kib;
    }
    return kib / 1024;
  }

  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
  parx::descriptor told_;
  double idle_ = 0;
};

}  // namespace parx_test
