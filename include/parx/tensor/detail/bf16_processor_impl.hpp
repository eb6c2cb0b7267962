// Definitions of gemm/bf16_processor.hpp, and the paths themselves.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/tensor/gemm/bf16_direct.hpp>
#include <parx/tensor/gemm/bf16_direct_256.hpp>
#include <parx/tensor/gemm/bf16_gemm.hpp>
#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_processor.hpp>
#include <parx/tensor/gemm/bf16_registers.hpp>
#include <parx/tensor/gemm/bf16_tile_amx.hpp>
#include <parx/tensor/gemm/bf16_tile_vector.hpp>
#include <parx/tensor/gemm/tile_registers.hpp>

namespace parx::inline PARX_ABI {

namespace detail::product {

// name, text, rows and columns of a tile, bytes of a panel and a strip for 32 terms, functions that
// pack, terms at once, block of a, functions that compute.
#if defined(__x86_64__)
inline constexpr bf16_path bf16_by_amx{
    "amx", "AMX", 32, 32, 2048, 2048, registers::pack<registers::form::rows, 32>,
    registers::pack<registers::form::neighbours, 32>, bf16_block, 256 << 10, amx::multiply,
    vectors::add_512, direct::multiply, amx::begin, amx::end};
inline constexpr bf16_path bf16_by_dot{
    "dot", "AVX512_BF16", 12, 32, 12 * 64, 32 * 64, registers::pack<registers::form::chains, 12>,
    registers::pack<registers::form::chains, 32>, 256, 128 << 10, vectors::multiply_dot,
    vectors::add_512, direct::multiply};
inline constexpr bf16_path bf16_by_512{
    "wide", "AVX-512", 12, 32, 12 * 128, 32 * 128, vectors::pack_floats<12>,
    vectors::pack_floats<32>, 128, 128 << 10, vectors::multiply_512, vectors::add_512,
    direct_256::multiply};
inline constexpr bf16_path bf16_by_256{
    "wide", "AVX2", 6, 16, 6 * 128, 16 * 128, vectors::pack_floats<6>, vectors::pack_floats<16>,
    256, 128 << 10, vectors::multiply_256, vectors::add_256, direct_256::multiply};
#endif
inline constexpr bf16_path bf16_by_any{
    "wide", "no AVX2", 6, 8, 6 * 128, 8 * 128, vectors::pack_floats<6>, vectors::pack_floats<8>,
    bf16_block / 2, 128 << 10, vectors::multiply_plain, vectors::add_plain};

/// What this processor can run, asked for once.
struct bf16_possible {
  std::vector<const bf16_path*> paths;
  std::string why_not_amx = ask_for_tile_registers();

  bf16_possible() {
#if defined(__x86_64__)
    const bool has_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    const bool has_dot = has_512 && __builtin_cpu_supports("avx512bf16");
    if (why_not_amx.empty() && !has_dot) why_not_amx = "the processor has no AVX512_BF16";
    if (why_not_amx.empty()) paths.push_back(&bf16_by_amx);
    if (has_dot) paths.push_back(&bf16_by_dot);
    if (has_512) paths.push_back(&bf16_by_512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      paths.push_back(&bf16_by_256);
    }
#endif
    paths.push_back(&bf16_by_any);
  }

