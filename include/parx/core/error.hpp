// The two kinds of failure that parx reports.
//
// usage_error: the call itself is wrong (a count, a dtype, a rank, an environment variable). It is
//   thrown before anything is sent, so a group stays usable.
// error: something went wrong outside the program's control (a peer died, a deadline passed, a file
//   is damaged). A std::system_error whose code is an errc; a communication error closes its group.
// An error keeps the exception that caused it, and what() includes the chain of causes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

enum class errc {
  timeout = 1,        ///< a deadline passed
  peer_lost,          ///< another rank's connection ended while it was still needed
  aborted,            ///< another rank failed first; the message quotes its reason
  mismatch,           ///< ranks disagree: operation, count, dtype, root, parameters or world size
  rendezvous_failed,  ///< the ranks did not find each other
  protocol,           ///< a peer sent bytes that are not of the protocol
  closed,             ///< the group or the store was closed by an earlier failure
  io,                 ///< the operating system refused a file or socket operation
  bad_data,           ///< a file's contents are not what they should be
};

/// The category of errc in std::error_code.
class error_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "parx"; }
  std::string message(int value) const override;
};

/// The one object of it.
[[nodiscard]] inline const std::error_category& category() noexcept {
  static const error_category instance;
  return instance;
}

/// For std::error_code code = errc::timeout.
[[nodiscard]] inline std::error_code make_error_code(errc value) noexcept {
  return {static_cast<int>(value), category()};
}

/// Where a failure belongs. Members that do not apply keep their defaults.
struct error_context {
  std::string operation{};      ///< "all_reduce", "rendezvous", "store get", ...
  std::string group{};          ///< the process group's name
  std::uint64_t sequence = 0;   ///< number of the collective in its group, 0 when there is none
  int rank = -1;                ///< this process's rank in the group
  int peer = -1;                ///< the rank that is to blame, -1 when nobody is known
  std::string host{};           ///< the host of `peer`
  double elapsed_seconds = 0;   ///< from the start of the operation to the failure
  std::string advice{};         ///< what to do about it, a sentence without its full stop
};

/// A failure outside the program's control. what() is a full sentence: what failed, where, why,
/// "; caused by: " with the text of the cause where there is one, and what to do. It already names
/// everything in context().
class error : public std::system_error {
 public:
  error(errc code, std::string message, error_context context = {},
        std::exception_ptr cause = nullptr);

  const char* what() const noexcept override { return what_.c_str(); }
  /// what() without causes and advice.
  [[nodiscard]] std::string message() const { return what_.substr(0, message_size_); }
  [[nodiscard]] errc code_value() const noexcept { return static_cast<errc>(code().value()); }
  [[nodiscard]] const error_context& context() const noexcept { return context_; }
  /// Null where this failure is the first.
  [[nodiscard]] const std::exception_ptr& cause() const noexcept { return cause_; }

 private:
  void end_sentence(const std::string& more);

  std::string what_;
  std::size_t message_size_ = 0;
  error_context context_;
  std::exception_ptr cause_;
};

/// The cause that a parx::error or std::throw_with_nested has kept, or null.
[[nodiscard]] std::exception_ptr cause_of(const std::exception& failure) noexcept;

/// The message of an exception and of its causes (see cause_of), to be embedded in a sentence:
/// without a full stop at its end, and without advice.
[[nodiscard]] std::string text_of(const std::exception& failure);
[[nodiscard]] std::string text_of(const std::exception_ptr& failure);

/// A wrong call, found before anything was sent. The object that threw it stays usable.
class usage_error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Throws usage_error with this sentence.
[[noreturn]] void throw_usage_text(const std::string& text);
/// The same of a format and its arguments.
template <typename... Args>
[[noreturn, gnu::cold]] void throw_usage(counted_text<sizeof...(Args)> text, const Args&... args) {
  throw_usage_text(formatted(text, args...));
}

/// Throws parx::error with this sentence.
[[noreturn]] void throw_error_text(errc code, const std::string& text);
/// The same of a format and its arguments.
template <typename... Args>
[[noreturn, gnu::cold]] void throw_error(errc code, counted_text<sizeof...(Args)> text,
                                         const Args&... args) {
  throw_error_text(code, formatted(text, args...));
}

/// "Permission denied (errno 13)" for a saved errno.
[[nodiscard]] std::string errno_text(int saved_errno);

}  // namespace parx

template <>
struct std::is_error_code_enum<parx::errc> : std::true_type {};

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/error_impl.hpp>
#endif
