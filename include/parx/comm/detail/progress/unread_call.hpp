// unread_call: data that a peer has sent for a collective that this rank never took part in.
//
// Looked for when a group is destroyed without a failure: if two ranks each take themselves for the
// root of its last call, both send and neither reads. Data that arrives later is not seen.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>

#include <parx/comm/detail/progress/call_record.hpp>
#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

struct unread_call {
  int peer;
  call_header theirs;
};

/// Takes the header off the link.
[[nodiscard, gnu::cold]] inline std::optional<unread_call> find_unread_call(links& network) {
  std::optional<unread_call> found;
  network.for_each_link(channel::collective, [&](int peer, link& stream) {
    if (found) return;
    call_header theirs;
    try {
      for (std::size_t filled = 0; filled < header_size;) {
        const std::size_t got = stream.try_receive(
            {reinterpret_cast<std::byte*>(&theirs) + filled, header_size - filled}, {});
        if (got == 0) return;
        filled += got;
      }
    } catch (const link_lost&) {
      return;  // the peer has ended, which no longer matters
    }
    if (theirs.magic == call_header::expected_magic) found = {peer, theirs};
  });
  return found;
}

/// For a group that ends without failure, with none of its calls pending: if a peer has sent data
/// for one of them that was never read, logs it, aborts the job and returns true. For later calls
/// the peer notices from the closed link that this rank took no part.
[[gnu::cold]] inline bool tell_of_unread_call(links& network, const diagnosis& texts,
                                              const call_record& record) noexcept {
  try {
    const auto found = find_unread_call(network);
    if (!found || found->theirs.number() > record.calls()) return false;
    const std::string text = formatted(
        "the ranks called different operations: rank {} of group \"{}\" has ended it after {} "
        "calls and has never read what {} sent for its call #{}, {}. Every rank must issue the "
        "same collectives in the same order with the same count, dtype and root",
        network.rank(), record.name(), record.calls(), network.describe(found->peer),
        found->theirs.number(), record.text_of(found->theirs));
    failure_record told = texts.record_of_end({text, errc::mismatch, found->peer}, nullptr);
    told.operation = name_of(static_cast<operation>(found->theirs.operation));
    told.sequence = found->theirs.number();
    told.text = formatted("rank {}: {}", told.rank, text);
    record.fail(told);
    log(log_level::error, "{}", text);
    network.job().abort(told);
    return true;
  } catch (const std::exception&) {
    return false;  // out of memory: the group ends without this report
  }
}

}  // namespace parx::detail
