#include <parx/tensor/gemm/bf16_processor.hpp>

#include <boost/test/unit_test.hpp>

#if defined(__x86_64__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/detail/bf16_processor_impl.hpp>
#include <parx/tensor/matmul.hpp>

namespace product = parx::detail::product;
using parx::bfloat16, parx::op;

namespace {

enum class kind { moderate, near_denormals, any_bits, whole_numbers, edges };
constexpr kind kinds[] = {kind::moderate, kind::near_denormals, kind::any_bits, kind::whole_numbers,
                          kind::edges};

float value(kind k, std::mt19937& random) {
  const auto r = static_cast<std::uint32_t>(random());
  const auto with_exponent = [r](std::uint32_t exponent) {
    return std::bit_cast<float>((r & 0x807FFFFFU) | exponent << 23U);
  };
  constexpr std::uint32_t edges[] = {0,          0x80000000, 1,          0x807FFFFF,
                                     0x007FFFFF, 0x007F8000, 0x00800000, 0x80800000,
                                     0x3F800000, 0x3F808000, 0xBF818000, 0x20000000,
                                     0x9F800000, 0x7F7FFFFF, 0x7F800000, 0xFF7F0000};
  switch (k) {
    case kind::moderate:
      return with_exponent(120 + r % 12);
    case kind::near_denormals:
      return with_exponent(56 + r % 16);
    case kind::any_bits:
      return std::bit_cast<float>(r);
    case kind::whole_numbers:
      return static_cast<float>(static_cast<int>(r % 7) - 3);
    case kind::edges:
      break;
  }
  return std::bit_cast<float>(edges[r % 16]);
}

template <typename T>
std::vector<T> values(std::size_t count, kind k, std::mt19937& random) {
  std::vector<T> made(count);
  for (T& each : made) each = value(k, random);
  return made;
}

bool is_same(float x, float y) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
         (std::isnan(x) && std::isnan(y));
}

struct sizes {
  std::size_t m, n, k;
};

/// Whether a product by the path is that of the stated order, bit for bit, and touches nothing but
/// its result.
template <typename A, typename B>
bool is_stated(const product::bf16_path& path, sizes s, kind k, std::mt19937& random) {
  const bool a_rows = random() % 2 == 0, b_rows = random() % 2 == 0;
  const std::size_t lda = (a_rows ? s.k : s.m) + random() % 3;
  const std::size_t ldb = (b_rows ? s.n : s.k) + random() % 3, ldc = s.n + random() % 3;
  const auto a = values<A>((a_rows ? s.m : s.k) * lda + 1, k, random);
  const auto b = values<B>((b_rows ? s.k : s.n) * ldb + 1, k, random);
  const kind addends = k == kind::any_bits ? kind::moderate : k;
  const auto before = values<float>(s.m * ldc, addends, random);
  const auto row = values<float>(s.n, addends, random);
  std::vector<float> c = before;
  const float alpha = random() % 2 == 0 ? 1.0F : 0.37F;
  const product::addend<float> bases[] = {
      {}, {row.data(), 0, 1}, {c.data(), ldc, 1}, {c.data(), ldc, 0.5F}};
  const product::addend<float> base = bases[random() % 4];
  const product::bf16_operand left{a.data(), a_rows ? lda : 1, a_rows ? 1 : lda};
  const product::bf16_operand right{b.data(), b_rows ? 1 : ldb, b_rows ? ldb : 1};
  product::bf16_product({.m = s.m,
                         .n = s.n,
                         .k = s.k,
                         .alpha = alpha,
                         .a = left,
                         .b = right,
                         .base = base,
                         .c = c.data(),
                         .ldc = ldc},
                        path)
      .run();
  const product::matrix<A> rows{a.data(), left.down, left.right};
  const product::matrix<B> columns{b.data(), right.right, right.down};
  for (std::size_t i = 0; i < s.m; ++i) {
    for (std::size_t j = 0; j < ldc; ++j) {
      const float old = before[i * ldc + j];
      if (j >= s.n) {
        if (!is_same(c[i * ldc + j], old)) return false;
        continue;
      }
      const float start = base.data == c.data() ? base.factor * old : base.at(0, j);
      const float stated =
          product::in_bf16_order(rows.from(i, 0), columns.from(0, j), s.k, alpha, start);
      if (!is_same(c[i * ldc + j], stated)) return false;
    }
  }
  return true;
}

