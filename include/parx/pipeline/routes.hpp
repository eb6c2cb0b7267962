// stage_routes: which blocks' results are sent into each stage.
//
// The result of the block right before a stage always is. The result of an earlier block that a
// later one takes (a skip connection) is sent along through all stages between the two. On the way
// back each of them adds its own gradient, so sums have the same order as on one rank. The price is
// that a stage which only forwards a result sends its bytes once more; but an encoder's result is
// used by every stage of the decoder anyway.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/nn/blocks.hpp>

namespace parx::inline PARX_ABI {

class stage_routes {
 public:
  /// `cut` is the first block of each stage. Throws usage_error if a block takes the result of one
  /// that does not come before it.
  template <typename Input, typename T>
  stage_routes(const nn::model_blocks<Input, T>& blocks, const std::vector<std::size_t>& cut)
      : taken_(blocks.size()), last_use_(blocks.size(), 0), into_(cut.size()) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (const std::string& name : blocks[b].takes) {
        const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(b);
        const auto from = std::find_if(blocks.begin(), end,
                                       [&](const auto& each) { return each.name == name; });
        require(from != end,
                "block \"{}\" takes the result of \"{}\", and no block of that name "
                "comes before it",
                blocks[b].name, name);
        const auto source = static_cast<std::size_t>(from - blocks.begin());
        taken_[b].push_back(source);
        last_use_[source] = b;
      }
    }
    for (std::size_t stage = 1; stage < cut.size(); ++stage) {
      into_[stage].push_back(cut[stage] - 1);
      for (std::size_t source = 0; source + 1 < cut[stage]; ++source) {
        if (last_use_[source] >= cut[stage]) into_[stage].push_back(source);
      }
    }
  }

  /// The blocks whose results enter the stage, the one right before it first.
  [[nodiscard]] const std::vector<std::size_t>& into(std::size_t stage) const {
    return into_[stage];
  }
  /// The largest number of results that enter a stage.
  [[nodiscard]] std::size_t widest() const noexcept {
    std::size_t most = 1;
    for (const auto& each : into_) most = std::max(most, each.size());
    return most;
  }
  /// The blocks whose results this block takes by name.
  [[nodiscard]] const std::vector<std::size_t>& taken_by(std::size_t block) const {
    return taken_[block];
  }
  /// Whether a later block takes the result of this one by name.
  [[nodiscard]] bool is_taken(std::size_t block) const { return last_use_[block] > block; }
  [[nodiscard]] bool has_skips() const noexcept {
    return std::any_of(taken_.begin(), taken_.end(),
                       [](const auto& each) { return !each.empty(); });
  }

 private:
  std::vector<std::vector<std::size_t>> taken_;  // by block
  std::vector<std::size_t> last_use_;            // by block; 0 for none
  std::vector<std::vector<std::size_t>> into_;   // by stage
};

}  // namespace parx
