#include <parx/tensor/page_pool.hpp>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/tensor/matmul.hpp>
#include <parx/tensor/tensor.hpp>

#include <boost/test/unit_test.hpp>

namespace {

bool mremap_fails_midway = false;

}  // namespace

/// In place of libc's. The kernel's mremap may fail after it has freed the addresses that the
/// memory was to have; all other calls go on to libc.
extern "C" long syscall(long number, ...) noexcept {
  std::array<long, 6> given{};
  va_list more;
  va_start(more, number);
  for (long& each : given) each = va_arg(more, long);
  va_end(more);
  if (number == SYS_mremap && mremap_fails_midway) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    ::munmap(reinterpret_cast<void*>(given[4]), static_cast<std::size_t>(given[2]));
    errno = ENOMEM;
    return -1;
  }
  using function = long (*)(long, ...);
  static const auto libc = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "syscall"));
  return libc(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

namespace {

using parx::fixed_memory;
using parx::page_pool;

std::span<std::uint64_t> numbers_in(const fixed_memory& memory) {
  return {reinterpret_cast<std::uint64_t*>(memory.data()), memory.size() / 8};
}

/// How a forked process ends that does `body`: its exit code, or minus the signal.
template <typename Body>
int end_of_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    // A sanitizer would turn the signal into a report.
    for (const int each : {SIGSEGV, SIGBUS}) std::signal(each, SIG_DFL);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

std::size_t lines_of(const char* path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_block_keeps_its_contents_wherever_it_moves) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5} << 20U}) {
    page_pool pool(1, bytes);
    BOOST_TEST(pool.block_bytes() % (2U << 20U) == 0U);
    std::vector<fixed_memory> units;
    for (int i = 0; i < 3; ++i) units.push_back(pool.reserve());
    for (std::size_t round = 0; round < 20; ++round) {
      fixed_memory& unit = units[round % 3];
      const std::byte* const address = unit.data();
      unit.attach();
      BOOST_TEST(unit.data() == address);
      const auto numbers = numbers_in(unit);
      if (round > 0) {
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < numbers.size(); ++i) wrong += numbers[i] != round - 1 + i;
        BOOST_TEST(wrong == 0U);
      }
      std::iota(numbers.begin(), numbers.end(), round);
      unit.detach();
    }
  }
}

BOOST_AUTO_TEST_CASE(units_that_share_two_blocks_do_not_disturb_each_other) {
  constexpr std::size_t units = 7;
  page_pool pool(2, 3U << 20U);
  std::vector<fixed_memory> memory;
  for (std::size_t i = 0; i < units; ++i) memory.push_back(pool.reserve());
  std::vector<std::size_t> order(units);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const bool backward : {false, true}) {
    if (backward) std::reverse(order.begin(), order.end());
    for (std::size_t i = 0; i < units; ++i) {  // the next unit comes while this one is in use
      memory[order[i]].attach();
      std::ranges::fill(numbers_in(memory[order[i]]), order[i]);
      if (i == 0) continue;
      const auto before = numbers_in(memory[order[i - 1]]);
      BOOST_TEST(std::ranges::count(before, order[i - 1]) ==
                 static_cast<std::ptrdiff_t>(before.size()));
      BOOST_TEST(pool.free_blocks() == 0U);
      memory[order[i - 1]].detach();
    }
    memory[order.back()].detach();
  }
  BOOST_TEST(pool.free_blocks() == 2U);
}

BOOST_AUTO_TEST_CASE(tensors_over_a_unit_are_good_again_when_its_memory_is) {
  page_pool pool(1, 1U << 20U);
  fixed_memory unit = pool.reserve(), other = pool.reserve();
  const std::span memory(reinterpret_cast<float*>(unit.data()), 6);
  const auto weight = parx::tensor<float>::wrap(memory, {2, 3});
  const auto view = weight.transpose(0, 1);
  const auto x = parx::tensor<float>::from({1, 2}, {1, 2});
  for (const float scale : {1.0F, 10.0F}) {
    unit.attach();
    for (std::size_t i = 0; i < 6; ++i) memory[i] = scale * static_cast<float>(i);
    const auto y = parx::matmul(x, weight);
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST(y.data()[i] == scale * static_cast<float>(i + 2 * (i + 3)));
      BOOST_TEST(view.at(i, 1) == scale * static_cast<float>(i + 3));
    }
    unit.detach();
    other.attach();
    std::fill_n(other.data(), other.size(), std::byte{0xFF});
    other.detach();
  }
}