/// x86-64 without multiply-add has these bits for moderate values only.
bool holds([[maybe_unused]] const product::bf16_path& path, [[maybe_unused]] kind k) {
#if defined(__x86_64__)
  if (&path == &product::bf16_by_any) return k == kind::moderate || k == kind::whole_numbers;
#endif
  return true;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_path_has_the_bits_of_the_stated_order) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t most) { return 1 + random() % most; };
  for (const product::bf16_path* const path : product::bf16_paths_of_processor()) {
    BOOST_TEST_MESSAGE(path->text);
    int wrong = 0;
    for (int t = 0; t < 120; ++t) {
      const kind k = kinds[t % 5];
      if (!holds(*path, k)) continue;
      const sizes s{below(t % 7 == 0 ? 70 : 40), below(t % 11 == 0 ? 300 : 70),
                    t % 8 == 0 ? 480 + below(70) : below(100)};
      wrong += is_stated<float, float>(*path, s, k, random) ? 0 : 1;
      wrong += is_stated<bfloat16, bfloat16>(*path, s, k, random) ? 0 : 1;
      wrong += is_stated<bfloat16, float>(*path, s, k, random) ? 0 : 1;
    }
    for (std::size_t k = 0; k <= 70; ++k) {  // and whole tiles, and many blocks
      wrong += is_stated<float, float>(*path, {33, 35, k}, kind::moderate, random) ? 0 : 1;
    }
    for (std::size_t t = 0; t < 200; ++t) {  // few rows, and terms across 32 and 512
      const kind k = kinds[t % 5];
      if (!holds(*path, k)) continue;
      constexpr std::size_t terms[] = {0, 1, 30, 31, 32, 33, 63, 511, 512, 513, 543, 1030};
      const sizes s{1 + t % 4, below(t % 9 == 0 ? 1100 : 80), terms[random() % 12]};
      wrong += is_stated<float, float>(*path, s, k, random) ? 0 : 1;
      wrong += is_stated<bfloat16, bfloat16>(*path, s, k, random) ? 0 : 1;
      wrong += is_stated<float, bfloat16>(*path, s, k, random) ? 0 : 1;
    }
    wrong += is_stated<float, bfloat16>(*path, {270, 33, 1100}, kind::moderate, random) ? 0 : 1;
    wrong += is_stated<float, float>(*path, {3, 1100, 40}, kind::moderate, random) ? 0 : 1;
    BOOST_TEST(wrong == 0, path->text << ": " << wrong << " products");
    BOOST_TEST(product::has_bf16_order(*path));
  }
}

#if defined(__x86_64__)
BOOST_AUTO_TEST_CASE(operands_are_packed_as_tile_registers_read_them) {
  if (!__builtin_cpu_supports("avx512bf16")) return;
  using product::registers::form;
  std::mt19937 random(5);
  int wrong = 0;
  const auto check = [&]<form Form, typename T>(std::integral_constant<form, Form>, T) {
    for (int t = 0; t < 60; ++t) {
      const std::size_t count = 1 + random() % 32, terms = 1 + random() % 80;
      const bool has_rows = t % 2 == 0;
      const std::size_t down = has_rows ? terms : 1, right = has_rows ? 1 : count;
      const auto from = values<T>(count * terms, kinds[t % 5], random);
      std::vector<std::uint16_t> packed((terms + 31) / 32 * 1024, 1);
      product::registers::pack<Form, 32>({from.data(), down, right}, count, terms,
                                         reinterpret_cast<std::byte*>(packed.data()));
      for (std::size_t at = 0; at < packed.size(); ++at) {
        // 32 terms, then 16 rows; a row's terms side by side, or its neighbours in pairs.
        const std::size_t line = at % 512 / 32, column = at % 32;
        const std::size_t row = at % 1024 / 512 * 16 + (Form == form::rows ? line : column / 2);
        const std::size_t term =
            at / 1024 * 32 + (Form == form::rows ? column : 2 * line + column % 2);
        const bool is_inside = row < count && term < terms;
        const std::uint16_t stated =
            is_inside ? product::bits_of_operand(from[row * down + term * right])
                      : std::uint16_t{0};
        wrong += packed[at] == stated ? 0 : 1;
      }
    }
  };
  check(std::integral_constant<form, form::rows>{}, float{});
  check(std::integral_constant<form, form::rows>{}, bfloat16{});
  check(std::integral_constant<form, form::neighbours>{}, float{});
  check(std::integral_constant<form, form::neighbours>{}, bfloat16{});
  BOOST_TEST(wrong == 0);
}
#endif

