// flight_notes: writes a group's calls into the rank's flight recorder, if there is one.
// Threads: safe from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/flight/recorder.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

class flight_notes {
 public:
  explicit flight_notes(std::shared_ptr<flight_recorder> recorder)
      : recorder_(std::move(recorder)) {}

  void add_group(std::uint64_t id, std::string_view name, int size, int rank) const noexcept {
    if (recorder_ != nullptr) recorder_->add_group(id, name, size, rank);
  }
  void enter(call& request) const noexcept {
    if (recorder_ == nullptr) return;
    const std::size_t bytes = is_message(request)
                                  ? request.bytes
                                  : request.header.count * request.data.element_size;
    request.flight_ticket = recorder_->enter(request.header, bytes, request.peer);
  }
  void finish(const call& request, flight_state state) const noexcept {
    if (recorder_ != nullptr) recorder_->finish(request.flight_ticket, state);
  }
  void fail(std::string_view reason) const noexcept {
    if (recorder_ != nullptr) recorder_->fail(reason);
  }
  /// A sentence for error messages; empty without a recorder.
  [[nodiscard]] std::string where() const {
    if (recorder_ == nullptr) return {};
    return formatted(". The ranks' last operations: parx_doctor recorder {}",
                     recorder_->directory());
  }

 private:
  std::shared_ptr<flight_recorder> recorder_;
};

}  // namespace parx::detail
