// stage_action: one step of a pipeline schedule, and the table of all steps of all ranks.
//
// A model is cut into stages, a batch into micro-batches. A schedule is a pure function
// pipeline_shape -> pipeline_table: which rank computes what, in which order. Sends and receives
// are not actions, since they follow from the table: the result of a forward or backward goes to
// the rank of the neighbouring stage, which has already posted its receive. validate.hpp proves a
// table, simulate.hpp runs it under a virtual clock.
// The letters and the text form are those of PyTorch's torch.distributed.pipelining.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// What an action of a schedule does.
enum class stage_work : std::uint8_t {
  forward,
  backward,          ///< gradients of inputs and weights together
  backward_inputs,   ///< the gradient that the previous stage waits for
  backward_weights,  ///< the gradients of the parameters, any time after backward_inputs
  unshard,           ///< gathers the parameters of a sharded stage
  reshard,           ///< frees the gathered parameters
  reduce_gradients,  ///< starts to sum the gradients of the stage over its data-parallel ranks
};

/// The letters of PyTorch's tables.
[[nodiscard]] constexpr std::string_view to_string(stage_work kind) noexcept {
  constexpr std::array<std::string_view, 7> names{"F", "B", "I", "W",
                                                  "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  return names[static_cast<std::size_t>(kind)];
}

/// Whether it is about one micro-batch: F, B, I, W. The others are about the whole stage.
[[nodiscard]] constexpr bool is_compute(stage_work kind) noexcept {
  return kind <= stage_work::backward_weights;
}

/// Whether it computes the gradient that the previous stage waits for: B and I.
[[nodiscard]] constexpr bool makes_input_gradient(stage_work kind) noexcept {
  return kind == stage_work::backward || kind == stage_work::backward_inputs;
}

/// Whether it ends a micro-batch's backward: B and W.
[[nodiscard]] constexpr bool makes_weight_gradient(stage_work kind) noexcept {
  return kind == stage_work::backward || kind == stage_work::backward_weights;
}

struct stage_action {
  stage_work kind = stage_work::forward;
  int stage = 0;
  int microbatch = -1;  ///< -1 if it is about the whole stage

  friend bool operator==(const stage_action&, const stage_action&) = default;
};

/// "2F0": stage, letter, micro-batch; "2REDUCE_GRAD".
[[nodiscard]] inline std::string to_string(const stage_action& a) {
  return is_compute(a.kind) ? formatted("{}{}{}", a.stage, to_string(a.kind), a.microbatch)
                            : formatted("{}{}", a.stage, to_string(a.kind));
}

/// The inverse; nullopt for text that is not an action.
[[nodiscard]] inline std::optional<stage_action> parse_stage_action(std::string_view text) {
  constexpr int largest_number = 999'999;  // of a stage or a micro-batch
  const auto number = [&](int& value) {
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{} || value < 0 || value > largest_number) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  stage_action found;
  if (!number(found.stage)) return std::nullopt;
  const std::string_view name = text.substr(0, text.find_first_of("0123456789"));
  for (int kind = 0; kind <= static_cast<int>(stage_work::reduce_gradients); ++kind) {
    found.kind = static_cast<stage_work>(kind);
    if (name != to_string(found.kind)) continue;
    text.remove_prefix(name.size());
    if (is_compute(found.kind) && !number(found.microbatch)) return std::nullopt;
    return text.empty() ? std::optional(found) : std::nullopt;
  }
  return std::nullopt;
}

/// The input of a schedule.
struct pipeline_shape {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;  ///< stages of each rank, for the schedules that support several
  double hop = 0;  ///< time of a message from stage to stage, in units of one forward and backward
};

/// A schedule: what each rank does, in order.
struct pipeline_table {
  std::string name;
  int stages = 0;
  int microbatches = 0;
  std::vector<std::vector<stage_action>> ranks;  ///< by rank, in order

  /// The rank of each stage: -1 if no rank has it, the first one if several have.
  [[nodiscard]] std::vector<int> owners() const {
    std::vector<int> owner(static_cast<std::size_t>(stages), -1);
    for (std::size_t rank = ranks.size(); rank-- > 0;) {
      for (const stage_action& a : ranks[rank]) {
        if (a.stage < stages) owner[static_cast<std::size_t>(a.stage)] = static_cast<int>(rank);
      }
    }
    return owner;
  }
};

/// The table with the actions of the first `count` micro-batches alone. It stays valid: an action
/// waits for others of its micro-batch only.
[[nodiscard]] inline pipeline_table first_microbatches(pipeline_table of, int count) {
  for (auto& actions : of.ranks) {
    std::erase_if(actions, [&](const stage_action& a) { return a.microbatch >= count; });
  }
  of.microbatches = std::min(of.microbatches, count);
  return of;
}

/// Any function of this type is a schedule; parx's own are in parx::schedules.
using pipeline_schedule = pipeline_table (*)(const pipeline_shape&);

namespace detail {

/// An empty table of `chunks` stages a rank. Throws usage_error for a shape that makes no sense.
[[nodiscard]] inline pipeline_table empty_table(std::string_view name, const pipeline_shape& shape,
                                                int chunks) {
  require(shape.ranks > 0 && shape.microbatches > 0 && shape.chunks > 0 && shape.hop >= 0,
          "schedule {}: {} ranks, {} micro-batches and {} chunks, at least 1 of each, and a hop of "
          "{}, at least 0",
          name, shape.ranks, shape.microbatches, shape.chunks, shape.hop);
  require(shape.chunks == chunks || shape.chunks == 1,
          "schedule {} has {} stage{} on each rank, not {}", name, chunks, chunks > 1 ? "s" : "",
          shape.chunks);
  return {.name = std::string(name),
          .stages = shape.ranks * chunks,
          .microbatches = shape.microbatches,
          .ranks = std::vector<std::vector<stage_action>>(static_cast<std::size_t>(shape.ranks))};
}

}  // namespace detail
}  // namespace parx