  [[nodiscard]] static const bf16_possible& instance() {
    static const bf16_possible possible;
    return possible;
  }
};

PARX_INLINE std::span<const bf16_path* const> bf16_paths_of_processor() {
  return bf16_possible::instance().paths;
}

PARX_INLINE bool has_bf16_order(const bf16_path& path) {
  constexpr std::size_t m = 39, n = 29, k = 70;
  std::uint32_t state = 1;
  const auto values = [&](std::size_t count) {
    std::vector<float> made(count);
    for (float& each : made) {
      state = state * 1664525U + 1013904223U;
      // Of moderate size, or with products near the denormals; every eighth a tie of two bfloat16.
      const std::uint32_t exponent = (state >> 28U) == 0 ? 60U : 122U;
      const std::uint32_t fraction = (state & 7U) == 0 ? 0x8000U : state >> 9U & 0x7FFFFFU;
      each = std::bit_cast<float>((state & 0x80000000U) | (exponent + (state >> 24U & 7U)) << 23U |
                                  fraction);
    }
    return made;
  };
  const std::vector<float> a = values(m * k), b = values(k * n);
  std::vector<float> transposed(n * k), stated(m * n);
  for (std::size_t i = 0; i < k * n; ++i) transposed[i % n * k + i / n] = b[i];
  const matrix<float> left{a.data(), k, 1}, right{b.data(), n, 1};
  for (std::size_t i = 0; i < m * n; ++i) {
    stated[i] = in_bf16_order(left.from(i / n, 0), right.from(0, i % n), k, 1.0F, 0.0F);
  }
  // As many rows as are packed into tiles, and as few as are multiplied directly.
  for (const std::size_t rows : {m, std::size_t{3}}) {
    for (const bf16_operand columns : {bf16_operand{b.data(), 1, n}, {transposed.data(), k, 1}}) {
      std::vector<float> c(rows * n);
      const bf16_multiplication x{.m = rows,
                                  .n = n,
                                  .k = k,
                                  .alpha = 1,
                                  .a = {a.data(), k, 1},
                                  .b = columns,
                                  .base = {},
                                  .c = c.data(),
                                  .ldc = n};
      bf16_product(x, path).run();
      if (std::memcmp(stated.data(), c.data(), c.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

/// Seconds of a product of two million multiply-adds.
[[nodiscard]] PARX_INLINE double seconds_of(const bf16_path& path) {
  constexpr std::size_t side = 64, k = 512;
  const std::vector<float> operand(side * k, 1.0F);
  std::vector<float> c(side * side);
  const bf16_multiplication x{.m = side,
                              .n = side,
                              .k = k,
                              .alpha = 1,
                              .a = {operand.data(), k, 1},
                              .b = {operand.data(), k, 1},
                              .base = {},
                              .c = c.data(),
                              .ldc = side};
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    bf16_product(x, path).run();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    least = std::min(least, taken.count());
  }
  return least;
}

[[nodiscard]] PARX_INLINE bf16_choice choose_bf16_path(const bf16_possible& possible,
                                                       const environment& env) {
  const auto wanted = env_string(env, "PARX_BF16");
  if (wanted && *wanted != "amx" && *wanted != "dot" && *wanted != "wide") {
    throw_usage("environment variable PARX_BF16=\"{}\" is none of amx, dot and wide", *wanted);
  }
  bf16_choice choice{&bf16_by_any, possible.why_not_amx};
  double least = std::numeric_limits<double>::infinity();
  bool found = false;
  for (const bf16_path* const path : possible.paths) {
    if ((wanted && path->name != *wanted) || (path == &bf16_by_any && found)) continue;
    if (path != &bf16_by_any && !has_bf16_order(*path)) {
      log0(log_level::warn,
           "products of bfloat16 by {} do not have the bits that parx states: this processor "
           "computes them without it",
           path->text);
      if (path->name == "amx") choice.why_not_amx = "its bits are not those that parx states";
      continue;
    }
    const double seconds = seconds_of(*path);
    if (seconds < least) choice.path = path, least = seconds;
    found = true;
    if (wanted) break;  // the widest
  }
  if (wanted && (!found || choice.path->name != *wanted)) {
    throw_usage("environment variable PARX_BF16={}: this processor cannot: {}", *wanted,
                *wanted == "amx" ? choice.why_not_amx : "it has no AVX512_BF16");
  }
  if (choice.path->name == "amx") choice.why_not_amx.clear();
  else if (choice.why_not_amx.empty()) {
    choice.why_not_amx = wanted ? formatted("PARX_BF16={}", *wanted) : "it is slower here";
  }
  return choice;
}

PARX_INLINE const bf16_choice& bf16_of_processor() {
  static const bf16_choice choice =
      choose_bf16_path(bf16_possible::instance(), process_environment());
  return choice;
}

}  // namespace detail::product

PARX_INLINE std::string bfloat16_products() {
  const detail::product::bf16_choice& choice = detail::product::bf16_of_processor();
  if (choice.why_not_amx.empty()) return std::string(choice.path->text);
  return formatted("{}, not AMX: {}", choice.path->text, choice.why_not_amx);
}

}  // namespace parx
