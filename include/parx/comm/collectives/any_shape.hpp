// recv_any_shape: receives what the sender alone knows the type and shape of, without a message
// about it ahead: both are in the frame that precedes the bytes.
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

/// Memory for a message of elements of `type`: at least as many bytes as they take.
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
  const auto taker = std::make_shared<const message_taker>(
      message_taker{options.type, options.max_bytes, std::forward<Allocate>(allocate)});
  request.taker = taker.get();
  request.keep = taker;
}

}  // namespace detail

/// Blocks until the next message of rank `from` with this tag fills the memory that
/// allocate(type, extents) has returned. It is called once, when the message begins to arrive.
/// Where the sender gave no extents there is one, the number of elements; structs travel as bytes.
/// Throws usage_error for a rank outside the group, and parx::error, which closes the group, where
/// the message is not of options.type, or larger than options.max_bytes or the memory, where
/// `allocate` has thrown, and where communication fails.
template <message_allocator Allocate>
void recv_any_shape(process_group& group, int from, Allocate&& allocate,
                    any_shape_options options = {}, call_site site = call_site::current()) {
  detail::call request;
  // On this thread or on the group's, but not after this function has returned.
  const auto by_reference = [&](dtype type, const axis_extents& extents) {
    return std::span<std::byte>(allocate(type, extents));
  };
  detail::fill_any_shape(group, from, by_reference, options, site, request);
  detail::run(group, request);
}

/// `allocate` is copied or moved. It is called by the thread that moves the operation on, which is
/// not the caller's; the memory is borrowed until the work is waited for. It may use no group.
template <message_allocator Allocate>
[[nodiscard]] work async_recv_any_shape(process_group& group, int from, Allocate allocate,
                                        any_shape_options options = {},
                                        call_site site = call_site::current()) {
  auto request = std::make_unique<detail::call>();
  detail::fill_any_shape(group, from, std::move(allocate), options, site, *request);
  return detail::start(group, std::move(request));
}

}  // namespace parx
