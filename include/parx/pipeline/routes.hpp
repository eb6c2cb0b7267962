// stage_routes: which blocks' results travel into each stage.
//
// The result of the block right before a stage always does. What a block takes of one further ahead
// (a skip connection) travels with it through all stages between the two, each of which adds its
// own gradient on the way back: so sums have the order that they have on one rank. A stage that
// only passes a result on sends its bytes once more; an encoder's result is used by every stage of
// the decoder anyway.
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
  /// `cut` is the first block of each stage. Throws usage_error where a block takes the result of
  /// one that does not come before it.
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
  /// Most of them.
  [[nodiscard]] std::size_t widest() const noexcept {
    std::size_t most = 1;
    for (const auto& each : into_) most = std::max(most, each.size());
    return most;
  }
  [[nodiscard]] const std::vector<std::size_t>& taken_by(std::size_t block) const {
    return taken_[block];
  }
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
