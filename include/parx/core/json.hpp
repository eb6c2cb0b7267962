// JSON as a value: parse, look, change, write.
//
//   json::value config = json::parse(text);
//   const auto layers = config.at("num_hidden_layers").as<std::size_t>();
//   config["hidden_size"] = 64;
//   write(json::dump(config, 2));
//
// Strict: one value and nothing after it, no key twice, no NaN. Objects keep the order of their
// members, so that a file which is read and written again can be compared. A value belongs to one
// thread at a time. json_reader.hpp reads text without building values. Source: RFC 8259.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/core/json_quote.hpp>
#include <parx/core/json_reader.hpp>

namespace parx::inline PARX_ABI::json {

class value;
using array = std::vector<value>;
struct member;

/// Members in the order in which they were added.
class object {
 public:
  // Defined below, where a member is a complete type.
  object() noexcept;
  object(const object&);
  object(object&&) noexcept;
  object& operator=(const object&);
  object& operator=(object&&) noexcept;
  ~object();
  object(std::initializer_list<member> members);

  /// The member of this name, or nullptr.
  [[nodiscard]] const value* find(std::string_view key) const noexcept;
  /// The member of this name; a missing one is added at the end, as null.
  value& operator[](std::string_view key);

  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] const member* begin() const noexcept;
  [[nodiscard]] const member* end() const noexcept;
  friend bool operator==(const object& a, const object& b);

 private:
  friend value parse_value(reader& from);
  std::vector<member> members_;
};

