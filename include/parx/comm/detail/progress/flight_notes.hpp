// flight_notes: writes a group's calls into the rank's flight recorder, and the record of its
// failure beside it, if the rank has them.
// Threads: safe from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/flight/failure_log.hpp>
#include <parx/comm/flight/recorder.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

class flight_notes {
 public:
  flight_notes(std::shared_ptr<flight_recorder> recorder, std::shared_ptr<failure_log> failures)
      : recorder_(std::move(recorder)), failures_(std::move(failures)) {}

  void add_group(std::uint64_t id, std::string_view name, int size, int rank) const noexcept {
    if (recorder_ != nullptr) recorder_->add_group(id, name, size, rank);
  }
  void enter(call& request) const noexcept {
    if (recorder_ == nullptr) return;
    const std::size_t bytes =
        is_message(request) ? request.bytes : request.header.count * request.data.element_size;
    request.flight_ticket = recorder_->enter(request.header, bytes, request.peer, request.issued);
  }
  void finish(const call& request, flight_state state) const noexcept {
    if (recorder_ != nullptr) recorder_->finish(request.flight_ticket, state);
  }
  void fail(const failure_record& reason) const noexcept {
    if (recorder_ != nullptr) recorder_->fail(reason.text);
    if (failures_ != nullptr) failures_->write(reason);
  }
  /// A sentence for error messages; empty without a recorder.
  [[nodiscard]] std::string where() const {
    if (recorder_ == nullptr) return {};
    return formatted(". The ranks' last operations: parx_doctor recorder {}",
                     recorder_->directory());
  }

 private:
  std::shared_ptr<flight_recorder> recorder_;
  std::shared_ptr<failure_log> failures_;
};

}  // namespace parx::detail
