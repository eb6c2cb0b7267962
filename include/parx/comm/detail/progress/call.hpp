// call: one operation of a group, from its issue to its end, without types.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <parx/comm/axis_extents.hpp>
#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/comm/detail/progress/collective_data.hpp>
#include <parx/comm/options.hpp>
#include <parx/comm/schedule/operation.hpp>
#include <parx/comm/schedule/execution_plan.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI::detail {

/// For a receive that does not know the message's type and shape: what it accepts, and its memory.
struct any_shape_receive {
  std::optional<dtype> type;  ///< if set, the only type accepted
  std::size_t max_bytes;
  std::function<std::span<std::byte>(dtype, const axis_extents&)> allocate;
};

struct call {
  operation what = operation::barrier;
  const char* form = "";  ///< "_v": what the called function's name has beyond the operation's
  call_site site;
  std::chrono::milliseconds timeout{0};

  // A collective: its plan, buffers and fingerprint.
  const execution_plan* plan = nullptr;
  collective_data data;
  call_header header;

  bool names_absent_ranks = false;     ///< a timeout names all ranks that are not in the call
  bool sets_up_memory = false;         ///< issued by the group itself, see host_memory.hpp
  bool timed = false;                  ///< counts in progress::async_seconds()
  bool timed_after_start = false;      ///< it is shorter than reading the clock twice: call_record
  std::shared_ptr<const void> keep{};  ///< owns what `data` refers to
  /// Owns `plan` if the call cache may drop them before the call ends.
  std::shared_ptr<const execution_plan> kept_plan{};

  // A message: the other rank and the user's memory (read by send, written by recv).
  int peer = -1;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  axis_extents extents{};                        ///< of a send
  const any_shape_receive* any_shape = nullptr;  ///< of a recv_any_shape

  // Set by the group.
  deadline::clock::time_point issued{};  ///< timed_after_start: after its first step
  bool done = false;
  std::exception_ptr failure;
  std::uint64_t flight_ticket = 0;  ///< in the rank's flight recorder

  std::unique_ptr<call> next;  ///< chained: issued and waited for together with this call

  /// Unset before it is issued.
  [[nodiscard]] deadline until() const noexcept {
    return issued == deadline::clock::time_point{} ? deadline::unset()
                                                   : deadline::after(timeout, issued);
  }
  [[nodiscard]] bool all_done() const noexcept {
    for (const call* each = this; each != nullptr; each = each->next.get()) {
      if (!each->done) return false;
    }
    return true;
  }
  /// Throws the first failure of the chain, if any.
  void rethrow() const {
    for (const call* each = this; each != nullptr; each = each->next.get()) {
      if (each->failure) std::rethrow_exception(each->failure);
    }
  }
};

/// In call::peer: a receive from any rank that no message has matched yet (MPI_ANY_SOURCE).
inline constexpr int any_source = -1;

/// The function that was called: "all_gather_v".
[[nodiscard]] inline std::string name_of(const call& request) {
  return formatted("{}{}", name_of(request.what), request.form);
}
[[nodiscard]] inline bool is_message(const call& request) noexcept {
  return request.what == operation::send || request.what == operation::recv;
}
[[nodiscard]] inline bool is_any_source(const call& request) noexcept {
  return request.what == operation::recv && request.peer == any_source;
}

/// Writes the operation and the call site into the header.
inline void name_call(call& request) noexcept {
  request.header.operation = static_cast<std::uint8_t>(
      // A send and its receive have the same fingerprint.
      is_message(request) ? operation::send : request.what);
  request.header.line = static_cast<std::uint32_t>(request.site.line);
  request.header.set_file(request.site.file_name());
}

/// Whether `root` is the tag of a collective.
[[nodiscard]] inline bool has_tag(const call_header& header) noexcept {
  const auto op = static_cast<operation>(header.operation);
  return header.root >= 0 && !has_root(op) && op != operation::send && op != operation::recv;
}

/// "all_reduce of 1024 float32 (sum) at train.cpp:88", from a header. `tag`: what that stands for,
/// where it is known.
[[nodiscard]] inline std::string describe(const call_header& header, std::string_view tag = {}) {
  const auto op = static_cast<operation>(header.operation);
  std::string text{name_of(op)};
  if (op == operation::all_to_all && header.count == 0 && header.sizes != 0) {
    text += "_v";  // each link has its own count
  } else if (op == operation::recv && header.sizes == call_header::any_shape) {
    text += " of any shape";
  } else if (op != operation::barrier) {
    text +=
        formatted(" of {} {}", header.count,
                  header.type == call_header::user_type ? "structs"
                                                        : name_of(static_cast<dtype>(header.type)));
  }
  if (header.reduction != call_header::no_reduction) {
    text += formatted(" ({})", header.reduction == call_header::user_reduction
                                   ? "user's operation"
                                   : name_of(static_cast<reduce_op>(header.reduction)));
  }
  if (has_root(op)) text += formatted(" with root {}", header.root);
  if (!has_root(op) && header.root >= 0) {
    text += tag.empty() ? formatted(" with tag {}", header.root) : formatted(" for {}", tag);
  }
  if (header.algorithm != 0 && op != operation::barrier) {
    text += formatted(" by {}", name_of(static_cast<algorithm>(header.algorithm)));
  }
  if (header.line != 0) text += formatted(" at {}:{}", header.file_name(), header.line);
  return text;
}

}  // namespace parx::detail
