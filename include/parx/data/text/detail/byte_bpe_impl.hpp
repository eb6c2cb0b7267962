// Definitions of byte_bpe.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/data/text/byte_bpe.hpp>
#include <parx/data/text/detail/pair_merger.hpp>

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE const std::array<std::uint32_t, 256>& printable_bytes() {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> made{};
    std::uint32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      made[b] = printable ? b : next++;
    }
    return made;
  }();
  return table;
}

[[nodiscard]] PARX_INLINE std::string to_printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes)
    append_character(text, printable_bytes()[static_cast<unsigned char>(c)]);
  return text;
}

/// The bytes that `text` stands for; nullopt where it has a character that stands for none.
[[nodiscard]] PARX_INLINE std::optional<std::string> from_printable(std::string_view text) {
  static const std::map<std::uint32_t, char> bytes = [] {
    std::map<std::uint32_t, char> made;
    for (std::size_t b = 0; b < 256; ++b) made[printable_bytes()[b]] = static_cast<char>(b);
    return made;
  }();
  std::string result;
  while (!text.empty()) {
    const decoded_character next = decode_character(text);
    const auto found = bytes.find(next.code);
    if (!next.valid || found == bytes.end()) return std::nullopt;
    result.push_back(found->second);
    text.remove_prefix(next.bytes);
  }
  return result;
}

}  // namespace parx::data::detail

namespace parx::inline PARX_ABI::data {

PARX_INLINE byte_bpe_tokenizer::byte_bpe_tokenizer(vocabulary tokens, std::vector<merge> merges,
                                                   std::vector<std::string> special_tokens)
    : tokens_(std::move(tokens)), merges_(std::move(merges)) {
  for (std::size_t b = 0; b < 256; ++b) {
    const auto id = tokens_.find(std::string(1, static_cast<char>(b)));
    require(id.has_value(), "the vocabulary of a byte-level tokenizer has no token for byte {}", b);
    byte_ids_[b] = *id;
  }
  ranks_.reserve(merges_.size());
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const auto [a, b] = merges_[rank];
    const std::string joined = tokens_.token(a) + tokens_.token(b);
    const auto id = tokens_.find(joined);
    require(id.has_value(), "merge {} makes \"{}\", which the vocabulary has not", rank,
            detail::to_printable(joined));
    ranks_.emplace(detail::pair_key(a, b), joiner::token{static_cast<std::uint32_t>(rank), *id});
  }
  std::size_t bytes = 0;
  for (const std::string& token : special_tokens) bytes += token.size();
  specials_ = detail::token_trie(bytes);
  for (const std::string& token : special_tokens) {
    const auto id = tokens_.find(token);
    if (!id || token.empty()) continue;
    specials_.add(token, *id);
    special_hash_ = (special_hash_ ^ stable_hash(token)) * 0x9E3779B97F4A7C15;
    starts_ += token[0];
    if (special_.separator < 0) special_ = {.start = -1, .separator = *id, .pad = *id};
  }
}

PARX_INLINE std::string byte_bpe_tokenizer::vocab_json() const {
  std::string text = "{";
  for (std::size_t id = 0; id < size(); ++id) {
    text += formatted("{}{}: {}", id == 0 ? "" : ", ",
                      json::quote(detail::to_printable(tokens_.tokens()[id])), id);
  }
  return text + "}\n";
}

PARX_INLINE std::string byte_bpe_tokenizer::merges_txt() const {
  std::string text = "#version: 0.2\n";
  for (const auto& [a, b] : merges_) {
    text += detail::to_printable(tokens_.token(a)) + " " + detail::to_printable(tokens_.token(b)) +
            "\n";
  }
  return text;
}

PARX_INLINE void byte_bpe_tokenizer::write(const std::string& vocab_file,
                                           const std::string& merges_file) const {
  write_file(vocab_file, vocab_json());
  write_file(merges_file, merges_txt());
}

PARX_INLINE void byte_bpe_tokenizer::encode(std::string_view text,
                                            std::vector<token_id>& ids) const {
  scratch work;
  specials_.split(
      text, starts_, [&, this](std::string_view piece) { encode_plain(piece, ids, work); },
      [&](token_id id) { ids.push_back(id); });
}

PARX_INLINE std::vector<token_id> byte_bpe_tokenizer::encode(std::string_view text) const {
  std::vector<token_id> ids;
  encode(text, ids);
  return ids;
}

PARX_INLINE std::string byte_bpe_tokenizer::decode(std::span<const token_id> ids) const {
  std::string bytes;
  for (const token_id id : ids) bytes += tokens_.token(id);
  return bytes;
}

PARX_INLINE std::uint64_t byte_bpe_tokenizer::fingerprint() const {
  std::uint64_t result = tokens_.fingerprint() ^ stable_hash("byte_bpe") ^ special_hash_;
  for (const auto& [a, b] : merges_)
    result = (result ^ detail::pair_key(a, b)) * 0x9E3779B97F4A7C15;
  return result;
}

PARX_INLINE void byte_bpe_tokenizer::write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out)
    throw_error(errc::io, "cannot write \"{}\": {}. Check the folder and its permissions.", path,
                errno_text(errno));
}