BOOST_AUTO_TEST_CASE(memory_that_has_moved_away_cannot_be_touched) {
  page_pool pool(1, 1);
  fixed_memory unit = pool.reserve();
  volatile std::byte* const first = unit.data();
  volatile std::byte* const last = unit.data() + unit.size() - 1;
  const auto read = [](volatile std::byte* at) { return end_of_child([&] { return int(*at); }); };
  const auto write = [](volatile std::byte* at) {
    return end_of_child([&] {
      *at = std::byte{1};
      return 0;
    });
  };
  BOOST_TEST(read(first) == -SIGSEGV);
  unit.attach();
  *first = std::byte{7};
  *last = std::byte{7};
  BOOST_TEST(read(first) == 7);
  BOOST_TEST(read(last) == 7);
  BOOST_TEST(write(last) == 0);  // in the child's copy
  BOOST_TEST(int(*last) == 7);
  unit.detach();
  for (volatile std::byte* const at : {first, last}) {
    BOOST_TEST(read(at) == -SIGSEGV);
    BOOST_TEST(write(at) == -SIGSEGV);
  }
}

BOOST_AUTO_TEST_CASE(a_forked_child_moves_its_own_copies) {
  page_pool pool(1, 1);
  fixed_memory unit = pool.reserve(), other = pool.reserve();
  unit.attach();
  numbers_in(unit)[0] = 42;
  BOOST_TEST(end_of_child([&] {
               unit.detach();
               other.attach();
               return static_cast<int>(numbers_in(other)[0]++);
             }) == 42);
  BOOST_TEST(numbers_in(unit)[0] == 42U);
}

BOOST_AUTO_TEST_CASE(more_units_than_blocks_and_more_memory_than_there_is_are_refused) {
  page_pool pool(1, 1);
  fixed_memory unit = pool.reserve(), other = pool.reserve();
  unit.attach();
  unit.attach();  // it is
  BOOST_CHECK_THROW(other.attach(), parx::usage_error);
  fixed_memory moved = std::move(unit);
  BOOST_TEST(moved.attached());
  BOOST_CHECK_THROW(other.attach(), parx::usage_error);
  moved.detach();
  moved.detach();
  other.attach();
  BOOST_CHECK_THROW(page_pool(0, 1), parx::usage_error);
  BOOST_CHECK_THROW(page_pool(1, 0), parx::usage_error);
  BOOST_CHECK_THROW(page_pool(std::size_t{1} << 40U, std::size_t{1} << 40U), parx::usage_error);
  BOOST_TEST(end_of_child([] {
               const rlimit limit{std::size_t{1} << 32U, std::size_t{1} << 32U};
               ::setrlimit(RLIMIT_AS, &limit);
               try {
                 page_pool(1, std::size_t{1} << 33U);
               } catch (const parx::error& refused) {
                 return std::string(refused.what()).find("ulimit -v") != std::string::npos ? 3 : 1;
               }
               return 0;
             }) == 3);
}

BOOST_AUTO_TEST_CASE(a_move_that_fails_midway_leaves_memory_and_addresses_as_they_were) {
  const auto is_reserved = [](const fixed_memory& memory) {
    void* const taken = ::mmap(memory.data(), memory.size(), PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (taken == MAP_FAILED) return errno == EEXIST;
    ::munmap(taken, memory.size());
    return false;
  };
  page_pool pool(2, 1);
  fixed_memory first = pool.reserve(), second = pool.reserve();
  first.attach();
  numbers_in(first)[7] = 7;
  mremap_fails_midway = true;
  BOOST_CHECK_THROW(first.detach(), parx::error);
  BOOST_CHECK_THROW(second.attach(), parx::error);
  mremap_fails_midway = false;
  BOOST_TEST(first.attached());
  BOOST_TEST(numbers_in(first)[7] == 7U);
  BOOST_TEST(!second.attached());
  BOOST_TEST(is_reserved(second));
  BOOST_TEST(pool.free_blocks() == 1U);
  first.detach();
  second.attach();
  first.attach();
  BOOST_TEST(numbers_in(first)[7] + numbers_in(second)[7] == 7U);
}

BOOST_AUTO_TEST_CASE(free_blocks_can_be_dropped_and_used_ones_stay) {
  page_pool pool(2, 1);
  fixed_memory first = pool.reserve(), second = pool.reserve();
  first.attach();
  second.attach();
  numbers_in(first)[7] = 7;
  numbers_in(second)[7] = 8;
  first.detach();
  pool.drop_free();
  BOOST_TEST(numbers_in(second)[7] == 8U);
  first.attach();
  BOOST_TEST(numbers_in(first)[7] == 0U);
}

BOOST_AUTO_TEST_CASE(a_pool_leaves_no_mapping_behind) {
  const auto use = [] {
    std::vector<fixed_memory> units;
    page_pool pool(2, 1);
    for (int i = 0; i < 50; ++i) units.push_back(pool.reserve());
    units[3].attach();
    units[40].attach();
    units[3].detach();
    std::fill_n(units[40].data(), units[40].size(), std::byte{1});
  };
  use();
  const std::size_t before = lines_of("/proc/self/maps");
  for (int i = 0; i < 20; ++i) use();
  BOOST_TEST(lines_of("/proc/self/maps") <= before + 3);  // the heap may have grown
}
