// A job of real processes on this host: started by fork, each with its standard error in a file.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/descriptor.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch.hpp>

namespace processes {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

/// A socket that has a port of this host to itself.
inline parx::descriptor bound_socket() {
  auto made = parx::detail::stream_socket(AF_INET);
  const auto any = parx::detail::socket_address::tcp("127.0.0.1", 0);
  ::bind(made.get(), any.data(), any.length);
  return made;
}
inline std::uint16_t port_of(const parx::descriptor& bound) {
  return parx::detail::socket_address::of(bound.get()).port();
}
inline std::uint16_t free_port() { return port_of(bound_socket()); }

struct outcome {
  int exit_code = -1;  // 128 + signal for a killed one
  std::string text;    // standard error
  double seconds = 0;  // from the start of the job
};

struct child {
  pid_t pid = -1;
  std::string log;
};

class job {
 public:
  explicit job(std::uint16_t port = free_port()) : port_(port) {}

  /// Starts rank `rank` of `world` in a process of its own.
  void start(int rank, int world, const std::function<void(parx::world&)>& body,
             parx::environment extra = {}) {
    start_program(
        rank, world,
        [&body](parx::init_options options) { return parx::run(body, std::move(options)); },
        std::move(extra));
  }

  /// The same for a program that joins the job by itself; its exit code is what `program` returns.
  void start_program(int rank, int world, const std::function<int(parx::init_options)>& program,
                     parx::environment extra = {}) {
    const std::string log = "/tmp/parx-test." + std::to_string(::getpid()) + "." +
                            std::to_string(port_) + "." + std::to_string(children_.size());
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, STDERR_FILENO);
      parx::environment env{{"PARX_RANK", std::to_string(rank)},
                            {"PARX_WORLD_SIZE", std::to_string(world)},
                            {"PARX_LOCAL_RANK", std::to_string(rank)},
                            {"PARX_LOCAL_WORLD_SIZE", std::to_string(world)},
                            {"PARX_MASTER_ADDR", "127.0.0.1"},
                            {"PARX_MASTER_PORT", std::to_string(port_)},
                            // Jobs that fail on purpose keep their recorders.
                            {"PARX_RECORDER", "off"}};
      for (const auto& [name, value] : extra) env.insert_or_assign(name, value);
      parx::init_options options;
      options.env = env;
      ::_exit(program(options));
    }
    children_.push_back({pid, log});
  }

  [[nodiscard]] pid_t pid(std::size_t index) const { return children_[index].pid; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Waits for all, at most `patience`; kills and reports as -1 what is still there.
  std::vector<outcome> wait(std::chrono::seconds patience = 20s) {
    const auto since = clock_type::now();
    std::vector<outcome> results(children_.size());
    std::vector<bool> ended(children_.size(), false);
    for (std::size_t left = children_.size(); left > 0;) {
      for (std::size_t i = 0; i < children_.size(); ++i) {
        int status = 0;
        if (ended[i] || ::waitpid(children_[i].pid, &status, WNOHANG) <= 0) continue;
        ended[i] = true;
        --left;
        results[i].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        results[i].seconds = std::chrono::duration<double>(clock_type::now() - since).count();
      }
      if (clock_type::now() - since > patience) {
        for (std::size_t i = 0; i < children_.size(); ++i) {
          if (!ended[i]) {
            ::kill(children_[i].pid, SIGKILL);
            ::waitpid(children_[i].pid, nullptr, 0);
          }
        }
        break;
      }
      std::this_thread::sleep_for(2ms);
    }
    for (std::size_t i = 0; i < children_.size(); ++i) {
      std::ifstream file(children_[i].log);
      std::stringstream text;
      text << file.rdbuf();
      results[i].text = text.str();
      ::unlink(children_[i].log.c_str());
    }
    return results;
  }

 private:
  std::uint16_t port_;
  std::vector<child> children_;
};

}  // namespace processes
