// byte_bpe_tokenizer: GPT-2's byte-level byte-pair encoding. Every text, and every string of bytes
// that is none, has an encoding that decodes to exactly itself.
//
//   auto tokenizer = parx::data::byte_bpe_tokenizer::train(texts, {.vocab_size = 1000});
//   tokenizer.write("vocab.json", "merges.txt");
//
// Pieces of text (gpt2_words.hpp) begin as single bytes; the pair that was learned first is joined
// first. The files are Hugging Face's, in which a byte is written as a printable character.
// Immutable; any thread. Source: openai/gpt-2 src/encoder.py; Sennrich et al. 2016.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/json.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/data/text/detail/pair_merger.hpp>
#include <parx/data/text/detail/symbol_joiner.hpp>
#include <parx/data/text/detail/token_trie.hpp>
#include <parx/data/text/encoding.hpp>
#include <parx/data/text/gpt2_words.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

struct byte_bpe_options {
  std::size_t vocab_size = 1'000;   ///< special tokens and the 256 bytes included
  std::uint64_t min_frequency = 2;  ///< a pair must occur this often to be joined
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

namespace detail {

/// GPT-2's printable character for each byte: itself where it is printable Latin-1, else from
/// U+0100 on in the order of the bytes.
[[nodiscard]] inline const std::array<std::uint32_t, 256>& printable_bytes() {
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

[[nodiscard]] inline std::string to_printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes)
    append_character(text, printable_bytes()[static_cast<unsigned char>(c)]);
  return text;
}

/// The bytes that `text` stands for; nullopt where it has a character that stands for none.
[[nodiscard]] inline std::optional<std::string> from_printable(std::string_view text) {
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
    text.remove_prefix(next.length);
  }
  return result;
}

}  // namespace detail

class byte_bpe_tokenizer {
 public:
  using merge = std::pair<token_id, token_id>;

