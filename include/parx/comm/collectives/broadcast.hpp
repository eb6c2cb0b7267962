// broadcast: every rank ends with the root's vector.
//
// Collective. Any trivially copyable element type; every rank passes a buffer of the same size.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

template <mutable_movable_buffer Data>
[[nodiscard]] collective_arguments broadcast_arguments(Data& data, const broadcast_options& options,
                                                       call_site site) {
  const buffer_view view = movable_view_of(data);
  return {.what = operation::broadcast, .input = view.data, .output = view.data,
          .input_count = view.count, .output_count = view.count, .type = view.type,
          .root = options.root, .reduces = false, .op = {}, .factor = 1, .divide_by = nullptr, .use = options.use,
          .timeout = options.timeout, .site = site};
}

}  // namespace detail

/// Blocks until `data` holds the root's elements (on the root: until they have been handed over). Throws
/// usage_error before any I/O, parx::error when communication fails (the group is then closed).
template <mutable_movable_buffer Data>
void broadcast(process_group& group, Data&& data, broadcast_options options = {},
               call_site site = call_site::current()) {
  detail::run(group, detail::broadcast_arguments(data, options, site));
}

/// The buffer is borrowed until the work is waited for.
template <mutable_movable_buffer Data>
[[nodiscard]] work async_broadcast(process_group& group, Data&& data, broadcast_options options = {},
                                   call_site site = call_site::current()) {
  return detail::start(group, detail::broadcast_arguments(data, options, site));
}

}  // namespace parx
