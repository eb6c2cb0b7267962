// vocabulary: the tokens of a tokenizer, id 0 first, and the id of each token.
//
// Tokens are unique and not empty. Read and written as vocab.txt, one token per line; the id is the
// line number minus 1 (the layout of BERT's checkpoints). Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <parx/data/text/unicode.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::data {

/// A token's number. 32 bits: half the memory of PyTorch's 64, and embedding() takes either.
using token_id = std::int32_t;

namespace detail {

/// Lets a hash table with keys std::string look up a std::string_view.
struct text_hash : std::hash<std::string_view> {
  using is_transparent = void;
};

}  // namespace detail

class vocabulary {
 public:
  vocabulary() = default;

  /// Throws usage_error when a token is empty or there twice.
  explicit vocabulary(std::vector<std::string> tokens);

  /// Reads a vocab.txt, plain or gzip. Throws errc::io, or errc::bad_data with the line for a token
  /// that is empty, not UTF-8 or there twice, and for a file without tokens.
  [[nodiscard]] static vocabulary read(const std::string& path);

  /// One token a line, as read() takes it. Throws usage_error for a token with a line break.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }

  /// The id of `token`, or nullopt.
  [[nodiscard]] std::optional<token_id> find(std::string_view token) const;
  /// The token of `id`. Throws usage_error when there is none.
  [[nodiscard]] const std::string& token(token_id id) const;
  /// A hash of the tokens.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  [[nodiscard]] token_id next_id() const noexcept { return static_cast<token_id>(tokens_.size()); }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, token_id, detail::text_hash, std::equal_to<>> ids_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/vocabulary_impl.hpp>
#endif
