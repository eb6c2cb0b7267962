// compiled_for: the instructions that a program may use, as a text in its file.
//
// A program that uses an instruction that its processor does not have ends by SIGILL, perhaps
// before main(). parxrun then looks for this text in the program's file
// (examples/tools/common/instructions.hpp). The names are those of /proc/cpuinfo.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

[[gnu::used]] inline constexpr char compiled_for[] =
    "parx compiled for:"
#ifdef __SSE4_2__
    " sse4_2"
#endif
#ifdef __POPCNT__
    " popcnt"
#endif
#ifdef __MOVBE__
    " movbe"
#endif
#ifdef __AVX__
    " avx"
#endif
#ifdef __F16C__
    " f16c"
#endif
#ifdef __FMA__
    " fma"
#endif
#ifdef __BMI__
    " bmi1"
#endif
#ifdef __BMI2__
    " bmi2"
#endif
#ifdef __AVX2__
    " avx2"
#endif
#ifdef __AVX512F__
    " avx512f"
#endif
#ifdef __AVX512BW__
    " avx512bw"
#endif
#ifdef __AVX512DQ__
    " avx512dq"
#endif
#ifdef __AVX512VL__
    " avx512vl"
#endif
#ifdef __AVX512VNNI__
    " avx512_vnni"
#endif
#ifdef __AVX512BF16__
    " avx512_bf16"
#endif
    ";";

}  // namespace parx::detail
