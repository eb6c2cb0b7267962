// collective_data: the buffers and the arithmetic of a collective, without types. The caller owns
// the buffers.
#pragma once

#include <cstddef>
#include <span>

#include <parx/comm/detail/progress/host_barrier.hpp>
#include <parx/comm/schedule/staged.hpp>
#include <parx/transport/links.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// A buffer that lies in a shared area, at the same offset on every rank. The buffer's owner keeps
/// the area.
struct shared_view {
  const shared_area* area = nullptr;
  std::size_t offset = 0;
  [[nodiscard]] std::byte* of(int rank) const noexcept {
    return area->of_rank[static_cast<std::size_t>(rank)] + offset;
  }
};

/// The scratch of a staged algorithm, in shared memory. Schedules number its parts from zero; which
/// part is number zero changes from call to call.
struct staging_view {
  const shared_area* area = nullptr;  ///< null where scratch is a rank's own
  std::size_t part_count = 1;  ///< elements of one part, in the schedule
  int first = 0;               ///< the part that is number zero in the schedule
  [[nodiscard]] std::byte* at(int rank, std::size_t element,
                              std::size_t element_size) const noexcept {
    auto part = element / part_count;
    if (part < algorithms::staging_parts) {
      part = (part + static_cast<std::size_t>(first)) % algorithms::staging_parts;
    }
    return area->of_rank[static_cast<std::size_t>(rank)] + host_barrier::bytes +
           part * largest_slice + element % part_count * element_size;
  }
};

/// Combines two elements: a kernel of types/reduce.hpp, or the user's function.
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

/// Several buffers that a collective handles as one: packed when it starts to run, unpacked when it
/// ends. The spans are borrowed; without inputs nothing is packed.
struct packing {
  std::span<const const_bytes> inputs{};
  std::span<const mutable_bytes> outputs{};  ///< if empty, the packed copy is only read
  std::size_t blocks = 1;       ///< in the packed copy, each with all inputs: an all_gather's ranks
  std::size_t input_block = 0;  ///< the block that holds the inputs
};

/// A collective's buffers and arithmetic, without types.
struct collective_data {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t element_size = 1;
  reduction reduce{};
  scale_function scale = nullptr;  ///< null if the result is not scaled
  double factor = 1;
  const double* divide_by = nullptr;  ///< read when the call starts to run; sets `factor`
  packing pack{};
  std::span<const mutable_bytes> output_blocks{};  ///< where each lies, if not one behind the other
  bool counts_differ = false;  ///< only the two ranks of a link know its count (all_to_all_v)

  // For algorithms in shared buffers.
  shared_view shared_input{};
  shared_view shared_output{};
  staging_view staging{};
};

}  // namespace parx::detail
