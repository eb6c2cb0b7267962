// objects: values whose size the other ranks do not know.
//
// An object is a std::string, a std::vector of trivially copyable elements, a trivially copyable
// value, or any type with `to_bytes()` (returns a contiguous range of bytes or chars) and `static
// from_bytes(std::span<const std::byte>)`. Each call is two operations: the sizes, then the bytes.
// A size above options.max_bytes is refused by all ranks, before memory is allocated, with the same
// error (errc::bad_data); the group stays usable. Exceptions from to_bytes are thrown before any
// I/O, those from from_bytes after it. Bytes that are not whole elements are errc::bad_data.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/gather.hpp>
#include <parx/comm/collectives/message.hpp>
#include <parx/comm/collectives/scatter.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename T>
inline constexpr bool is_plain_vector = false;
template <typename E, typename A>
inline constexpr bool is_plain_vector<std::vector<E, A>> =
    std::is_trivially_copyable_v<E> && !std::is_same_v<E, bool>;

template <typename T>
concept has_bytes = requires(const T& object, std::span<const std::byte> bytes) {
  requires has_pointer_and_size<const std::remove_cvref_t<decltype(object.to_bytes())>>;
  requires sizeof(*std::data(object.to_bytes())) == 1;
  { T::from_bytes(bytes) } -> std::convertible_to<T>;
};

}  // namespace detail

template <typename T>
concept transferable = detail::has_bytes<T> || std::same_as<T, std::string> ||
    detail::is_plain_vector<T> ||
    (std::is_trivially_copyable_v<T>&& std::default_initializable<T> && !std::is_pointer_v<T>);

namespace detail {

template <typename T>
[[nodiscard]] std::vector<std::byte> bytes_of(const T& object) {
  const auto copy = [](std::span<const std::byte> bytes) {
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if constexpr (has_bytes<T>) {
    const auto made = object.to_bytes();
    return copy(std::as_bytes(std::span(made)));
  } else if constexpr (std::same_as<T, std::string> || is_plain_vector<T>) {
    return copy(std::as_bytes(std::span(object.data(), object.size())));
  } else {
    return copy(std::as_bytes(std::span(&object, 1)));
  }
}

template <typename T>
[[nodiscard]] T object_of(std::span<const std::byte> bytes, const char* what, call_site site) {
  [[maybe_unused]] const auto require_whole = [&](bool whole, std::size_t size) {
    if (whole) return;
    throw_error(errc::bad_data,
                "{} at {}: {} bytes arrived, which are no whole elements of {} bytes; all ranks "
                "must name the same type",
                what, site, bytes.size(), size);
  };
  if constexpr (has_bytes<T>) {
    return T::from_bytes(bytes);
  } else if constexpr (std::same_as<T, std::string>) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else if constexpr (is_plain_vector<T>) {
    using element = typename T::value_type;
    require_whole(bytes.size() % sizeof(element) == 0, sizeof(element));
    T object(bytes.size() / sizeof(element));
    if (!bytes.empty()) std::memcpy(static_cast<void*>(object.data()), bytes.data(), bytes.size());
    return object;
  } else {
    require_whole(bytes.size() == sizeof(T), sizeof(T));
    T object;
    std::memcpy(static_cast<void*>(&object), bytes.data(), sizeof(T));
    return object;
  }
}

/// Throws on all ranks or on none, because `sizes` are equal on all. Their sum is bounded as well.
inline void require_sizes(std::span<const std::size_t> sizes, const object_options& options,
                          const char* what, call_site site) {
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  if (*largest <= options.max_bytes && *largest <= static_cast<std::size_t>(-1) / sizes.size() / 2)
    return;
  throw_error(errc::bad_data,
              "{} at {}: an object of {} bytes is larger than max_bytes = {}; raise it in the "
              "options of all ranks",
              what, site, *largest, options.max_bytes);
}

[[nodiscard]] inline std::vector<std::size_t> agree_sizes(process_group& group, std::size_t mine,
                                                          const object_options& options,
                                                          const char* what, call_site site) {
  std::vector<std::size_t> sizes(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), sizes, {.timeout = options.timeout}, site);
  require_sizes(sizes, options, what, site);
  return sizes;
}

/// One object per rank, from the concatenated bytes.
template <typename T>
[[nodiscard]] std::vector<T> objects_of(std::span<const std::byte> bytes,
                                        std::span<const std::size_t> sizes, const char* what,
                                        call_site site) {
  std::vector<T> objects;
  objects.reserve(sizes.size());
  for (const std::size_t size : sizes) {
    objects.push_back(object_of<T>(bytes.first(size), what, site));
    bytes = bytes.subspan(size);
  }
  return objects;
}

}  // namespace detail

/// Collective. Every rank receives a copy of the root's object; the root's own is unchanged.
template <transferable T>
  requires(!std::is_const_v<T>)
