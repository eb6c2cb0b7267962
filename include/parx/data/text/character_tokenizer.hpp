// character_tokenizer: one token for each character that a text has; the tokenizer of small
// character-level language models.
//
// Ids follow the order of the characters' codes. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/json.hpp>
#include <parx/data/text/encoding.hpp>
#include <parx/data/text/unicode.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

class character_tokenizer {
 public:
  /// Each token is one character. Throws usage_error otherwise.
  explicit character_tokenizer(vocabulary tokens) : tokens_(std::move(tokens)) {
    for (const std::string& token : tokens_.tokens()) {
      const decoded_character only = decode_character(token);
      require(only.valid && only.length == token.size(),
              "character_tokenizer: the token \"{}\" is not one character", token);
      if (only.code < 128) ascii_[only.code] = *tokens_.find(token);
    }
  }

  /// The characters of `text`. Throws errc::bad_data where it is no UTF-8.
  [[nodiscard]] static character_tokenizer from_text(std::string_view text) {
    std::set<std::uint32_t> codes;
    for (std::size_t at = 0; at < text.size();) {
      const decoded_character next = decode_character(text.substr(at));
      if (!next.valid)
        throw_error(errc::bad_data,
                    "character_tokenizer: byte {} of the text is no UTF-8; byte pairs encode any "
                    "bytes.",
                    at);
      codes.insert(next.code);
      at += next.length;
    }
    std::vector<std::string> tokens;
    for (const std::uint32_t code : codes) append_character(tokens.emplace_back(), code);
    return character_tokenizer(vocabulary(std::move(tokens)));
  }

  /// Appends the ids of `text`. Throws errc::bad_data, with the place, for a character that has no
  /// token.
  void encode(std::string_view text, std::vector<token_id>& ids) const {
    ids.reserve(ids.size() + text.size());
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const std::size_t length = byte < 128 ? 1 : decode_character(text.substr(at)).length;
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
  [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
    std::vector<token_id> ids;
    encode(text, ids);
    return ids;
  }

  [[nodiscard]] std::string decode(std::span<const token_id> ids) const {
    std::string text;
    for (const token_id id : ids) text += tokens_.token(id);
    return text;
  }

  /// The tokenizer.json from which Hugging Face's tokenizers makes the same tokenizer: byte-pair
  /// encoding that has no pair to join.
  [[nodiscard]] std::string tokenizer_json() const {
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

  [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }
  /// There are none.
  [[nodiscard]] static special_ids special() noexcept { return {}; }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  /// Differs where the same text may get other ids.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return tokens_.fingerprint() ^ stable_hash("character");
  }

 private:
  vocabulary tokens_;
  std::vector<token_id> ascii_ = std::vector<token_id>(128, -1);
};

}  // namespace parx::data