BOOST_AUTO_TEST_CASE(a_path_that_adds_in_another_order_is_found_out) {
  // As vdpbf16ps would go with the terms in memory's order: odd and even ones exchanged.
  static const product::bf16_path* const right = product::bf16_paths_of_processor().back();
  product::bf16_path swapped = *right;
  swapped.pack_a = [](product::bf16_operand from, std::size_t count, std::size_t terms,
                      std::byte* to) {
    right->pack_a(from, count, terms, to);
    const std::size_t of_a_term = right->rows * sizeof(float);
    std::vector<std::byte> first(to, to + of_a_term);
    std::memcpy(to, to + 16 * of_a_term, of_a_term);  // the first even and the first odd term
    std::memcpy(to + 16 * of_a_term, first.data(), of_a_term);
  };
  swapped.pack_b = [](product::bf16_operand from, std::size_t count, std::size_t terms,
                      std::byte* to) {
    right->pack_b(from, count, terms, to);
    const std::size_t of_a_term = right->columns * sizeof(float);
    std::vector<std::byte> first(to, to + of_a_term);
    std::memcpy(to, to + 16 * of_a_term, of_a_term);
    std::memcpy(to + 16 * of_a_term, first.data(), of_a_term);
  };
  BOOST_TEST(product::has_bf16_order(*right));
  BOOST_TEST(!product::has_bf16_order(swapped));
}

BOOST_AUTO_TEST_CASE(few_rows_that_are_added_in_another_order_are_found_out) {
  // One term after the other where b has one layout, as stated where it has the other.
  static const auto multiply = [](const product::bf16_direct_sums& x, bool of_adjacent_terms) {
    const bool is_wrong = (x.b.right == 1) == of_adjacent_terms;
    x.b.values.visit([&](const auto* b) {
      for (std::size_t i = 0; i < x.rows; ++i) {
        for (std::size_t j = 0; j < x.columns; ++j) {
          std::vector<float> column(x.terms);
          for (std::size_t p = 0; p < x.terms; ++p) column[p] = b[j * x.b.down + p * x.b.right];
          float& sum = x.sums[i * x.sums_step + j];
          const float* const a = x.a + i * x.a_step;
          if (is_wrong) {
            for (std::size_t p = 0; p < x.terms; ++p) {
              sum += a[p] * product::operand_of_bits(product::bits_of_operand(column[p]));
            }
          } else {
            const product::matrix<float> row{a, x.a_step, 1}, terms{column.data(), 1, 1};
            sum = product::in_bf16_order(row, terms, x.terms, 1.0F, 0.0F);
          }
        }
      }
    });
  };
  product::bf16_path path = *product::bf16_paths_of_processor().back();
  path.multiply_directly = [](const product::bf16_direct_sums& x) { multiply(x, true); };
  BOOST_TEST(!product::has_bf16_order(path));
  path.multiply_directly = [](const product::bf16_direct_sums& x) { multiply(x, false); };
  BOOST_TEST(!product::has_bf16_order(path));
}

BOOST_AUTO_TEST_CASE(operands_are_rounded_to_nearest_and_denormals_to_zero) {
  const auto bits = [](std::uint32_t x) {
    return std::uint32_t{product::bits_of_operand(std::bit_cast<float>(x))};
  };
  BOOST_TEST(bits(0x3F808000) == 0x3F80U);  // a tie, to even
  BOOST_TEST(bits(0x3F818000) == 0x3F82U);
  BOOST_TEST(bits(0x7F7FFFFF) == 0x7F80U);
  BOOST_TEST(bits(0x807FFFFF) == 0x8000U);
  BOOST_TEST(bits(0x007F8000) == 0U);
  BOOST_TEST(bits(0x00800000) == 0x0080U);
  BOOST_TEST(bits(0xFF800001) == 0xFFC0U);  // a NaN stays one
}

