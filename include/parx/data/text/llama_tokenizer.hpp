// llama_tokenizer: SentencePiece's byte-pair encoding as llama2.c stores it in tokenizer.bin.
//
// A text gets a space in front and is split into characters, those without a token into bytes; then
// the pair whose token has the highest score is joined, again and again, the leftmost of equals
// first. Token 0 is <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes. The file: int32 longest token, then
// for each token float32 score, int32 length, bytes, little-endian. Immutable; any thread. Source:
// karpathy/llama2.c run.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <parx/data/text/encoding.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

class llama_tokenizer {
 public:
  static constexpr token_id begin_id = 1;  ///< <s>
  static constexpr token_id end_id = 2;    ///< </s>

  /// Reads a tokenizer.bin. Throws errc::io, or errc::bad_data with the token that is wrong.
  [[nodiscard]] static llama_tokenizer read(const std::string& path);

  /// Appends the ids of `text`, without <s> and </s>.
  void encode(std::string_view text, std::vector<token_id>& ids) const;
  [[nodiscard]] std::vector<token_id> encode(std::string_view text) const;

  /// The text of `ids`; <s> and </s> are left out, and so is the space that encode() put in front.
  /// Throws usage_error for an id outside the vocabulary.
  [[nodiscard]] std::string decode(std::span<const token_id> ids) const;

  [[nodiscard]] static special_ids special() noexcept {
    return {.start = begin_id, .separator = end_id, .pad = 0};
  }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  /// Differs where the same text may get other ids.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  static constexpr std::size_t first_byte = 3;

  llama_tokenizer() = default;

  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::unordered_map<std::string, token_id, detail::text_hash, std::equal_to<>> ids_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/llama_tokenizer_impl.hpp>
#endif
