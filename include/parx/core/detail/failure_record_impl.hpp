// Definitions of failure_record.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <utility>

#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json_quote.hpp>
#include <parx/core/json_reader.hpp>
#include <parx/core/log.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// In files, where numbers would tie them to one version of parx.
inline constexpr std::array<std::pair<errc, std::string_view>, 9> errc_names{
    {{errc::timeout, "timeout"},
     {errc::peer_lost, "peer_lost"},
     {errc::aborted, "aborted"},
     {errc::mismatch, "mismatch"},
     {errc::rendezvous_failed, "rendezvous_failed"},
     {errc::protocol, "protocol"},
     {errc::closed, "closed"},
     {errc::io, "io"},
     {errc::bad_data, "bad_data"}}};

/// A whole number, or 0 where the text is none.
template <typename Number>
[[nodiscard]] Number number_of(std::string_view text) noexcept {
  Number number{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? number : Number{};
}

[[gnu::cold]] inline void read_parx_fields(json::reader& from, failure_record& record) {
  from.object([&](const std::string& key) {
    const auto text = [&] { return printable(from.string()); };
    if (key == "unix_ns") record.unix_ns = number_of<std::int64_t>(from.number_text());
    else if (key == "rank") record.rank = number_of<int>(from.number_text());
    else if (key == "blamed") record.blamed = number_of<int>(from.number_text());
    else if (key == "sequence") record.sequence = number_of<std::uint64_t>(from.number_text());
    else if (key == "host") record.host = text();
    else if (key == "operation") record.operation = text();
    else if (key == "group") record.group = text();
    else if (key == "site") record.site = text();
    else if (key == "is_for_now") {
      record.is_for_now = from.word("true");
      if (!record.is_for_now) from.skip();
    } else if (key == "code") {
      const std::string name = from.string();
      for (const auto& [code, known] : errc_names) {
        if (name == known) record.code = code;
      }
    } else {
      from.skip();
    }
  });
}

/// The member "message" of PyTorch's file: a text, or an object with more about the failure.
inline void read_message(json::reader& from, failure_record& record) {
  const auto text = [&] { return printable(from.string(), line_breaks::indent); };
  if (from.peek() == '"') {
    record.text = text();
    return;
  }
  from.object([&](const std::string& key) {
    if (key == "message") {
      record.text = text();
    } else if (key == "extraInfo") {
      from.object([&](const std::string& extra) {
        if (extra == "parx") {
          read_parx_fields(from, record);
        } else if (extra == "timestamp" && from.peek() == '"') {
          const auto seconds = number_of<std::int64_t>(from.string());
          static constexpr std::int64_t second = 1'000'000'000;
          const bool fits =
              seconds > 0 && seconds < std::numeric_limits<std::int64_t>::max() / second;
          if (record.unix_ns == 0 && fits) record.unix_ns = seconds * second;
        } else {
          from.skip();
        }
      });
    } else {
      from.skip();
    }
  });
}

}  // namespace detail

PARX_INLINE failure_kind failure_record::kind() const noexcept {
  if (!code) return failure_kind::own;
  switch (*code) {
    case errc::timeout:
    case errc::mismatch:
    case errc::rendezvous_failed:
      // Without a group it is the program's own comparison or file, or its wait for a key.
      return group.empty() ? failure_kind::own : failure_kind::accuses;
    case errc::peer_lost:
      return failure_kind::lost_peer;
    case errc::aborted:
    case errc::closed:
      return failure_kind::told;
    case errc::protocol:
    case errc::io:
    case errc::bad_data:
      break;
  }
  return failure_kind::own;
}

[[gnu::cold]] PARX_INLINE failure_record record_of(const std::exception_ptr& failure, int rank) {
  failure_record record;
  record.unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  record.rank = rank;
  if (failure == nullptr) return record;
  record.text = text_of(failure);
  try {
    std::rethrow_exception(failure);
  } catch (const error& known) {
    const error_context& where = known.context();
    record.code = known.code_value();
    record.blamed = where.peer;
    record.host = where.host;
    record.operation = where.operation;
    record.group = where.group;
    record.sequence = where.sequence;
  } catch (...) {  // no parx::error: a code is not known
  }
  return record;
}

[[gnu::cold]] PARX_INLINE std::string blame_tag(const failure_record& record) {
  if (record.kind() == failure_kind::own) return {};
  if (record.blamed < 0) return ", after another rank";
  return formatted(", after rank {}{}{}", record.blamed, record.host.empty() ? "" : " on ",
                   printable(record.host));
}

[[gnu::cold]] PARX_INLINE std::optional<blamed_rank> blame_in_line(std::string_view line) {
  constexpr std::string_view mark = ", after ", of_rank = "rank ", on = " on ";
  line.remove_prefix(std::min(line.find(log_line_begin), line.size()));
  const auto at = line.find(mark), tag_end = line.find(log_line_error);
  if (tag_end == line.npos || at > tag_end) return std::nullopt;
  line = line.substr(0, tag_end);
  line.remove_prefix(at + mark.size());
  if (!line.starts_with(of_rank)) return blamed_rank{};
  line.remove_prefix(of_rank.size());
  const auto end = std::min(line.find(on), line.size());
  const std::string_view digits = line.substr(0, end);
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  return blamed_rank{detail::number_of<int>(digits),
                     std::string(line.substr(std::min(end + on.size(), line.size())))};
}

[[gnu::cold]] PARX_INLINE std::string to_text(const failure_record& record) {
  static constexpr std::size_t longest = 4096;
  std::string_view code;
  for (const auto& [value, name] : detail::errc_names) {
    if (record.code == value) code = name;
  }
  const std::string text = json::quote(std::string_view(record.text).substr(0, longest));
  return formatted(
      "{{\"message\": {{\"message\": {}, \"extraInfo\": {{\"py_callstack\": {}, \"timestamp\": "
      "\"{}\", \"parx\": {{\"unix_ns\": {}, \"code\": {}, \"rank\": {}, \"blamed\": {}, \"host\": "
      "{}, \"operation\": {}, \"group\": {}, \"sequence\": {}, \"site\": {}, \"is_for_now\": "
      "{}}}}}}}}}\n",
      text, text, record.unix_ns / 1'000'000'000, record.unix_ns, json::quote(code), record.rank,
      record.blamed, json::quote(record.host), json::quote(record.operation),
      json::quote(record.group), record.sequence, json::quote(record.site), record.is_for_now);
}

[[gnu::cold]] PARX_INLINE std::optional<failure_record> failure_from_text(std::string_view text) {
  try {
    failure_record record;
    bool found = false;
    json::reader from(text);
    from.object([&](const std::string& key) {
      if (key != "message") return from.skip();
      found = true;
      detail::read_message(from, record);
    });
    from.end();
    return found ? std::optional(std::move(record)) : std::nullopt;
  } catch (const json::error&) {
    return std::nullopt;
  }
}

}  // namespace parx
