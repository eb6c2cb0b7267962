// collective_data: what a collective works on, and how, without types. Buffers are the caller's.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <parx/comm/detail/progress/board.hpp>
#include <parx/comm/schedule/staged.hpp>
#include <parx/transport/transport.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// A buffer that lies in a shared area, at the same offset on every rank.
struct shared_view {
  std::shared_ptr<const shared_area> area{};
  std::size_t offset = 0;
  [[nodiscard]] std::byte* of(int rank) const noexcept {
    return area->of_rank[static_cast<std::size_t>(rank)] + offset;
  }
};

/// A rank's scratch in a staged algorithm, in memory that all ranks see. The schedule counts its
/// parts from zero; which one that is changes from call to call.
struct staging_view {
  std::shared_ptr<const shared_area> area{};
  std::size_t part_count = 1;  ///< elements that the schedule puts into one
  int first = 0;               ///< the part that the schedule calls zero
  [[nodiscard]] std::byte* at(int rank, std::size_t element,
                              std::size_t element_size) const noexcept {
    auto part = element / part_count;
    if (part < schedules::staging_parts) {
      part = (part + static_cast<std::size_t>(first)) % schedules::staging_parts;
    }
    return area->of_rank[static_cast<std::size_t>(rank)] + board::bytes + part * largest_slice +
           element % part_count * element_size;
  }
};

/// How two elements become one: a kernel of types/reduce.hpp, or a function of the user's.
struct reduction {
  reduce_function kernel = nullptr;
  void (*user)(const void* context, void* out, const void* a, const void* b,
               std::size_t count) = nullptr;
  const void* context = nullptr;

  explicit operator bool() const noexcept { return kernel != nullptr || user != nullptr; }
  void operator()(void* out, const void* a, const void* b, std::size_t count) const {
    if (kernel != nullptr) return kernel(out, a, b, count);
    user(context, out, a, b, count);
  }
};

/// Several buffers that are one to a collective: packed when its run starts, unpacked when it ends.
/// The spans are borrowed; without inputs nothing is packed.
struct packing {
  std::span<const const_bytes> inputs{};
  std::span<const mutable_bytes> outputs{};  ///< without them the packed copy is only read
  std::size_t blocks = 1;       ///< of the packed copy, each of all inputs: an all_gather's ranks
  std::size_t input_block = 0;  ///< where in it the inputs go
};

/// A collective's buffers and arithmetic, without types.
struct collective_data {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t element_size = 1;
  reduction reduce{};
  scale_function scale = nullptr;  ///< null where the result is not scaled
  double factor = 1;
  const double* divide_by = nullptr;  ///< makes the factor when the run starts
  packing pack{};
  bool counts_differ = false;  ///< only its two ends know what goes over a link (all_to_all_v)

  // For algorithms in shared buffers.
  shared_view shared_input{};
  shared_view shared_output{};
  staging_view staging{};
};

}  // namespace parx::detail
