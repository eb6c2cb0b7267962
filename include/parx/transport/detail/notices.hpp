// notices: the notices of one rank's groups (job::post_notice), encoded as one text.
//
// One key of the store holds all of them, so that readers need not know the rank's groups. Each
// group has one notice. Beyond `most` the oldest is dropped, since a group that ends does not
// remove its notice. Threads: safe from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class notices {
 public:
  static constexpr std::size_t most = 16;

  /// Replaces the notice of a group and calls publish(all as one text). The lock is held during
  /// publish(), so that the text published last holds the latest notices of all groups.
  template <typename Publish>
  void post(std::uint64_t group, std::string_view text, Publish publish) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [group](const auto& each) { return each.first == group; });
    if (all_.size() == most) all_.erase(all_.begin());
    all_.emplace_back(group, text);
    std::string joined;
    for (const auto& [of, each] : all_) {
      const auto size = static_cast<std::uint32_t>(each.size());
      joined.append(reinterpret_cast<const char*>(&size), sizeof size);
      joined += each;
    }
    publish(joined);
  }

  /// Decodes such a text; a notice that is cut off is left out.
  [[nodiscard]] static std::vector<std::string> split(std::string_view joined) {
    std::vector<std::string> found;
    std::uint32_t size = 0;
    while (joined.size() >= sizeof size) {
      std::memcpy(&size, joined.data(), sizeof size);
      joined.remove_prefix(sizeof size);
      if (size > joined.size()) break;
      found.emplace_back(joined.substr(0, size));
      joined.remove_prefix(size);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::string>> all_;  ///< by group, the oldest first
};

}  // namespace parx::detail
