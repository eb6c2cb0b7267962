// Definitions of vocabulary.hpp.
#pragma once

#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/printable.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE vocabulary::vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  require(tokens_.size() < (std::size_t{1} << 31U), "a vocabulary of {} tokens is too large",
          tokens_.size());
  ids_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    require(!tokens_[id].empty(), "token {} of the vocabulary is empty", id);
    const auto [found, is_new] = ids_.emplace(tokens_[id], static_cast<token_id>(id));
    require(is_new, "the token \"{}\" is number {} and number {} of the vocabulary", tokens_[id],
            found->second, id);
  }
}

PARX_INLINE vocabulary vocabulary::read(const std::string& path) {
  line_reader file(path, std::size_t{1} << 16U);
  vocabulary result;
  std::uint64_t first_empty = 0;
  for (std::string token; file.next(token);) {
    if (token.empty()) {
      if (first_empty == 0) first_empty = file.number();
      continue;
    }
    // Empty lines at the end are harmless; one between tokens shifts all ids after it.
    if (first_empty != 0)
      throw_error(errc::bad_data,
                  "\"{}\", line {}: the token is empty. Ids are line numbers, so a line that is "
                  "lost or added makes every later token wrong.",
                  path, first_empty);
    if (const auto at = find_invalid_utf8(token); at != std::string::npos)
      throw_error(errc::bad_data, "\"{}\", line {}: byte {} is not UTF-8. Is this a vocab.txt?",
                  path, file.number(), at + 1);
    const auto [found, is_new] = result.ids_.emplace(token, result.next_id());
    if (!is_new)
      throw_error(errc::bad_data,
                  "\"{}\", line {}: the token \"{}\" is there twice, first in line {}. Ids "
                  "are line numbers, so no line may be taken out: get the file again.",
                  path, file.number(), printable(token), found->second + 1);
    result.tokens_.push_back(token);
  }
  if (result.size() == 0) throw_error(errc::bad_data, "\"{}\" has no tokens.", path);
  return result;
}

PARX_INLINE std::string vocabulary::text() const {
  std::string result;
  for (const std::string& token : tokens_) {
    require(token.find_first_of("\n\r") == std::string::npos,
            "token {} has a line break and cannot be written to a vocab.txt", ids_.at(token));
    result.append(token).push_back('\n');
  }
  return result;
}

PARX_INLINE std::optional<token_id> vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

PARX_INLINE const std::string& vocabulary::token(token_id id) const {
  require(id >= 0 && static_cast<std::size_t>(id) < size(),
          "token id {} is outside a vocabulary of {}", id, size());
  return tokens_[static_cast<std::size_t>(id)];
}

PARX_INLINE std::uint64_t vocabulary::fingerprint() const {
  std::uint64_t result = size();
  for (const std::string& token : tokens_)
    result = (result ^ stable_hash(token)) * 0x9E3779B97F4A7C15;
  return result;
}

}  // namespace parx::data
