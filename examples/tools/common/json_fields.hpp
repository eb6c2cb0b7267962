// json_fields: a struct as JSON and back, by one list of its fields, which the struct has:
//
//   struct path_fact {
//     std::string path;
//     std::uint64_t size = 0;
//     static void for_each_field(auto& self, auto&& visit) {
//       visit("path", self.path);
//       visit("size", self.size);
//     }
//   };
//
// A field is a number, a flag, a text, such a struct, or a vector or an optional of these. A type
// with a form of its own has functions to_json() and read_json() in its namespace. Pure.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::json {

namespace detail {

template <typename T>
inline constexpr bool is_vector = false;
template <typename T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
/// What a value is by itself.
template <typename T>
inline constexpr bool is_plain = std::is_arithmetic_v<T> || std::same_as<T, std::string>;

}  // namespace detail

template <typename T>
[[nodiscard]] value to_json(const T& what) {
  if constexpr (detail::is_plain<T>) {
    return what;
  } else if constexpr (detail::is_optional<T>) {
    return what ? to_json(*what) : value();
  } else if constexpr (detail::is_vector<T>) {
    array elements;
    for (const auto& each : what) elements.push_back(to_json(each));
    return elements;
  } else {
    object members;
    T::for_each_field(
        what, [&](std::string_view name, const auto& field) { members[name] = to_json(field); });
    return members;
  }
}

/// Throws json::error where `from` is not from to_json() of such a struct.
template <typename T>
void read_json(const value& from, T& into) {
  if constexpr (detail::is_plain<T>) {
    into = from.as<T>();
  } else if constexpr (detail::is_optional<T>) {
    into.reset();
    if (!from.is_null()) read_json(from, into.emplace());
  } else if constexpr (detail::is_vector<T>) {
    into.clear();
    for (const value& each : from.elements()) read_json(each, into.emplace_back());
  } else {
    T::for_each_field(into,
                      [&](std::string_view name, auto& field) { read_json(from.at(name), field); });
  }
}

template <typename T>
[[nodiscard]] T from_json(const value& from) {
  T made;
  read_json(from, made);
  return made;
}

}  // namespace parx::json
