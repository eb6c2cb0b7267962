// current_failure: the exception that is being handled, as the reason why a group ends.
#pragma once

#include <exception>

#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/comm/detail/progress/failure.hpp>
#include <parx/comm/detail/progress/pending_calls.hpp>
#include <parx/core/error.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

/// To be called in a handler. Does not throw, even if there is no memory left for the text.
[[nodiscard, gnu::cold, gnu::noinline]] inline failure current_failure(
    links& network, const diagnosis& texts, const pending_calls& pending) noexcept try {
  try {
    throw;
  } catch (const header_mismatch& found) {
    return {texts.mismatch(found), errc::mismatch, found.peer};
  } catch (const message_mismatch& found) {
    return {texts.mismatch(found), errc::mismatch, found.peer};
  } catch (const link_lost& lost) {
    failure found = reason_of(lost, network);
    if (found.code == errc::peer_lost) found.text += pending.untaken_text(lost.peer);
    return found;
  } catch (const failure& known) {
    return known;
  } catch (const error& known) {
    return {known.message(), known.code_value(), -1, known.cause()};
  } catch (const std::exception& other) {
    return {other.what(), errc::io, -1, cause_of(other)};  // out of memory, of descriptors
  } catch (...) {  // thrown by a user's function
    return {"an exception that is not a std::exception", errc::io, -1, std::current_exception()};
  }
} catch (...) {
  return {"out of memory", errc::io, -1};  // short enough for the string's inline buffer
}

}  // namespace parx::detail
