// hook_state: the state of a ddp's hook, PowerSGD's error feedback for example, in checkpoints.
//
//   const parx::hook_state hook(ddp);                  // collective
//   hook.add_to(parts);                                // then checkpoints.save(step, parts)
//   ...
//   parx::load_hook_state(ddp, *checkpoints.latest());
//
// save(ddp, optimizer, folder) and the trainer do so. The state of every rank is saved, so a run
// with the same number of ranks resumes with the same bits. With another number of ranks, each gets
// an equal part of the sum: no error feedback is lost, and PowerSGD continues as before up to
// rounding. While saving, rank 0 holds the state of all ranks: for PowerSGD, the number of ranks
// times the bytes of the gradients.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/hook_memory.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/collectives/gather.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Reads this rank's row, or its part of the sum if another number of ranks saved.
inline void read_addend(const safetensors_file& file, const stored_tensor& stored,
                        const buffer_view& values, const process_group& group) {
  const auto target = std::span(static_cast<std::byte*>(values.data), values.bytes());
  const std::uint64_t writers = stored.shape.front();
  if (writers == static_cast<std::uint64_t>(group.size())) {
    file.read(stored, target, static_cast<std::uint64_t>(group.rank()) * target.size());
    return;
  }
  visit_dtype(values.type, [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_floating(dtype_of<T>)) {
      std::vector<double> sum(values.count);
      std::vector<T> part(values.count);
      for (std::uint64_t writer = 0; writer < writers; ++writer) {
        file.read(stored, std::as_writable_bytes(std::span(part)), writer * target.size());
        for (std::size_t i = 0; i < part.size(); ++i) sum[i] += static_cast<double>(part[i]);
      }
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<T>(sum[i] / group.size());
      std::memcpy(values.data, part.data(), target.size());
    }
  });
}

inline constexpr std::string_view hook_state_name = "gradient_hook";

/// Whether `stored` can be read into `wanted`. An addend is stored with one row per rank.
[[nodiscard]] inline bool fits(const stored_tensor* stored, const hook_memory& wanted) {
  if (stored == nullptr || stored->type != wanted.values.type) return false;
  const std::vector<std::uint64_t>& shape = stored->shape;
  const bool by_rank = wanted.kind == hook_memory_kind::addend;
  if (shape.size() != (by_rank ? 2 : 1) || shape.back() != wanted.values.count) return false;
  return !by_rank || shape.front() > 0;
}

/// Returns false and reads nothing if the tensors of the file are not those of `memory`.
[[nodiscard]] inline bool load_hook_memory(const safetensors_file& file,
                                           const std::vector<hook_memory>& memory,
                                           const process_group& group) {
  if (file.tensors().size() != memory.size()) return false;
  for (const hook_memory& each : memory) {
    if (!fits(file.find(each.name), each)) return false;
  }
  for (const hook_memory& each : memory) {
    const stored_tensor& stored = *file.find(each.name);
    if (each.kind == hook_memory_kind::addend) {
      read_addend(file, stored, each.values, group);
    } else {
      file.read(stored, std::span(static_cast<std::byte*>(each.values.data), each.values.bytes()));
    }
  }
  return true;
}

}  // namespace detail

class hook_state {
 public:
  /// Collective, between two steps. Rank 0 gets a copy of the hook's state of all ranks; the other
  /// ranks get nothing. Empty if there is no hook.
  template <std::derived_from<whole_wrapper> Wrapper>
  explicit hook_state(Wrapper& wrapper, call_site site = call_site::current()) {
    process_group& group = wrapper.job_group();
    for (const hook_memory& each : wrapper.hook_state()) {
      const bool by_rank = each.kind == hook_memory_kind::addend;
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
  void keep(const hook_memory& each, std::size_t ranks, std::vector<std::byte> held) {
    std::vector<std::uint64_t> shape{each.values.count};
    if (each.kind == hook_memory_kind::addend) shape.insert(shape.begin(), ranks);
    memory_.push_back(std::move(held));
    tensors_.push_back({each.name, each.values.type, std::move(shape), memory_.back()});
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<tensor_to_store> tensors_;
};

/// Local, on every rank. Restores the state of the hook of `wrapper` from `saved`. If that was
/// saved with another hook, other options or other buckets, or without a hook, the hook starts with
/// no state and rank 0 warns. Throws errc::io when the disk fails.
template <std::derived_from<whole_wrapper> Wrapper>
void load_hook_state(Wrapper& wrapper, const saved_checkpoint& saved) {
  const std::vector<hook_memory> memory = wrapper.hook_state();
  const bool kept = saved.contains(formatted("{}.safetensors", detail::hook_state_name));
  std::size_t stored = 0;
  if (kept) {
    const safetensors_file file = saved.tensors(detail::hook_state_name);
    stored = file.tensors().size();
    if (detail::load_hook_memory(file, memory, wrapper.job_group())) return;
  }
  // samples_of_last_step, which every ddp with a hook saves, may be lost: the next step sets it.
  if ((memory.size() <= 1 && stored <= 1) || wrapper.job_group().rank() != 0) return;
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
