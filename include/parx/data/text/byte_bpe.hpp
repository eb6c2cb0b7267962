// byte_bpe_tokenizer: GPT-2's byte-level byte-pair encoding. Any string of bytes, text or not, has
// an encoding that decodes to the same bytes.
//
//   auto tokenizer = parx::data::byte_bpe_tokenizer::train(texts, {.vocab_size = 1000});
//   tokenizer.write("vocab.json", "merges.txt");
//
// Pieces of text (gpt2_words.hpp) begin as single bytes; the pair that was learned first is joined
// first. The files are Hugging Face's, in which a byte is written as a printable character.
// Immutable; any thread. Source: openai/gpt-2 src/encoder.py; Sennrich et al. 2016.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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
[[nodiscard]] const std::array<std::uint32_t, 256>& printable_bytes();

}  // namespace detail

class byte_bpe_tokenizer {
 public:
  using merge = std::pair<token_id, token_id>;

  /// `tokens` as bytes, all 256 single bytes among them; `merges` in the order in which they were
  /// learned, each of two tokens whose joined bytes are a token. Throws usage_error otherwise.
  byte_bpe_tokenizer(vocabulary tokens, std::vector<merge> merges,
                     std::vector<std::string> special_tokens = {"<|endoftext|>"});

  /// Learns a vocabulary from a range of texts. The same texts give the same vocabulary everywhere.
  /// Throws usage_error when the size has no room for special tokens and 256 bytes.
  template <typename Texts>
  [[nodiscard]] static byte_bpe_tokenizer train(const Texts& texts,
                                                const byte_bpe_options& options = {}) {
    word_counts words;
    for (const auto& text : texts) count_words(text, words);
    return learned(words, options);
  }

  /// Reads Hugging Face's vocab.json and merges.txt. Throws errc::io, or errc::bad_data with the
  /// line of merges.txt, or the place in vocab.json, that is wrong.
  [[nodiscard]] static byte_bpe_tokenizer read(const std::string& vocab_json,
                                               const std::string& merges_txt,
                                               std::vector<std::string> special_tokens = {
                                                   "<|endoftext|>"});

  /// The two files as read() takes them.
  [[nodiscard]] std::string vocab_json() const;
  [[nodiscard]] std::string merges_txt() const;
  /// Writes both files. Throws errc::io.
  void write(const std::string& vocab_file, const std::string& merges_file) const;

  /// Appends the ids of `text`, which may be any bytes. Special tokens in it are recognised.
  void encode(std::string_view text, std::vector<token_id>& ids) const;
  [[nodiscard]] std::vector<token_id> encode(std::string_view text) const;

  /// The bytes that were encoded. Throws usage_error for an id outside the vocabulary.
  [[nodiscard]] std::string decode(std::span<const token_id> ids) const;

  [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }
  /// The first special token ends every sequence, as in GPT-2; there is no start token.
  [[nodiscard]] const special_ids& special() const noexcept { return special_; }
  [[nodiscard]] const std::vector<merge>& merges() const noexcept { return merges_; }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  /// Differs where the same text may get other ids.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  /// The pair that was learned first is joined first.
  using joiner = detail::symbol_joiner<std::uint32_t, std::greater<std::uint32_t>>;

  /// `known`: words seen before, with the position and number of their ids in the result.
  struct scratch {
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known;
    joiner word;
  };

  /// How often each of gpt2_words' pieces is in the texts.
  using word_counts = std::map<std::string_view, std::uint64_t>;
  static void count_words(std::string_view text, word_counts& words);
  [[nodiscard]] static byte_bpe_tokenizer learned(const word_counts& words,
                                                  const byte_bpe_options& options);
  static void write_file(const std::string& path, const std::string& text);
  void encode_plain(std::string_view text, std::vector<token_id>& ids, scratch& work) const;
  void encode_word(std::string_view word, std::vector<token_id>& ids, scratch& work) const;

  vocabulary tokens_;
  std::vector<merge> merges_;
  std::array<token_id, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, joiner::token> ranks_;  ///< by detail::pair_key
  special_ids special_;
  detail::token_trie specials_;
  std::string starts_;              ///< the first bytes of special tokens
  std::uint64_t special_hash_ = 0;  ///< of the special tokens in their order
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/byte_bpe_impl.hpp>
#endif
