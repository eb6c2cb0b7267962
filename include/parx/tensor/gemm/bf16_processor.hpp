// bf16_processor: by which path this processor multiplies bfloat16.
//
// Chosen at the first product: of the paths that the processor and the kernel allow and whose bits
// are those of the stated order, the fastest. Intel's vdpbf16ps is half as fast as its multiply-add
// of floats, so what is fast is measured, for some 100 us. PARX_BF16=amx, dot or wide chooses one.
#pragma once

#include <span>
#include <string>

#include <parx/tensor/gemm/bf16_path.hpp>

namespace parx::inline PARX_ABI {

namespace detail::product {

struct bf16_choice {
  const bf16_path* path;
  std::string why_not_amx;  ///< empty where it is AMX
};

/// Every path that this processor can run, the plain one last.
[[nodiscard]] std::span<const bf16_path* const> bf16_paths_of_processor();
/// Whether the path's bits are those of bf16_order.hpp, on some thousand elements.
[[nodiscard]] bool has_bf16_order(const bf16_path& path);
/// Decides once in a process. Throws usage_error for a PARX_BF16 that is no path.
[[nodiscard]] const bf16_choice& bf16_of_processor();

}  // namespace detail::product

/// How this process multiplies bfloat16: "AMX", or such as "AVX-512 (no AMX: the processor has
/// none)". Decides it, which asks Linux for the tile registers. Throws usage_error for a PARX_BF16
/// that is none.
[[nodiscard]] std::string bfloat16_products();

}  // namespace parx
