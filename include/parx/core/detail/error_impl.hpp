// Definitions of error.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::string error_category::message(int value) const {
  switch (static_cast<errc>(value)) {
    case errc::timeout:
      return "the deadline passed";
    case errc::peer_lost:
      return "a peer was lost";
    case errc::aborted:
      return "another rank failed first";
    case errc::mismatch:
      return "the ranks disagree";
    case errc::rendezvous_failed:
      return "the ranks did not find each other";
    case errc::protocol:
      return "a peer broke the protocol";
    case errc::closed:
      return "already closed by an earlier failure";
    case errc::io:
      return "the operating system refused";
    case errc::bad_data:
      return "the data are damaged";
  }
  return "unknown";
}

[[gnu::cold]] PARX_INLINE error::error(errc code, std::string message, error_context context,
                                       std::exception_ptr cause)
    : std::system_error(make_error_code(code)),
      what_(std::move(message)),
      context_(std::move(context)),
      cause_(std::move(cause)) {
  message_size_ = what_.size();
  if (cause_) end_sentence("; caused by: " + text_of(cause_));
  if (!context_.advice.empty()) end_sentence(". " + context_.advice);
}

PARX_INLINE void error::end_sentence(const std::string& more) {
  while (what_.ends_with('.')) what_.pop_back();
  message_size_ = std::min(message_size_, what_.size());
  what_ += more;
}

PARX_INLINE std::exception_ptr cause_of(const std::exception& failure) noexcept {
  const auto* const known = dynamic_cast<const error*>(&failure);
  if (known != nullptr && known->cause()) return known->cause();
  const auto* const nested = dynamic_cast<const std::nested_exception*>(&failure);
  return nested != nullptr ? nested->nested_ptr() : nullptr;
}

[[gnu::cold]] PARX_INLINE std::string text_of(const std::exception& failure) {
  const auto* const known = dynamic_cast<const error*>(&failure);
  std::string text = known != nullptr ? known->message() : failure.what();
  while (text.ends_with('.')) text.pop_back();
  const std::exception_ptr cause = cause_of(failure);
  return cause ? text + "; caused by: " + text_of(cause) : text;
}

[[gnu::cold]] PARX_INLINE std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& known) {
    return text_of(known);
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

PARX_INLINE void throw_usage_text(const std::string& text) {
  throw usage_error(text);
}

[[gnu::cold]] PARX_INLINE void throw_error_text(errc code, const std::string& text) {
  throw error(code, text);
}

PARX_INLINE std::string errno_text(int saved_errno) {
  return formatted("{} (errno {})", std::generic_category().message(saved_errno), saved_errno);
}

}  // namespace parx
