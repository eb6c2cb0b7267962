// recv_any_shape: receives a message whose type and shape only the sender knows. Both are in the
// header before the data, so no extra message is needed.
//
//   parx::send(world, x, 1, {.extents = x.shape()});
//   parx::recv_any_shape(world, 0, [&](parx::dtype, const parx::axis_extents& extents) {
//     y = make_tensor(extents);
//     return std::as_writable_bytes(std::span(y.data(), y.size()));
//   });
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <parx/comm/axis_extents.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

/// Returns memory for a message of elements of `type`, at least as many bytes as they take.
template <typename Allocate>
concept message_allocator =
    requires(Allocate& allocate, dtype type, const axis_extents& extents) {
      { allocate(type, extents) } -> std::convertible_to<std::span<std::byte>>;
    };

namespace detail {

template <typename Allocate>
void fill_any_shape(const process_group& group, int from, Allocate&& allocate,
                    const any_shape_options& options, call_site site, call& request) {
  const call_check check(group, operation::recv, site);
  check.is_rank(from, "sending rank");
  check.fill_message(from, options, request);
  request.header.sizes = call_header::any_shape;
  const auto any_shape = std::make_shared<const any_shape_receive>(
      any_shape_receive{options.type, options.max_bytes, std::forward<Allocate>(allocate)});
  request.any_shape = any_shape.get();
  request.keep = any_shape;
}

}  // namespace detail

/// Blocks until the next message from rank `from` with this tag has arrived in the memory that
/// allocate(type, extents) returned. `allocate` is called once, when the message begins to arrive.
/// If the sender gave no extents, there is one: the number of elements. Structs arrive as bytes.
/// Throws usage_error for a rank outside the group. Throws parx::error, which closes the group, if
/// the message is not of options.type, or is larger than options.max_bytes or the memory, if
/// `allocate` throws, or if communication fails.
template <message_allocator Allocate>
void recv_any_shape(process_group& group, int from, Allocate&& allocate,
                    any_shape_options options = {}, call_site site = call_site::current()) {
  detail::call request;
  // Called on this thread or on the group's thread, but not after this function has returned.
  const auto by_reference = [&](dtype type, const axis_extents& extents) {
    return std::span<std::byte>(allocate(type, extents));
  };
  detail::fill_any_shape(group, from, by_reference, options, site, request);
  detail::run(group, request);
}

/// `allocate` is copied or moved. It is called on the thread that makes progress, which is not the
/// caller's, and must not use a group. The memory is borrowed until the work is waited for.
template <message_allocator Allocate>
[[nodiscard]] work async_recv_any_shape(process_group& group, int from, Allocate allocate,
                                        any_shape_options options = {},
                                        call_site site = call_site::current()) {
  auto request = std::make_unique<detail::call>();
  detail::fill_any_shape(group, from, std::move(allocate), options, site, *request);
  return detail::start(group, std::move(request));
}

}  // namespace parx
