// hook_state: the state of a ddp's hook, PowerSGD's error feedback for example, in checkpoints.
//
//   const parx::hook_state hook(ddp);                  // collective
//   hook.add_to(parts);                                // then checkpoints.save(step, parts)
//   ...
//   parx::load_hook_state(ddp, *checkpoints.latest());
//
// The trainer does so. The state of every rank is saved, so a run with the same number of ranks
// resumes with the same bits. With another number of ranks, each gets an equal part of the sum: no
// error feedback is lost, and PowerSGD continues as before up to rounding. While saving, rank 0
// holds the state of all ranks: for PowerSGD, the number of ranks times the bytes of the gradients.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/collectives/gather.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

inline constexpr std::string_view hook_state_name = "gradient_hook";

/// Whether `stored` can be read into `wanted`. An addend is stored with one row per rank.
[[nodiscard]] bool fits(const stored_tensor* stored, const hook_memory& wanted);

/// Returns false and reads nothing if the tensors of the file are not those of `memory`.
[[nodiscard]] bool load_hook_memory(const safetensors_file& file,
                                    const std::vector<hook_memory>& memory,
                                    const process_group& group);

}  // namespace detail

class hook_state {
 public:
  /// Collective, between two steps. Rank 0 gets a copy of the hook's state of all ranks; the other
  /// ranks get nothing. Empty if there is no hook.
  template <typename Module>
  explicit hook_state(ddp<Module>& wrapper, call_site site = call_site::current()) {
    process_group& group = wrapper.group();
    for (const hook_memory& each : wrapper.remembered_by_hook()) {
      const bool by_rank = each.share == hook_share::addend;
      const auto ranks = static_cast<std::size_t>(by_rank ? group.size() : 1);
      std::vector<std::byte> held(group.rank() == 0 ? ranks * each.values.bytes() : 0);
      if (by_rank) {
        const buffer_view all{held.data(), held.size() / size_of(each.values.type),
                              each.values.type};
        gather(group, each.values, all, {.root = 0}, site);
      } else if (!held.empty()) {
        std::memcpy(held.data(), each.values.data, held.size());
      }
      if (group.rank() == 0) keep(each, ranks, std::move(held));
    }
  }
  hook_state(hook_state&&) noexcept = default;
  hook_state& operator=(hook_state&&) noexcept = default;
  hook_state(const hook_state&) = delete;  // the tensors refer to its memory
  hook_state& operator=(const hook_state&) = delete;
  ~hook_state() = default;

  /// Local. Adds gradient_hook.safetensors unless it would be empty. `parts` borrows this memory.
  void add_to(checkpoint_parts& parts) const {
    if (!tensors_.empty()) parts.add_tensors(detail::hook_state_name, tensors_);
  }

 private:
  void keep(const hook_memory& each, std::size_t ranks, std::vector<std::byte> held);

  std::vector<std::vector<std::byte>> memory_;
  std::vector<tensor_to_store> tensors_;
};

/// Local, on every rank. Restores the state of the hook of `wrapper` from `saved`. If that was
/// saved with another hook, other options or other buckets, or without a hook, the hook starts with
/// no state and rank 0 warns. Throws errc::io when the disk fails.
template <typename Module>
void load_hook_state(ddp<Module>& wrapper, const saved_checkpoint& saved) {
  const std::vector<hook_memory> memory = wrapper.remembered_by_hook();
  const bool kept = saved.contains(formatted("{}.safetensors", detail::hook_state_name));
  std::size_t stored = 0;
  if (kept) {
    const safetensors_file file = saved.tensors(detail::hook_state_name);
    stored = file.tensors().size();
    if (detail::load_hook_memory(file, memory, wrapper.group())) return;
  }
  // samples_of_last_step, which every ddp with a hook saves, may be lost: the next step sets it.
  if ((memory.size() <= 1 && stored <= 1) || wrapper.group().rank() != 0) return;
  constexpr const char* absent =
      "without the state of a gradient hook: this run's hook starts without state";
  constexpr const char* none =
      "with a gradient hook, and this run has none: what the hook had left out of earlier "
      "gradients is dropped";
  constexpr const char* other =
      "with another gradient hook, or other options of it: this run's hook starts without state, "
      "and what was left out of earlier gradients is dropped";
  log(log_level::warn, "\"{}\" was saved {}", saved.path(),
      !kept ? absent : memory.empty() ? none : other);
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/ddp/detail/hook_state_impl.hpp>
#endif