PARX_INLINE void byte_bpe_tokenizer::encode_plain(std::string_view text, std::vector<token_id>& ids,
                                                  scratch& work) const {
  gpt2_words(text, [&](std::string_view word) {
    if (word.size() == 1) {
      ids.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
      return;
    }
    const auto [found, is_new] = work.known.try_emplace(word, ids.size(), 0);
    if (is_new) {
      encode_word(word, ids, work);
      found->second.second = ids.size() - found->second.first;
      return;
    }
    for (std::size_t i = 0; i < found->second.second; ++i)
      ids.push_back(ids[found->second.first + i]);
  });
}

PARX_INLINE void byte_bpe_tokenizer::encode_word(std::string_view word, std::vector<token_id>& ids,
                                                 scratch& work) const {
  require(word.size() < (std::size_t{1} << 31U),
          "byte_bpe_tokenizer: a word of {} bytes is too long", word.size());
  work.word.clear();
  for (const char byte : word) work.word.add(byte_ids_[static_cast<unsigned char>(byte)]);
  work.word.join([&](token_id a, token_id b) -> std::optional<joiner::token> {
    const auto found = ranks_.find(detail::pair_key(a, b));
    if (found == ranks_.end()) return std::nullopt;
    return found->second;
  });
  work.word.append_to(ids);
}

PARX_INLINE byte_bpe_tokenizer byte_bpe_tokenizer::read(const std::string& vocab_json,
                                                        const std::string& merges_txt,
                                                        std::vector<std::string> special_tokens) {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, token_id> printable;
  const std::string text = read_text(vocab_json, std::uint64_t{1} << 30U);
  try {
    json::reader from(text);
    from.object([&](std::string key) {
      const std::uint64_t id = from.number();
      if (id >= text.size()) from.fail(formatted("an id below {}", text.size()));
      if (tokens.size() <= id) tokens.resize(id + 1);
      const auto bytes = detail::from_printable(key);
      if (key.empty() || (!bytes && std::find(special_tokens.begin(), special_tokens.end(), key) ==
                                        special_tokens.end()))
        from.fail("a token written in GPT-2's printable characters");
      if (!tokens[id].empty()) from.fail(formatted("id {} once", id));
      tokens[id] = bytes.value_or(key);
      if (!printable.emplace(std::move(key), static_cast<token_id>(id)).second)
        from.fail("each token once");
    });
    from.end();
  } catch (const json::error& failure) {
    throw_error(errc::bad_data, "\"{}\" is not a vocab.json: {}.", vocab_json, failure.what());
  }
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty())
      throw_error(errc::bad_data, "\"{}\": no token has the id {}, but there are ids up to {}.",
                  vocab_json, id, tokens.size() - 1);
  }
  std::vector<merge> merges;
  line_reader file(merges_txt, std::size_t{1} << 20U);
  for (std::string line; file.next(line);) {
    if (line.empty() || (file.number() == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    const auto fail = [&](std::string_view why) {
      throw_error(errc::bad_data, "\"{}\", line {}: \"{}\" {}.", merges_txt, file.number(), line,
                  why);
    };
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      fail("is not two tokens with a space between them");
    const auto a = printable.find(line.substr(0, space));
    const auto b = printable.find(line.substr(space + 1));
    if (a == printable.end() || b == printable.end() ||
        printable.find(a->first + b->first) == printable.end())
      fail(formatted("joins tokens of which one, or the result, is not in \"{}\"", vocab_json));
    merges.emplace_back(a->second, b->second);
  }
  try {
    return {vocabulary(std::move(tokens)), std::move(merges), std::move(special_tokens)};
  } catch (const usage_error& failure) {
    throw_error(errc::bad_data, "\"{}\": {}.", vocab_json, failure.what());
  }
}

PARX_INLINE void byte_bpe_tokenizer::count_words(std::string_view text, word_counts& words) {
  gpt2_words(text, [&words](std::string_view word) { ++words[word]; });
}

PARX_INLINE byte_bpe_tokenizer byte_bpe_tokenizer::learned(const word_counts& words,
                                                           const byte_bpe_options& options) {
  std::vector<std::string> tokens = options.special_tokens;
  require(options.vocab_size >= tokens.size() + 256,
          "byte_bpe_tokenizer: a vocabulary of {} has no room for {} special tokens and 256 bytes",
          options.vocab_size, tokens.size());
  // Bytes in the order of their printable characters, as Hugging Face numbers them.
  std::map<std::uint32_t, std::size_t> printable;
  for (std::size_t b = 0; b < 256; ++b) printable[detail::printable_bytes()[b]] = b;
  std::array<token_id, 256> byte_ids{};
  for (const auto& [character, byte] : printable) {
    byte_ids[byte] = static_cast<token_id>(tokens.size());
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::unordered_map<std::string, token_id> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    ids.emplace(tokens[id], static_cast<token_id>(id));

  detail::pair_merger merger;
  for (const auto& [word, count] : words) {
    std::vector<token_id> symbols;
    for (const char c : word) symbols.push_back(byte_ids[static_cast<unsigned char>(c)]);
    merger.add_word(symbols, count);
  }
  std::vector<merge> merges;
  merger.run(
      options.min_frequency, [&] { return tokens.size() < options.vocab_size; },
      [&](token_id a, token_id b) {
        merges.emplace_back(a, b);
        std::string joined =
            tokens[static_cast<std::size_t>(a)] + tokens[static_cast<std::size_t>(b)];
        const auto [found, is_new] = ids.emplace(joined, static_cast<token_id>(tokens.size()));
        if (is_new) tokens.push_back(std::move(joined));
        return found->second;
      });
  return {vocabulary(std::move(tokens)), std::move(merges), options.special_tokens};
}

}  // namespace parx::data