/// null, true or false, a number, a string, an array or an object. Whole numbers are exact from
/// -2^63 to 2^64 - 1; all others are doubles.
class value {
 public:
  value() noexcept = default;
  value(std::nullptr_t) noexcept {}                                  // NOLINT(*-explicit-*)
  value(std::same_as<bool> auto flag) noexcept : held_(flag) {}      // NOLINT(*-explicit-*)
  value(std::floating_point auto number) noexcept                    // NOLINT(*-explicit-*)
      : held_(static_cast<double>(number)) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) value(T number) noexcept {        // NOLINT(*-explicit-*)
    if (std::in_range<std::uint64_t>(number)) {
      held_ = static_cast<std::uint64_t>(number);
    } else {
      held_ = static_cast<std::int64_t>(number);
    }
  }
  value(std::string text) : held_(std::move(text)) {}                // NOLINT(*-explicit-*)
  value(std::string_view text) : held_(std::string(text)) {}         // NOLINT(*-explicit-*)
  value(const char* text) : held_(std::string(text)) {}              // NOLINT(*-explicit-*)
  value(json::array elements) : held_(std::move(elements)) {}        // NOLINT(*-explicit-*)
  value(json::object members) : held_(std::move(members)) {}         // NOLINT(*-explicit-*)

  [[nodiscard]] bool is_null() const noexcept { return holds<std::nullptr_t>(); }
  [[nodiscard]] bool is_bool() const noexcept { return holds<bool>(); }
  [[nodiscard]] bool is_integer() const noexcept {
    return holds<std::uint64_t>() || holds<std::int64_t>();
  }
  /// Whether this is a whole number below 0.
  [[nodiscard]] bool is_negative() const noexcept { return holds<std::int64_t>(); }
  [[nodiscard]] bool is_number() const noexcept { return is_integer() || holds<double>(); }
  [[nodiscard]] bool is_string() const noexcept { return holds<std::string>(); }
  [[nodiscard]] bool is_array() const noexcept { return holds<json::array>(); }
  [[nodiscard]] bool is_object() const noexcept { return holds<json::object>(); }

  /// This value as T: bool, an integer type that can hold it, a floating-point type, std::string.
  /// Throws json::error, naming both, where it is something else.
  template <typename T>
  [[nodiscard]] T as() const {
    if constexpr (std::same_as<T, bool>) {
      return get<bool>("true or false");
    } else if constexpr (std::integral<T>) {
      if (const auto* positive = std::get_if<std::uint64_t>(&held_);
          positive != nullptr && std::in_range<T>(*positive))
        return static_cast<T>(*positive);
      if (const auto* negative = std::get_if<std::int64_t>(&held_);
          negative != nullptr && std::in_range<T>(*negative))
        return static_cast<T>(*negative);
      wrong(formatted("a whole number from {} to {}", +std::numeric_limits<T>::min(),
                      +std::numeric_limits<T>::max()));
    } else if constexpr (std::floating_point<T>) {
      if (const auto* positive = std::get_if<std::uint64_t>(&held_))
        return static_cast<T>(*positive);
      if (const auto* negative = std::get_if<std::int64_t>(&held_))
        return static_cast<T>(*negative);
      return static_cast<T>(get<double>("a number"));
    } else {
      static_assert(std::same_as<T, std::string>);
      return get<std::string>("a string");
    }
  }
  /// The text of a string, the elements of an array, the members of an object, or json::error.
  [[nodiscard]] const std::string& text() const { return get<std::string>("a string"); }
  [[nodiscard]] const json::array& elements() const { return get<json::array>("an array"); }
  [[nodiscard]] const json::object& members() const { return get<json::object>("an object"); }
  [[nodiscard]] json::array& elements() { return mutable_as<json::array>("an array"); }
  [[nodiscard]] json::object& members() { return mutable_as<json::object>("an object"); }

  /// A member of an object, or nullptr; nullptr also where this is no object.
  [[nodiscard]] const value* find(std::string_view key) const noexcept;
  [[nodiscard]] bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }
  /// A member of an object. Throws json::error naming `key` where there is none.
  [[nodiscard]] const value& at(std::string_view key) const;
  /// The member `key` as T. Throws json::error naming `key` where it is missing or something else.
  template <typename T>
  [[nodiscard]] T as(std::string_view key) const {
    const value& found = at(key);
    try {
      return found.as<T>();
    } catch (const error& failure) {
      throw error(formatted("\"{}\": {}", key, failure.what()));
    }
  }
  /// The same, or `otherwise` where it is missing or null.
  template <typename T>
  [[nodiscard]] T get_or(std::string_view key, T otherwise) const {
    const value* const found = find(key);
    return found == nullptr || found->is_null() ? otherwise : as<T>(key);
  }
  /// A member, to be changed; a missing one is added. null becomes an object.
  value& operator[](std::string_view key);
  /// Adds an element; null becomes an array.
  void push_back(value element);

  friend bool operator==(const value&, const value&) = default;

 private:
  template <typename T>
  [[nodiscard]] bool holds() const noexcept {
    return std::holds_alternative<T>(held_);
  }
  template <typename T>
  [[nodiscard]] const T& get(std::string_view wanted) const {
    if (const T* found = std::get_if<T>(&held_)) return *found;
    wrong(wanted);
  }
  template <typename T>
  [[nodiscard]] T& mutable_as(std::string_view wanted) {
    return const_cast<T&>(std::as_const(*this).get<T>(wanted));
  }
  [[noreturn]] void wrong(std::string_view wanted) const;

  std::variant<std::nullptr_t, bool, std::uint64_t, std::int64_t, double, std::string, json::array,
               json::object>
      held_;
};

struct member {
  std::string key;
  value held;
  friend bool operator==(const member&, const member&) = default;
};

inline object::object() noexcept = default;
inline object::object(const object&) = default;
inline object::object(object&&) noexcept = default;
inline object& object::operator=(const object&) = default;
inline object& object::operator=(object&&) noexcept = default;
inline object::~object() = default;
inline bool operator==(const object& a, const object& b) { return a.members_ == b.members_; }

/// Reads the next value of `from`.
[[nodiscard]] value parse_value(reader& from);

struct parse_options {
  std::size_t max_bytes = 100'000'000;  ///< a longer text is refused unread
};

/// The one value that `text` is. Throws json::error with line and column.
[[nodiscard]] value parse(std::string_view text, parse_options options = {});

namespace detail {

void append(std::string& out, const value& what, unsigned indent, unsigned depth);

}  // namespace detail

/// The text of a value: on one line, or one line for each member and element, indented by `indent`
/// spaces, where that is above 0. parse() restores every finite double exactly; NaN and infinities,
/// which JSON lacks, are written as null.
[[nodiscard]] std::string dump(const value& what, unsigned indent = 0);

}  // namespace parx::json

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/json_impl.hpp>
#endif
