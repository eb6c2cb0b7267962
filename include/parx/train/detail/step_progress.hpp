// step_progress: the progress of a rank, by which the surviving ranks agree after a loss where to
// continue.
//
// To update its parameters a rank needs the gradients of all ranks. So the survivors are all in the
// same step, or some have finished it and the others have not. Ranks of a ddp with the same number
// of steps have the same bits. All survivors continue with the state of the most advanced rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/options.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// What has been done in a step since its parameters were updated.
enum class step_phase { updated, logged, evaluated, complete };

struct step_progress {
  bool whole = true;  ///< false while another rank's state is being copied
  std::uint64_t step = 0;
  step_phase done = step_phase::complete;
  std::uint64_t exchanges = 0;  ///< run_metrics's
  double norm = 0, lr = 0;  ///< for the log line of the step
  // The result of the step's evaluation, for its checkpoint:
  std::optional<double> metric = std::nullopt;
  bool best = false;     ///< whether it is the best so far
  bool was_due = false;  ///< whether it was postponed by the run before a resume
  bool stopping = false;
  int signal = 0;

  [[nodiscard]] auto order() const noexcept { return std::tuple(whole, step, done, exchanges); }
};
static_assert(std::is_trivially_copyable_v<step_progress>);

/// Throws usage_error if training cannot continue after a loss, for a `reason` or because the
/// loader's samples cannot be divided anew.
inline void require_replaceable(const std::string& reason, bool can_divide,
                                const option_words& words) {
  require(reason.empty(),
          "trainer: on_loss cannot go on without a rank: {}. Leave it out, and go on from a "
          "checkpoint, by {}",
          reason, words.resume);
  require(can_divide,
          "trainer: on_loss deals the samples out anew, which this loader cannot do: take a "
          "data::loader");
}

/// Whether the error means that a rank was lost, or that another rank noticed a loss and closed the
/// group.
[[nodiscard]] inline bool is_rank_loss(const error& failure) noexcept {
  const errc code = failure.code_value();
  return code == errc::peer_lost || code == errc::aborted || code == errc::closed ||
         code == errc::timeout;
}

/// The rank with the most progress.
struct most_advanced_rank {
  int rank = 0;
  step_progress its;
  bool all_equal = true;   ///< no rank has anything to copy
  bool same_steps = true;  ///< all ranks have the parameters of its step
};

/// Collective. Throws if no rank has a complete state any more.
[[nodiscard]] inline most_advanced_rank find_most_advanced(process_group& group,
                                                           const step_progress& mine,
                                                           call_site site) {
  std::vector<step_progress> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), all, {}, site);
  const auto first = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.order() < b.order(); });
  if (!first->whole) {
    throw_error(errc::bad_data,
                "the last ranks that had all of step {} were lost while they gave it to the "
                "others: go on from a checkpoint",
                first->step);
  }
  most_advanced_rank found{static_cast<int>(first - all.begin()), *first};
  for (const step_progress& each : all) {
    found.all_equal &= each.order() == first->order();
    found.same_steps &= each.whole && each.step == first->step;
  }
  return found;
}

/// Calls `use` with the memory of each buffer of a module (running statistics), if it has any.
template <typename Module>
void visit_buffers(Module& module, function_ref<void(std::span<std::byte>)> use) {
  if constexpr (requires { module.for_each_buffer([](const std::string&, auto&) {}); }) {
    module.for_each_buffer([&use](const std::string&, auto& buffer) {
      use(std::as_writable_bytes(std::span(buffer.value().data(), buffer.value().size())));
    });
  }
}

/// A backup of what a step changes before it is finished: counts and buffers.
class unfinished_step {
 public:
  /// Calls what it is given with the memory of each buffer, in the same order each time.
  using for_each_buffer = function_ref<void(function_ref<void(std::span<std::byte>)>)>;

  void begin(const rank_counts& counts, for_each_buffer buffers) {
    counts_ = counts;
    buffers_.clear();
    buffers([this](std::span<std::byte> bytes) {
      buffers_.insert(buffers_.end(), bytes.begin(), bytes.end());
    });
  }
  void end() noexcept { counts_.reset(); }
  /// Restores the values of begin(), unless the step has ended.
  void undo(rank_counts& counts, for_each_buffer buffers) {
    if (!counts_) return;
    counts = *counts_;
    const std::byte* from = buffers_.data();
    buffers([&from](std::span<std::byte> bytes) {
      std::copy_n(from, bytes.size(), bytes.begin());
      from += bytes.size();
    });
    end();
  }

 private:
  std::optional<rank_counts> counts_;
  std::vector<std::byte> buffers_;
};

}  // namespace parx::train::detail
