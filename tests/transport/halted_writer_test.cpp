// A rank that is stopped just before it writes its part of a large message into the receiver's
// memory: the receiver's deadline holds, and what the stopped rank does later harms nobody.
#include <parx/transport/shm.hpp>

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/comm.hpp>

#include "comm/jobs.hpp"

namespace {

using namespace std::chrono_literals;

enum class writer { free, to_be_halted, halted, released, done };
std::atomic<writer> state{writer::free};
/// The call that comes late writes its number, fails then, and is halted after that.
bool fails_after_the_first_piece = false;

void await(writer wanted) {
  for (int i = 0; i < 1500 && state != wanted; ++i) std::this_thread::sleep_for(10ms);
}

}  // namespace

/// The kernel's, but for one call that comes late.
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* here, unsigned long heres,
                                     const iovec* there, unsigned long theres,
                                     unsigned long flags) noexcept {
  auto expected = writer::to_be_halted;
  const bool is_late = state.compare_exchange_strong(expected, writer::halted);
  if (is_late && fails_after_the_first_piece) heres = theres = 1;
  if (is_late && !fails_after_the_first_piece) await(writer::released);
  const long written = ::syscall(SYS_process_vm_writev, pid, here, heres, there, theres, flags);
  if (is_late && fails_after_the_first_piece) await(writer::released);
  if (is_late) state = writer::done;
  return written;
}

namespace {

/// Repeats a broadcast until the sender is halted in its part of a copy.
void halt_a_writer() {
  state = writer::free;
  constexpr std::byte kept{0xAB};
  double seconds = 0;
  bool unharmed = false, was_halted = false;
  const auto said = jobs::run_collecting(
      jobs::kind::shm, 2,
      [&](parx::process_group& group) {
        std::vector<std::byte> x(std::size_t{8} << 20);
        if (group.rank() == 0) state = writer::to_be_halted;
        std::chrono::steady_clock::time_point began;
        try {
          // Until the sender comes in time to write a part.
          for (int i = 0; i < 1000; ++i) {
            began = std::chrono::steady_clock::now();
            parx::broadcast(group, x, {.use = parx::algorithm::tree});
          }
        } catch (const parx::error&) {
          if (group.rank() == 0) throw;
          seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
          std::fill(x.begin(), x.end(), kept);
          was_halted = state == writer::halted;
          state = writer::released;
          await(writer::done);
          unharmed = std::all_of(x.begin(), x.end(), [&](std::byte each) { return each == kept; });
          throw;
        }
      },
      {.timeout = 1s});
  BOOST_TEST(was_halted);
  BOOST_TEST(seconds >= 1);
  BOOST_TEST(seconds < 4);
  BOOST_TEST(unharmed);
  BOOST_TEST(said[1].find("timed out") != std::string::npos, said[1]);
}

}  // namespace

BOOST_AUTO_TEST_CASE(
    a_writer_that_is_halted_neither_holds_up_a_deadline_nor_writes_when_it_goes_on) {
  fails_after_the_first_piece = false;
  halt_a_writer();
}

BOOST_AUTO_TEST_CASE(a_writer_that_fails_and_is_halted_before_it_says_so_holds_up_no_deadline) {
  fails_after_the_first_piece = true;
  halt_a_writer();
}
