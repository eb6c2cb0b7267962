// Whether this program was compiled for the vector instructions that the processor has.
//
// parx's loops use only the instructions that the compiler was allowed to use: without
// -march=native (or such -m flags) products of matrices are up to eight times slower, and nothing
// else would say so.
#pragma once

#include <string_view>

#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::detail {

enum class vector_level { baseline, avx2, avx512 };

inline constexpr vector_level compiled_level =
#if defined(PARX_VECTORS_AVX512)
    vector_level::avx512;
#elif defined(PARX_VECTORS_AVX2)
    vector_level::avx2;
#else
    vector_level::baseline;
#endif

/// The level of this processor; on other architectures compiled_level.
[[nodiscard]] inline vector_level processor_level() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return vector_level::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return vector_level::avx2;
  return vector_level::baseline;
#else
  return compiled_level;
#endif
}

[[nodiscard]] constexpr std::string_view name_of(vector_level level) noexcept {
  switch (level) {
    case vector_level::avx512: return "AVX-512";
    case vector_level::avx2: return "AVX2";
    case vector_level::baseline: break;
  }
  return "no AVX2";
}

/// How many times fewer multiply-adds an instruction does at `compiled` than at `processor`.
[[nodiscard]] constexpr int times_slower(vector_level compiled, vector_level processor) noexcept {
  constexpr int speed[] = {1, 4, 8};  // multiply-adds of 4, 8 and 16 floats, the first in two steps
  return speed[static_cast<int>(processor)] / speed[static_cast<int>(compiled)];
}

/// Logs one warning, on rank 0, when compiled_level is below the processor's. Cheap to call.
inline void warn_of_unused_instructions() {
  [[maybe_unused]] static const bool said = [] {
    const vector_level processor = processor_level();
    if (compiled_level >= processor || logger::instance().rank() > 0) return false;
    log(log_level::warn,
        "this program was compiled with {}, but the processor has {}: products of matrices "
        "may take up to {} times as long as they have to. Compile with -march=native (CMake: "
        "link parx::native). (PARX_LOG_LEVEL=error hides this.)",
        name_of(compiled_level), name_of(processor), times_slower(compiled_level, processor));
    return true;
  }();
}

}  // namespace parx::detail
