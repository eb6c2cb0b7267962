// Definitions of llama_tokenizer.hpp.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>

#include <parx/core/check.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/data/text/detail/symbol_joiner.hpp>
#include <parx/data/text/llama_tokenizer.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE llama_tokenizer llama_tokenizer::read(const std::string& path) {
  const std::string bytes = read_text(path, std::uint64_t{1} << 28U);
  llama_tokenizer result;
  std::size_t at = 0;
  const auto take = [&](auto& value) {
    if (bytes.size() - at < sizeof(value))
      throw_error(errc::bad_data,
                  "\"{}\" ends inside token {}, at byte {}. Is this a tokenizer.bin of llama2.c?",
                  path, result.size(), at);
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
  };
  std::int32_t longest = 0;
  take(longest);
  while (at < bytes.size()) {
    float score = 0;
    std::int32_t length = 0;
    take(score);
    take(length);
    if (length < 0 || static_cast<std::size_t>(length) > bytes.size() - at || !std::isfinite(score))
      throw_error(errc::bad_data,
                  "\"{}\": token {} at byte {} has {} bytes and the score {}, but {} "
                  "bytes are left. Is this a tokenizer.bin of llama2.c?",
                  path, result.size(), at, length, score, bytes.size() - at);
    result.tokens_.push_back(bytes.substr(at, static_cast<std::size_t>(length)));
    result.scores_.push_back(score);
    at += static_cast<std::size_t>(length);
  }
  if (result.size() < first_byte + 256)
    throw_error(errc::bad_data,
                "\"{}\" has {} tokens; <unk>, <s>, </s> and 256 bytes are the least.", path,
                result.size());
  // Of equal tokens the first is used; the tokens that stand for bytes are not found by their text.
  for (std::size_t id = 0; id < result.size(); ++id) {
    if (id < first_byte || id >= first_byte + 256)
      result.ids_.emplace(result.tokens_[id], static_cast<token_id>(id));
  }
  return result;
}

PARX_INLINE void llama_tokenizer::encode(std::string_view text, std::vector<token_id>& ids) const {
  if (text.empty()) return;
  detail::symbol_joiner<float> symbols;
  if (const auto space = ids_.find(" "); space != ids_.end()) symbols.add(space->second);
  while (!text.empty()) {
    const std::size_t length = decode_character(text).bytes;
    const std::string_view character = text.substr(0, length);
    if (const auto found = ids_.find(character); found != ids_.end()) {
      symbols.add(found->second);
    } else {
      for (const char c : character) {
        symbols.add(static_cast<token_id>(first_byte) + static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(length);
  }
  std::string both;
  symbols.join([&](token_id a, token_id b) -> std::optional<detail::symbol_joiner<float>::token> {
    both = tokens_[static_cast<std::size_t>(a)];
    both += tokens_[static_cast<std::size_t>(b)];
    const auto found = ids_.find(both);
    if (found == ids_.end()) return std::nullopt;
    return {{scores_[static_cast<std::size_t>(found->second)], found->second}};
  });
  symbols.append_to(ids);
}

PARX_INLINE std::vector<token_id> llama_tokenizer::encode(std::string_view text) const {
  std::vector<token_id> ids;
  encode(text, ids);
  return ids;
}

PARX_INLINE std::string llama_tokenizer::decode(std::span<const token_id> ids) const {
  std::string text;
  bool at_start = true;
  for (const token_id id : ids) {
    require(id >= 0 && static_cast<std::size_t>(id) < size(),
            "token id {} is outside a vocabulary of {}", id, size());
    if (id == begin_id || id == end_id) {
      at_start = true;
      continue;
    }
    const auto number = static_cast<std::size_t>(id);
    if (number >= first_byte && number < first_byte + 256) {
      text.push_back(static_cast<char>(number - first_byte));
    } else {
      const std::string_view piece = tokens_[number];
      text += at_start && piece.starts_with(' ') ? piece.substr(1) : piece;
    }
    at_start = false;
  }
  return text;
}

PARX_INLINE std::uint64_t llama_tokenizer::fingerprint() const {
  std::uint64_t result = stable_hash("llama");
  for (std::size_t id = 0; id < size(); ++id) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &scores_[id], sizeof(bits));
    result = (result ^ stable_hash(tokens_[id]) ^ bits) * 0x9E3779B97F4A7C15;
  }
  return result;
}

}  // namespace parx::data
