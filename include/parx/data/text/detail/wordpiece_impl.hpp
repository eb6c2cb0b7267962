// Definitions of wordpiece.hpp.
#pragma once

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/data/text/wordpiece.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE wordpiece_tokenizer wordpiece_tokenizer::read(const std::string& path,
                                                          letter_case letters) {
  return {vocabulary::read(path), letters, formatted("\"{}\"", path)};
}

PARX_INLINE std::size_t wordpiece_tokenizer::encode(std::string_view text,
                                                    std::vector<token_id>& ids) const {
  std::size_t invalid = 0;
  specials_.split(
      text, "[", [&, this](std::string_view piece) { invalid += encode_plain(piece, ids); },
      [&](token_id id) { ids.push_back(id); });
  return invalid;
}

PARX_INLINE encoding wordpiece_tokenizer::encode(std::string_view text,
                                                 const encode_options& options) const {
  std::vector<token_id> ids;
  const std::size_t invalid = encode(text, ids);
  encoding result = put_together(ids, nullptr, special_, options);
  result.invalid = invalid;
  return result;
}

PARX_INLINE encoding wordpiece_tokenizer::encode(std::string_view first, std::string_view second,
                                                 const encode_options& options) const {
  std::vector<token_id> a;
  std::vector<token_id> b;
  const std::size_t invalid = encode(first, a) + encode(second, b);
  std::size_t unread = 0;
  if (options.truncation == truncation::longest_first && options.max_length > 0) {
    for (std::vector<token_id>* ids : {&a, &b}) {
      const std::size_t read = words_with(*ids, options.max_length);
      unread += ids->size() - read;
      ids->resize(read);
    }
  }
  const std::span<const token_id> second_ids = b;
  encoding result = put_together(a, &second_ids, special_, options);
  result.truncated += unread;
  result.invalid = invalid;
  return result;
}

PARX_INLINE std::size_t wordpiece_tokenizer::words_with(std::span<const token_id> ids,
                                                        std::size_t count) const {
  while (count < ids.size() && tokens_.token(ids[count]).starts_with("##")) ++count;
  return std::min(count, ids.size());
}

PARX_INLINE std::string wordpiece_tokenizer::decode(std::span<const token_id> ids) const {
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

PARX_INLINE wordpiece_tokenizer::wordpiece_tokenizer(vocabulary tokens, letter_case letters,
                                                     const std::string& origin)
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

PARX_INLINE std::size_t wordpiece_tokenizer::encode_plain(std::string_view text,
                                                          std::vector<token_id>& ids) const {
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

}  // namespace parx::data