  /// `tokens` as bytes, all 256 single bytes among them; `merges` in the order in which they were
  /// learned, each of two tokens whose joined bytes are a token. Throws usage_error otherwise.
  byte_bpe_tokenizer(vocabulary tokens, std::vector<merge> merges,
                     std::vector<std::string> special_tokens = {"<|endoftext|>"})
      : tokens_(std::move(tokens)), merges_(std::move(merges)) {
    for (std::size_t b = 0; b < 256; ++b) {
      const auto id = tokens_.find(std::string(1, static_cast<char>(b)));
      require(id.has_value(), "the vocabulary of a byte-level tokenizer has no token for byte {}",
              b);
      byte_ids_[b] = *id;
    }
    ranks_.reserve(merges_.size());
    for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
      const auto [a, b] = merges_[rank];
      const std::string joined = tokens_.token(a) + tokens_.token(b);
      const auto id = tokens_.find(joined);
      require(id.has_value(), "merge {} makes \"{}\", which the vocabulary has not", rank,
              detail::to_printable(joined));
      ranks_.emplace(key_of(a, b), joiner::token{static_cast<std::uint32_t>(rank), *id});
    }
    std::size_t bytes = 0;
    for (const std::string& token : special_tokens) bytes += token.size();
    specials_ = detail::token_trie(bytes);
    for (const std::string& token : special_tokens) {
      const auto id = tokens_.find(token);
      if (!id || token.empty()) continue;
      specials_.add(token, *id);
      starts_ += token[0];
      if (special_.separator < 0) special_ = {.start = -1, .separator = *id, .pad = *id};
    }
  }

  /// Learns a vocabulary from a range of texts. The same texts give the same vocabulary everywhere.
  /// Throws usage_error when the size has no room for special tokens and 256 bytes.
  template <typename Texts>
  [[nodiscard]] static byte_bpe_tokenizer train(const Texts& texts,
                                                const byte_bpe_options& options = {}) {
    std::map<std::string_view, std::uint64_t> words;
    for (const auto& text : texts) gpt2_words(text, [&](std::string_view word) { ++words[word]; });

    std::vector<std::string> tokens = options.special_tokens;
    require(
        options.vocab_size >= tokens.size() + 256,
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

  /// Reads Hugging Face's vocab.json and merges.txt. Throws errc::io, or errc::bad_data with the
  /// line of merges.txt, or the place in vocab.json, that is wrong.
  [[nodiscard]] static byte_bpe_tokenizer read(const std::string& vocab_json,
                                               const std::string& merges_txt,
                                               std::vector<std::string> special_tokens = {
                                                   "<|endoftext|>"});

  /// The two files as read() takes them.
  [[nodiscard]] std::string vocab_json() const {
    std::string text = "{";
    for (std::size_t id = 0; id < size(); ++id) {
      text += fmt::format("{}{}: {}", id == 0 ? "" : ", ",
                          json::quote(detail::to_printable(tokens_.tokens()[id])), id);
    }
    return text + "}\n";
  }
  [[nodiscard]] std::string merges_txt() const {
    std::string text = "#version: 0.2\n";
    for (const auto& [a, b] : merges_) {
      text += detail::to_printable(tokens_.token(a)) + " " +
              detail::to_printable(tokens_.token(b)) + "\n";
    }
    return text;
  }
  /// Writes both files. Throws errc::io.
  void write(const std::string& vocab_file, const std::string& merges_file) const {
    write_file(vocab_file, vocab_json());
    write_file(merges_file, merges_txt());
  }

  /// Appends the ids of `text`, which may be any bytes. Special tokens that are written in it are
  /// recognised.
  void encode(std::string_view text, std::vector<token_id>& ids) const {
    scratch work;
    std::size_t begin = 0;
    for (std::size_t at = text.find_first_of(starts_); at != std::string_view::npos;) {
      const auto special = specials_.longest(text.substr(at));
      if (special.id < 0) {
        at = text.find_first_of(starts_, at + 1);
        continue;
      }
      encode_plain(text.substr(begin, at - begin), ids, work);
      ids.push_back(special.id);
      begin = at + special.length;
      at = text.find_first_of(starts_, begin);
    }
    encode_plain(text.substr(begin), ids, work);
  }
  [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
    std::vector<token_id> ids;
    encode(text, ids);
    return ids;
  }

  /// The bytes that were encoded. Throws usage_error for an id that is no token.
  [[nodiscard]] std::string decode(std::span<const token_id> ids) const {
    std::string bytes;
    for (const token_id id : ids) bytes += tokens_.token(id);
    return bytes;
  }

  [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }
  /// The first special token ends every sequence, as in GPT-2; there is none before it.
  [[nodiscard]] const special_ids& special() const noexcept { return special_; }
  [[nodiscard]] const std::vector<merge>& merges() const noexcept { return merges_; }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  /// Differs where the same text may get other ids.
  [[nodiscard]] std::uint64_t fingerprint() const {
    std::uint64_t result = tokens_.fingerprint() ^ stable_hash("byte_bpe" + starts_);
    for (const auto& [a, b] : merges_) result = (result ^ key_of(a, b)) * 0x9E3779B97F4A7C15;
    return result;
  }

 private:
  /// The pair that was learned first is joined first.
  using joiner = detail::symbol_joiner<std::uint32_t, std::greater<std::uint32_t>>;

  /// Words that were seen before: where their ids stand in the result.
  struct scratch {
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known;
    joiner word;
  };

  static std::uint64_t key_of(token_id a, token_id b) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(a)} << 32U | static_cast<std::uint32_t>(b);
  }

  static void write_file(const std::string& path, const std::string& text) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out)
      throw_error(errc::io, "cannot write \"{}\": {}. Check the folder and its permissions.", path,
                  errno_text(errno));
  }

  void encode_plain(std::string_view text, std::vector<token_id>& ids, scratch& work) const {
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

  void encode_word(std::string_view word, std::vector<token_id>& ids, scratch& work) const {
    require(word.size() < (std::size_t{1} << 31U),
            "byte_bpe_tokenizer: a word of {} bytes is too long", word.size());
    work.word.clear();
    for (const char byte : word) work.word.add(byte_ids_[static_cast<unsigned char>(byte)]);
    work.word.join([&](token_id a, token_id b) -> std::optional<joiner::token> {
      const auto found = ranks_.find(key_of(a, b));
      if (found == ranks_.end()) return std::nullopt;
      return found->second;
    });
    work.word.append_to(ids);
  }

  vocabulary tokens_;
  std::vector<merge> merges_;
  std::array<token_id, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, joiner::token> ranks_;
  special_ids special_;
  detail::token_trie specials_;
  std::string starts_;  ///< the first bytes of special tokens
};

inline byte_bpe_tokenizer byte_bpe_tokenizer::read(const std::string& vocab_json,
                                                   const std::string& merges_txt,
                                                   std::vector<std::string> special_tokens) {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, token_id> printable;
  const std::string text = read_text(vocab_json, std::uint64_t{1} << 30U);
  try {
    json::reader from(text);
    from.object([&](std::string key) {
      const std::uint64_t id = from.number();
      if (id >= text.size()) from.fail(fmt::format("an id below {}", text.size()));
      if (tokens.size() <= id) tokens.resize(id + 1);
      const auto bytes = detail::from_printable(key);
      if (key.empty() || (!bytes && std::find(special_tokens.begin(), special_tokens.end(), key) ==
                                        special_tokens.end()))
        from.fail("a token written in GPT-2's printable characters");
      if (!tokens[id].empty()) from.fail(fmt::format("id {} once", id));
      tokens[id] = bytes.value_or(key);
      if (!printable.emplace(std::move(key), static_cast<token_id>(id)).second)
        from.fail("each token once");
    });
    from.end();
  } catch (const json::error& failure) {
    throw_error(errc::bad_data, "\"{}\" is no vocab.json: {}.", vocab_json, failure.what());
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
      fail(fmt::format("joins tokens of which one, or the result, is not in \"{}\"", vocab_json));
    merges.emplace_back(a->second, b->second);
  }
  try {
    return {vocabulary(std::move(tokens)), std::move(merges), std::move(special_tokens)};
  } catch (const usage_error& failure) {
    throw_error(errc::bad_data, "\"{}\": {}.", vocab_json, failure.what());
  }
}

}  // namespace parx::data
