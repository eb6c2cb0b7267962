// text_marks: whether a text has any of some marks in it, at about the speed of grep. Pure. After
// Wu and Manber, "A fast algorithm for multi-pattern searching", 1994, with pairs of characters.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::slurm {

class text_marks {
 public:
  /// The marks must outlive this, and each has two characters or more.
  explicit text_marks(const std::vector<std::string_view>& marks) {
    require(!marks.empty(), "there are no marks to look for");
    const auto least = std::min_element(marks.begin(), marks.end(),
                                        [](auto a, auto b) { return a.size() < b.size(); });
    shortest_ = std::min<std::size_t>(least->size(), 200);
    require(shortest_ >= 2, "the mark \"{}\" has less than two characters", *least);
    steps_.assign(65536, static_cast<std::uint8_t>(shortest_ - 1));
    for (const std::string_view mark : marks) {
      by_last_[static_cast<unsigned char>(mark[shortest_ - 1])].push_back(mark);
      for (std::size_t i = 1; i < shortest_; ++i) {
        std::uint8_t& step = steps_[pair(mark.data() + i)];
        step = std::min(step, static_cast<std::uint8_t>(shortest_ - 1 - i));
      }
    }
  }

  [[nodiscard]] bool any_in(std::string_view text) const noexcept {
    // At `last` may be the last character of the first `shortest_` ones of a mark.
    for (std::size_t last = shortest_ - 1; last < text.size();) {
      const std::size_t step = steps_[pair(text.data() + last)];
      if (step > 0) {
        last += step;
        continue;
      }
      const std::string_view rest = text.substr(last + 1 - shortest_);
      for (const std::string_view mark : by_last_[static_cast<unsigned char>(text[last])]) {
        if (rest.starts_with(mark)) return true;
      }
      ++last;
    }
    return false;
  }

 private:
  /// Of a character and the one before it.
  [[nodiscard]] static std::size_t pair(const char* at) noexcept {
    return static_cast<std::size_t>(static_cast<unsigned char>(at[-1])) << 8 |
           static_cast<unsigned char>(at[0]);
  }

  std::size_t shortest_ = 0;
  std::array<std::vector<std::string_view>, 256> by_last_;  ///< the marks, by that character
  std::vector<std::uint8_t> steps_;  ///< by pair: how far the next mark's one must be away
};

}  // namespace parx::slurm
