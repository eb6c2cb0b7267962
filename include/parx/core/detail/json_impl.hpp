// Definitions of json.hpp.
#pragma once

#include <cmath>
#include <unordered_set>

#include <parx/core/json.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::json {

PARX_INLINE const value* value::find(std::string_view key) const noexcept {
  const auto* members = std::get_if<json::object>(&held_);
  return members == nullptr ? nullptr : members->find(key);
}

PARX_INLINE const value& value::at(std::string_view key) const {
  if (const value* found = members().find(key)) return *found;
  throw error(formatted("there is no \"{}\"", key));
}

PARX_INLINE value& value::operator[](std::string_view key) {
  if (is_null()) held_ = json::object{};
  return members()[key];
}

PARX_INLINE void value::push_back(value element) {
  if (is_null()) held_ = json::array{};
  elements().push_back(std::move(element));
}

PARX_INLINE object::object(std::initializer_list<member> members) {
  for (const auto& [key, held] : members) (*this)[key] = held;
}

PARX_INLINE std::size_t object::size() const noexcept { return members_.size(); }

PARX_INLINE const member* object::begin() const noexcept { return members_.data(); }

PARX_INLINE const member* object::end() const noexcept { return members_.data() + members_.size(); }

PARX_INLINE const value* object::find(std::string_view key) const noexcept {
  for (const auto& [name, held] : members_) {
    if (name == key) return &held;
  }
  return nullptr;
}

PARX_INLINE value& object::operator[](std::string_view key) {
  if (const value* found = find(key)) return const_cast<value&>(*found);
  members_.push_back({std::string(key), {}});
  return members_.back().held;
}

PARX_INLINE value parse_value(reader& from) {
  switch (from.peek()) {
    case '{': {
      object members;
      std::unordered_set<std::string> keys;
      from.object([&](std::string key) {
        if (!keys.insert(key).second) from.fail(formatted("\"{}\" once", key));
        members.members_.push_back({std::move(key), parse_value(from)});
      });
      return members;
    }
    case '[': {
      array elements;
      from.array([&] { elements.push_back(parse_value(from)); });
      return elements;
    }
    case '"':
      return from.string();
    default:
      break;
  }
  if (from.word("true")) return true;
  if (from.word("false")) return false;
  if (from.word("null")) return nullptr;
  const std::string_view text = from.number_text();
  using parx::detail::parse_number;
  if (const auto positive = parse_number<std::uint64_t>(text)) return *positive;
  if (const auto negative = parse_number<std::int64_t>(text); negative && text != "-0") {
    return *negative;
  }
  if (const auto number = parse_number<double>(text)) return *number;
  from.fail("a number that a double can hold");
}

PARX_INLINE value parse(std::string_view text, parse_options options) {
  if (text.size() > options.max_bytes)
    throw error(
        formatted("{} bytes are more than the limit of {}", text.size(), options.max_bytes));
  reader from(text);
  value result = parse_value(from);
  from.end();
  return result;
}

}  // namespace parx::json

namespace parx::inline PARX_ABI::json::detail {

PARX_INLINE void append(std::string& out, const value& what, unsigned indent, unsigned depth) {
  const auto new_line = [&](unsigned levels) {
    if (indent > 0) out.append("\n").append(std::size_t{indent} * levels, ' ');
  };
  const auto list = [&](char opening, char closing, const auto& items, auto&& each) {
    out += opening;
    for (const auto& item : items) {
      if (&item != &*items.begin()) out += indent > 0 ? "," : ", ";
      new_line(depth + 1);
      each(item);
    }
    if (items.size() > 0) new_line(depth);
    out += closing;
  };
  if (what.is_object()) {
    list('{', '}', what.members(), [&](const member& one) {
      out.append(quote(one.key)).append(": ");
      append(out, one.held, indent, depth + 1);
    });
  } else if (what.is_array()) {
    list('[', ']', what.elements(), [&](const value& one) { append(out, one, indent, depth + 1); });
  } else if (what.is_string()) {
    out += quote(what.text());
  } else if (what.is_bool()) {
    out += what.as<bool>() ? "true" : "false";
  } else if (what.is_integer()) {
    out += what.is_negative() ? std::to_string(what.as<std::int64_t>())
                              : std::to_string(what.as<std::uint64_t>());
  } else if (what.is_number() && std::isfinite(what.as<double>())) {
    const std::string digits = formatted("{}", what.as<double>());
    out += digits;
    // Without a point it would be read back as an integer.
    if (digits.find_first_of(".e") == std::string::npos) out += ".0";
  } else {
    out += "null";
  }
}

}  // namespace parx::json::detail

namespace parx::inline PARX_ABI::json {

PARX_INLINE std::string dump(const value& what, unsigned indent) {
  std::string result;
  detail::append(result, what, indent, 0);
  return result;
}

PARX_INLINE void value::wrong(std::string_view wanted) const {
  std::string found = is_array() ? "an array" : is_object() ? "an object" : dump(*this);
  if (found.size() > 60) found = "a long string";
  throw error(formatted("expected {}, found {}", wanted, found));
}

}  // namespace parx::json
