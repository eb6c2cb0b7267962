// exit_status: how a process has ended.
#pragma once

#include <string>

#include <parx/core/formatted.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

struct exit_status {
  int code = 0;    ///< what it returned, where signal is 0
  int signal = 0;  ///< what killed it

  [[nodiscard]] bool success() const noexcept { return code == 0 && signal == 0; }
  /// It was stopped, has saved its work, and can be started again.
  [[nodiscard]] bool has_saved() const noexcept { return code == stopped_exit_code && signal == 0; }
  /// Both in one number, as the shell reports them.
  [[nodiscard]] int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }

  static void for_each_field(auto& self, auto&& visit) {
    visit("code", self.code);
    visit("signal", self.signal);
  }
};

[[nodiscard]] inline std::string to_string(const exit_status& status) {
  if (status.signal != 0) {
    return formatted("killed by {} (signal {})", signal_name(status.signal), status.signal);
  }
  return formatted("exit code {}", status.code);
}

}  // namespace parx::detail
