// Definitions of character_tokenizer.hpp.
#pragma once

#include <set>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/json.hpp>
#include <parx/data/text/character_tokenizer.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE character_tokenizer::character_tokenizer(vocabulary tokens)
    : tokens_(std::move(tokens)) {
  for (const std::string& token : tokens_.tokens()) {
    const decoded_character only = decode_character(token);
    require(only.valid && only.bytes == token.size(),
            "character_tokenizer: the token \"{}\" is not one character", token);
    if (only.code < 128) ascii_[only.code] = *tokens_.find(token);
  }
}

PARX_INLINE character_tokenizer character_tokenizer::from_text(std::string_view text) {
  std::set<std::uint32_t> codes;
  for (std::size_t at = 0; at < text.size();) {
    const decoded_character next = decode_character(text.substr(at));
    if (!next.valid)
      throw_error(errc::bad_data,
                  "character_tokenizer: byte {} of the text is not UTF-8; byte_bpe_tokenizer "
                  "encodes any bytes.",
                  at);
    codes.insert(next.code);
    at += next.bytes;
  }
  std::vector<std::string> tokens;
  for (const std::uint32_t code : codes) append_character(tokens.emplace_back(), code);
  return character_tokenizer(vocabulary(std::move(tokens)));
}

PARX_INLINE void character_tokenizer::encode(std::string_view text,
                                             std::vector<token_id>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = byte < 128 ? 1 : decode_character(text.substr(at)).bytes;
    const std::string_view character = text.substr(at, length);
    const token_id id = byte < 128 ? ascii_[byte] : tokens_.find(character).value_or(-1);
    if (id < 0)
      throw_error(errc::bad_data,
                  "character_tokenizer: the character at byte {}, '{}', was not in the text that "
                  "the tokenizer was made from.",
                  at, character);
    ids.push_back(id);
    at += length;
  }
}

PARX_INLINE std::vector<token_id> character_tokenizer::encode(std::string_view text) const {
  std::vector<token_id> ids;
  encode(text, ids);
  return ids;
}

PARX_INLINE std::string character_tokenizer::decode(std::span<const token_id> ids) const {
  std::string text;
  for (const token_id id : ids) text += tokens_.token(id);
  return text;
}

PARX_INLINE std::string character_tokenizer::tokenizer_json() const {
  json::value ids = json::object{};
  for (std::size_t id = 0; id < size(); ++id) ids[tokens_.tokens()[id]] = id;
  const json::value model =
      json::object{{"type", "BPE"}, {"vocab", std::move(ids)}, {"merges", json::array{}}};
  return json::dump(json::object{{"version", "1.0"},
                                 {"added_tokens", json::array{}},
                                 {"decoder", json::object{{"type", "Fuse"}}},
                                 {"model", model}},
                    2) +
         "\n";
}

}  // namespace parx::data
