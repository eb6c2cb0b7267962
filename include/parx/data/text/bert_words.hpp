// bert_words: splits a text into words as BERT does before WordPiece.
//
// Control characters and U+FFFD are dropped, white space separates, ideographs and punctuation are
// words of their own; for uncased models accents are stripped (NFD without non-spacing marks) and
// letters made lower case. ASCII, which most texts are, takes one table look-up per byte, and
// nothing is allocated. Pure. Source: google-research/bert tokenization.py (BasicTokenizer) as
// Hugging Face's tokenizers does it: unassigned characters stay, lower case is letter by letter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

enum class letter_case { uncased, cased };

/// A longer word is [UNK]: BERT's max_input_chars_per_word.
inline constexpr std::size_t max_word_characters = 100;

namespace detail {

enum class ascii_kind : unsigned char { dropped, space, punctuation, letter, wide };

struct ascii_table {
  std::array<ascii_kind, 256> kind;
  std::array<char, 256> lower;
};

inline const ascii_table& bert_ascii() noexcept {
  static const ascii_table table = [] {
    ascii_table made{};
    for (std::uint32_t c = 0; c < 256; ++c) {
      // To BERT vertical tab and form feed are control characters, tab and line breaks are space.
      const bool is_dropped = is_control(c) || c == 0x0B || c == 0x0C;
      made.kind[c] = c >= 0x80           ? ascii_kind::wide
                     : is_dropped        ? ascii_kind::dropped
                     : is_space(c)       ? ascii_kind::space
                     : is_punctuation(c) ? ascii_kind::punctuation
                                         : ascii_kind::letter;
      made.lower[c] = static_cast<char>(c < 0x80 ? to_lower(c) : c);
    }
    return made;
  }();
  return table;
}

/// A word that grows up to the limit without allocating.
class word_buffer {
 public:
  void append(char c) noexcept {
    if (++characters_ <= max_word_characters) bytes_[size_++] = c;
  }
  void append_code(std::uint32_t code) noexcept {
    if (code < 0x80) return append(static_cast<char>(code));
    if (++characters_ > max_word_characters) return;
    const unsigned rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    bytes_[size_++] = static_cast<char>((0xFF00U >> (rest + 1) & 0xFFU) | code >> (6U * rest));
    for (unsigned i = rest; i-- > 0;)
      bytes_[size_++] = static_cast<char>(0x80U | (code >> (6U * i) & 0x3FU));
  }
  [[nodiscard]] bool empty() const noexcept { return characters_ == 0; }
  [[nodiscard]] bool too_long() const noexcept { return characters_ > max_word_characters; }
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), size_}; }
  void clear() noexcept { size_ = characters_ = 0; }

 private:
  std::array<char, 4 * max_word_characters> bytes_;
  std::size_t size_ = 0;
  std::size_t characters_ = 0;
};

}  // namespace detail

/// Calls use(word, too_long) for each word of `text`, in order; a word of more than 100 characters
/// is cut there and `too_long` is true. Words are valid during the call. Returns how many
/// ill-formed pieces of UTF-8 were dropped.
template <typename Use>
std::size_t bert_words(std::string_view text, letter_case letters, Use&& use) {
  const detail::ascii_table& ascii = detail::bert_ascii();
  const bool lower = letters == letter_case::uncased;
  detail::word_buffer word;
  std::size_t invalid = 0;
  const auto end_word = [&] {
    if (word.empty()) return;
    use(word.text(), word.too_long());
    word.clear();
  };
  const auto put = [&](std::uint32_t code) {
    if (is_space(code)) return end_word();
    if (!is_punctuation(code)) return word.append_code(code);
    end_word();
    word.append_code(code);
    end_word();
  };
  const auto put_folded = [&](std::uint32_t code) {
    if (!lower) return put(code);
    strip_accents(code, [&](std::uint32_t part) { put(to_lower(part)); });
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    switch (ascii.kind[byte]) {
      case detail::ascii_kind::letter:
        word.append(lower ? ascii.lower[byte] : text[at]);
        break;
      case detail::ascii_kind::space:
        end_word();
        break;
      case detail::ascii_kind::dropped:
        break;
      case detail::ascii_kind::punctuation:
        end_word();
        word.append(text[at]);
        end_word();
        break;
      case detail::ascii_kind::wide: {
        const decoded_character next = decode_character(text.substr(at));
        at += next.bytes;
        if (!next.valid) {
          ++invalid;
        } else if (next.code == replacement_character || is_control(next.code) ||
                   next.code == 0x85) {
          // Dropped. U+0085 is white space in Unicode, but BERT tests for control characters first.
        } else if (is_ideograph(next.code)) {
          end_word();
          put_folded(next.code);
          end_word();
        } else {
          put_folded(next.code);
        }
        continue;
      }
    }
    ++at;
  }
  end_word();
  return invalid;
}

}  // namespace parx::data