BOOST_AUTO_TEST_CASE(threads_and_a_child_process_have_the_bits_of_one_thread) {
  std::mt19937 random(3);
  const auto twice = [](const parx::result_tile<float>& part) {
    for (std::size_t r = 0; r < part.rows; ++r) {
      for (std::size_t q = 0; q < part.columns; ++q) part.values[r * part.step + q] *= 2;
    }
  };
  for (const sizes s : {sizes{300, 520, 700}, {64, 64, 3000}, {2, 3000, 300}, {40, 1030, 40}}) {
    const auto a = values<float>(s.m * s.k, kind::moderate, random);
    const auto b = values<float>(s.k * s.n, kind::moderate, random);
    const auto multiply = [&] {
      std::vector<float> c(s.m * s.n);
      parx::bfloat16_gemm(op::plain, op::plain, s.m, s.n, s.k, 0.5F, a.data(), s.k, b.data(), s.n,
                          0.0F, c.data(), s.n, nullptr, twice);
      return c;
    };
    parx::set_num_threads(1);
    const std::vector<float> alone = multiply();
    for (const int threads : {2, 8}) {
      parx::set_num_threads(threads);
      BOOST_TEST((multiply() == alone), threads << " threads");
    }
    parx::set_num_threads(1);
    int differing = 0;
    std::thread([&] { differing += multiply() != alone ? 1 : 0; }).join();
    BOOST_TEST(differing == 0);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(multiply() == alone ? 0 : 1);
    int status = -1;
    BOOST_TEST(::waitpid(child, &status, 0) == child);
    BOOST_TEST(status == 0);
  }
}

BOOST_AUTO_TEST_CASE(the_process_says_by_what_it_multiplies) {
  const std::string text = parx::bfloat16_products();
  const product::bf16_choice& choice = product::bf16_of_processor();
  BOOST_TEST(text.starts_with(choice.path->text));
  BOOST_TEST((choice.path->name == "amx") == choice.why_not_amx.empty());
  BOOST_TEST(text.ends_with(choice.why_not_amx));
}

BOOST_AUTO_TEST_CASE(a_variable_chooses_the_path) {
  const product::bf16_possible possible;
  const auto choose = [&](const char* name) {
    return product::choose_bf16_path(possible, {{"PARX_BF16", name}});
  };
  for (const product::bf16_path* const path : possible.paths) {
    const product::bf16_choice choice = choose(std::string(path->name).c_str());
    BOOST_TEST(choice.path->name == path->name);
    if (path->name != "amx") BOOST_TEST(!choice.why_not_amx.empty());
  }
  BOOST_TEST(choose("wide").path->name == "wide");
  BOOST_CHECK_EXCEPTION((void)choose("fast"), parx::usage_error, [](const auto& e) {
    return std::string(e.what()).find("none of amx, dot and wide") != std::string::npos;
  });
}

#if defined(__x86_64__)
namespace {

/// In a child in which arch_prctl fails with `error`: the path, and why it is not AMX.
std::string chosen_where_linux_refuses(int error) {
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the system call's number
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{4, code};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      ::_exit(1);
    }
    const product::bf16_possible possible;
    const product::bf16_choice choice = product::choose_bf16_path(possible, {});
    const std::string text = std::string(choice.path->name) + ": " + choice.why_not_amx;
    ::_exit(::write(ends[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::array<char, 256> text{};
  const ssize_t count = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_process_that_gets_no_tile_registers_takes_the_next_path_and_says_why) {
  if (product::bf16_paths_of_processor().front()->name != "amx") return;
  const std::string forbidden = chosen_where_linux_refuses(EPERM);
  BOOST_TEST(!forbidden.starts_with("amx"));
  BOOST_TEST(forbidden.ends_with("Linux refuses the tile registers: Operation not permitted"));
  // What it answers while a thread has a small sigaltstack.
  const std::string small = chosen_where_linux_refuses(ENOSPC);
  BOOST_TEST(!small.starts_with("amx"));
  BOOST_TEST(small.find("sigaltstack") != std::string::npos);
}
#endif