void broadcast_object(process_group& group, T& object, object_options options = {},
                      call_site site = call_site::current()) {
  const bool is_root = group.rank() == options.root;
  std::vector<std::byte> bytes;
  if (is_root) bytes = detail::bytes_of(object);
  std::size_t size = bytes.size();
  broadcast(group, std::span(&size, 1), {.root = options.root, .timeout = options.timeout}, site);
  detail::require_sizes({&size, 1}, options, "broadcast_object", site);
  bytes.resize(size);
  broadcast(group, bytes, {.root = options.root, .timeout = options.timeout}, site);
  if (!is_root) object = detail::object_of<T>(bytes, "broadcast_object", site);
}

/// Collective. Returns all ranks' objects, in rank order.
template <transferable T>
[[nodiscard]] std::vector<T> all_gather_object(process_group& group, const T& object,
                                               object_options options = {},
                                               call_site site = call_site::current()) {
  const std::vector<std::byte> mine = detail::bytes_of(object);
  const auto sizes = detail::agree_sizes(group, mine.size(), options, "all_gather_object", site);
  std::vector<std::byte> all(std::reduce(sizes.begin(), sizes.end()));
  all_gather_v(group, mine, all, sizes, {.timeout = options.timeout}, site);
  return detail::objects_of<T>(all, sizes, "all_gather_object", site);
}

/// Collective. Returns all ranks' objects on the root, in rank order, and nothing elsewhere.
template <transferable T>
[[nodiscard]] std::vector<T> gather_object(process_group& group, const T& object,
                                           object_options options = {},
                                           call_site site = call_site::current()) {
  detail::call_check(group, operation::gather, site).is_rank(options.root, "root");
  const std::vector<std::byte> mine = detail::bytes_of(object);
  const auto sizes = detail::agree_sizes(group, mine.size(), options, "gather_object", site);
  const bool is_root = group.rank() == options.root;
  std::vector<std::byte> all(is_root ? std::reduce(sizes.begin(), sizes.end()) : 0);
  gather_v(group, mine, all, sizes, {.root = options.root, .timeout = options.timeout}, site);
  if (!is_root) return {};
  return detail::objects_of<T>(all, sizes, "gather_object", site);
}

/// Collective. Returns the root's objects[rank]. The root passes one object per rank, the others an
/// empty range.
template <transferable T>
[[nodiscard]] T scatter_object(process_group& group, std::span<const T> objects,
                               object_options options = {}, call_site site = call_site::current()) {
  const detail::call_check check(group, operation::scatter, site);
  check.is_rank(options.root, "root");
  std::vector<std::size_t> sizes(static_cast<std::size_t>(group.size()));
  std::vector<std::byte> all;
  if (group.rank() == options.root) {
    check.require(objects.size() == sizes.size(), "the root passed {} objects for {} ranks",
                  objects.size(), sizes.size());
    for (std::size_t i = 0; i < objects.size(); ++i) {
      const auto bytes = detail::bytes_of(objects[i]);
      sizes[i] = bytes.size();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  broadcast(group, sizes, {.root = options.root, .timeout = options.timeout}, site);
  detail::require_sizes(sizes, options, "scatter_object", site);
  std::vector<std::byte> mine(sizes[check.own_rank()]);
  scatter_v(group, all, mine, sizes, {.root = options.root, .timeout = options.timeout}, site);
  return detail::object_of<T>(mine, "scatter_object", site);
}
template <transferable T>
[[nodiscard]] T scatter_object(process_group& group, const std::vector<T>& objects,
                               object_options options = {}, call_site site = call_site::current()) {
  return scatter_object<T>(group, std::span<const T>(objects), options, site);
}

/// Blocks as send does. The object takes two messages with this tag.
template <transferable T>
void send_object(process_group& group, const T& object, int to, message_options options = {},
                 call_site site = call_site::current()) {
  const std::vector<std::byte> bytes = detail::bytes_of(object);
  const std::size_t size = bytes.size();
  send(group, std::span(&size, 1), to, options, site);
  send(group, bytes, to, options, site);
}

/// Blocks until the next object from rank `from` with this tag has arrived. An object larger than
/// `max_bytes` aborts the group, because its bytes would block all later messages.
template <transferable T>
[[nodiscard]] T recv_object(process_group& group, int from, message_options options = {},
                            std::size_t max_bytes = object_options{}.max_bytes,
                            call_site site = call_site::current()) {
  std::size_t size = 0;
  recv(group, std::span(&size, 1), from, options, site);
  try {
    detail::require_sizes({&size, 1}, {.max_bytes = max_bytes}, "recv_object", site);
  } catch (const error& refusal) {
    group.abort(text_of(refusal));
    throw;
  }
  std::vector<std::byte> bytes(size);
  recv(group, bytes, from, options, site);
  return detail::object_of<T>(bytes, "recv_object", site);
}

}  // namespace parx
