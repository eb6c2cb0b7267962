// wordpiece_tokenizer: BERT's tokenizer. Text -> words (bert_words.hpp) -> the longest pieces that
// the vocabulary has, from the left; a piece within a word is written "##ing".
//
//   auto tokenizer = parx::data::wordpiece_tokenizer::read("vocab.txt");
//   auto input = tokenizer.encode("Oil prices soar", {.max_length = 128});
//
// A word without pieces, or of more than 100 characters, is [UNK]. Special tokens that are written
// in the text are recognised. Same ids as Hugging Face's BertTokenizerFast. Immutable; any thread.
// Source: google-research/bert tokenization.py; Song et al., Fast WordPiece Tokenization (2021).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/data/text/bert_words.hpp>
#include <parx/data/text/detail/token_trie.hpp>
#include <parx/data/text/encoding.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

/// BERT's special tokens; [UNK], [CLS], [SEP] and [PAD] must be in a vocabulary.
inline constexpr std::array<std::string_view, 5> bert_special_tokens{"[PAD]", "[UNK]", "[CLS]",
                                                                     "[SEP]", "[MASK]"};

class wordpiece_tokenizer {
 public:
  /// `letters` as the vocabulary was made: uncased for bert-base-uncased. Throws usage_error when
  /// one of [UNK], [CLS], [SEP], [PAD] is not in the vocabulary.
  explicit wordpiece_tokenizer(vocabulary tokens, letter_case letters = letter_case::uncased)
      : wordpiece_tokenizer(std::move(tokens), letters, "the vocabulary") {}

  /// Reads a vocab.txt. Throws as vocabulary::read() and the constructor do.
  [[nodiscard]] static wordpiece_tokenizer read(const std::string& path,
                                                letter_case letters = letter_case::uncased) {
    return {vocabulary::read(path), letters, fmt::format("\"{}\"", path)};
  }

  /// Appends the ids of `text`, without special tokens around it. Returns how many ill-formed
  /// pieces of UTF-8 were dropped.
  std::size_t encode(std::string_view text, std::vector<token_id>& ids) const {
    std::size_t invalid = 0;
    std::size_t begin = 0;
    for (std::size_t at = text.find('['); at != std::string_view::npos;) {
      const token_trie::match special = specials_.longest(text.substr(at));
      if (special.id < 0) {
        at = text.find('[', at + 1);
        continue;
      }
      invalid += encode_plain(text.substr(begin, at - begin), ids);
      ids.push_back(special.id);
      begin = at + special.length;
      at = text.find('[', begin);
    }
    return invalid + encode_plain(text.substr(begin), ids);
  }

  /// [CLS] text [SEP]. Throws usage_error when max_length has no room for special tokens,
  /// errc::bad_data when the text is too long and may not be cut.
  [[nodiscard]] encoding encode(std::string_view text, const encode_options& options = {}) const {
    std::vector<token_id> ids;
    const std::size_t invalid = encode(text, ids);
    encoding result = put_together(ids, nullptr, special_, options);
    result.invalid = invalid;
    return result;
  }

  /// [CLS] first [SEP] second [SEP]. Throws as above.
  [[nodiscard]] encoding encode(std::string_view first, std::string_view second,
                                const encode_options& options = {}) const {
    std::vector<token_id> a;
    std::vector<token_id> b;
    const std::size_t invalid = encode(first, a) + encode(second, b);
    const std::span<const token_id> second_ids = b;
    encoding result = put_together(a, &second_ids, special_, options);
    result.invalid = invalid;
    return result;
  }

  /// The words again, separated by spaces, without special tokens. Throws usage_error for an id
  /// that is no token.
  [[nodiscard]] std::string decode(std::span<const token_id> ids) const {
    std::string text;
    for (const token_id id : ids) {
      const std::string_view token = tokens_.token(id);
      if (specials_.longest(token).length == token.size() && id != unknown_) continue;
      const bool continues = token.size() > 2 && token.starts_with("##");
      if (!continues && !text.empty()) text += ' ';
      text += continues ? token.substr(2) : token;
    }
    return text;
  }

  [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  [[nodiscard]] const special_ids& special() const noexcept { return special_; }
  [[nodiscard]] token_id unknown_id() const noexcept { return unknown_; }
  /// Differs where the same text may get other ids.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return tokens_.fingerprint() ^
           stable_hash(letters_ == letter_case::cased ? "wordpiece cased" : "wordpiece uncased");
  }

 private:
  using token_trie = detail::token_trie;

  wordpiece_tokenizer(vocabulary tokens, letter_case letters, const std::string& origin)
      : tokens_(std::move(tokens)), letters_(letters) {
    const auto need = [&](std::string_view token) {
      const auto id = tokens_.find(token);
      require(id.has_value(),
              "{} of {} tokens has no {}; a BERT vocabulary has [PAD], [UNK], [CLS] and [SEP]. "
              "Take the vocab.txt that belongs to the model, one token a line",
              origin, tokens_.size(), token);
      return *id;
    };
    unknown_ = need("[UNK]");
    special_ = {.start = need("[CLS]"), .separator = need("[SEP]"), .pad = need("[PAD]")};
    std::size_t bytes = 0;
    for (const std::string& token : tokens_.tokens()) bytes += token.size();
    starts_ = token_trie(bytes);
    continues_ = token_trie(bytes);
    specials_ = token_trie(64);
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const std::string_view token = tokens_.tokens()[id];
      const bool continues = token.size() > 2 && token.starts_with("##");
      (continues ? continues_ : starts_)
          .add(continues ? token.substr(2) : token, static_cast<token_id>(id));
    }
    for (const std::string_view token : bert_special_tokens) {
      if (const auto id = tokens_.find(token)) specials_.add(token, *id);
    }
  }

  std::size_t encode_plain(std::string_view text, std::vector<token_id>& ids) const {
    return bert_words(text, letters_, [&](std::string_view word, bool too_long) {
      const std::size_t before = ids.size();
      const token_trie* trie = &starts_;
      while (!word.empty()) {
        const token_trie::match piece = trie->longest(word);
        if (piece.id < 0 || too_long) {
          ids.resize(before);
          ids.push_back(unknown_);
          return;
        }
        ids.push_back(piece.id);
        word.remove_prefix(piece.length);
        trie = &continues_;
      }
    });
  }

  vocabulary tokens_;
  letter_case letters_;
  token_id unknown_ = 0;
  special_ids special_;
  token_trie starts_;
  token_trie continues_;
  token_trie specials_;
};

}  // namespace parx::data
