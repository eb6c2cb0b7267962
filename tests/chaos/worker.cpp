// One rank of a chaos job: random collectives whose results are formulas, and perhaps a fault.
//   worker SEED CALLS FAULT VICTIM AT AMOUNT FOLDER
// All ranks draw the same calls from SEED. Rank VICTIM commits FAULT at its call number AT, or
// before it joins where AT is negative; AMOUNT is what a limit leaves it. FOLDER/rank.R gets a line
// for each of "pid", "joined", "fault" and "end", with the time of the monotonic clock.
#include <parx/comm.hpp>
#include <parx/launch.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/matrix.hpp"

namespace {

using matrix::trial;
using parx::dtype;
using parx::operation;
using parx::reduce_op;

struct job {
  std::uint64_t seed = 0;
  int calls = 0;
  std::string fault;
  int victim = 0;
  int at = 0;
  std::size_t amount = 0;
  std::string folder;

  [[nodiscard]] bool is_of_rank(int rank) const {
    static constexpr std::string_view own[] = {"exit",  "leave",      "throw", "skip",
                                               "root",  "size",       "type",  "op",
                                               "files", "no message", "memory"};
    return rank == victim && std::ranges::find(own, fault) != std::end(own);
  }
  [[nodiscard]] bool mismatches() const {
    return fault == "root" || fault == "size" || fault == "type" || fault == "op" ||
           fault == "skip";
  }
};

class diary {
 public:
  diary(const std::string& folder, const std::string& rank)
      : file_(::open((folder + "/rank." + rank).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                     0600)) {}

  /// Allocates nothing: a limit of memory may have been reached.
  void note(const char* event, int value) const {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ::dprintf(file_, "%s %d %lld.%09ld\n", event, value, static_cast<long long>(now.tv_sec),
              now.tv_nsec);
  }

 private:
  int file_;
};

enum class way : std::uint8_t { collective, in_shared_buffer, in_half, ring, from_anybody };

struct step {
  way how = way::collective;
  trial call;
  int late_rank = -1;  ///< computes for a while first
  std::chrono::microseconds lateness{};
};

/// Call number `i` of the job, the same on all ranks.
step draw(const job& what, int i, int world) {
  std::mt19937_64 random(what.seed * 1'000'003 + static_cast<std::uint64_t>(i));
  const auto below = [&](std::uint64_t end) { return static_cast<std::size_t>(random() % end); };
  step drawn;
  trial& call = drawn.call;
  call.what = static_cast<operation>(below(11));
  call.type = static_cast<dtype>(below(parx::dtype_count));
  call.op = static_cast<reduce_op>(below(9));
  const bool scans = call.what == operation::scan || call.what == operation::exscan;
  const bool scales = call.op == reduce_op::avg || call.op == reduce_op::premul_sum;
  if (!parx::is_defined(call.type, call.op) || (scans && scales)) call.op = reduce_op::sum;
  call.count = below(std::uint64_t{2} << below(matrix::has_blocks(call.what) ? 14 : 17));
  call.root = static_cast<int>(below(static_cast<std::uint64_t>(world)));
  call.in_place = below(2) == 0;
  // In place, all_to_all_v would need an output of the input's size.
  call.uneven = below(2) == 0 && !(call.what == operation::all_to_all && call.in_place);
  static constexpr way ways[] = {way::collective,       way::collective, way::collective,
                                 way::in_shared_buffer, way::in_half,    way::ring,
                                 way::from_anybody};
  drawn.how = ways[below(std::size(ways))];
  if (drawn.how == way::in_shared_buffer) call.count %= 4096;
  if (below(4) == 0) drawn.late_rank = static_cast<int>(below(static_cast<std::uint64_t>(world)));
  drawn.lateness = std::chrono::microseconds(below(3000));
  if (i == what.at && what.fault == "no message") drawn.how = way::ring;
  // Of a collective in place of which another comes the ranks know; of a message that never comes
  // only the deadline tells.
  const bool is_at_fault = i == what.at || (i == what.at + 1 && what.fault == "skip");
  if (!is_at_fault || !what.mismatches()) return drawn;

  // A call in which the ranks can disagree about what the fault is about.
  static constexpr operation rooted[] = {operation::broadcast, operation::reduce,
                                         operation::gather, operation::scatter};
  static constexpr operation reductions[] = {operation::all_reduce, operation::reduce_scatter,
                                             operation::reduce, operation::scan};
  if (what.fault == "root") call.what = rooted[below(4)];
  if (what.fault == "op") call.what = reductions[below(4)];
  if (call.what == operation::barrier) call.what = operation::all_reduce;
  call.op = reduce_op::sum;
  call.uneven = false;
  call.count += 1;
  drawn.how = way::collective;
  return drawn;
}

dtype other_of_same_size(dtype type) {
  static constexpr std::array<dtype, parx::dtype_count> others{
      dtype::int32, dtype::int64,  dtype::bfloat16, dtype::float16,
      dtype::uint8, dtype::uint16, dtype::uint32,   dtype::uint64,
      dtype::int8,  dtype::int16,  dtype::float32,  dtype::float64};
  return others[static_cast<std::size_t>(type)];
}

void check(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string("wrong output: ") + what);
}

/// Everybody sends to the next rank.
void run_ring(parx::process_group& group, std::size_t count) {
  const int world = group.size(), rank = group.rank();
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  std::vector<int> mine(count, 7 * rank + 1), got(count);
  parx::work sent = parx::async_send(group, mine, next, {.tag = 1});  // recv_any takes tag 0
  parx::recv(group, got, previous, {.tag = 1});
  sent.wait();
  check(got == std::vector<int>(count, 7 * previous + 1), "ring");
}

/// Everybody sends to the root, which takes what comes first.
void run_from_anybody(parx::process_group& group, std::size_t count, int root) {
  const int world = group.size(), rank = group.rank();
  if (rank != root) return parx::send(group, std::vector<int>(count, 7 * rank + 1), root);
  std::vector<bool> came(static_cast<std::size_t>(world));
  for (int i = 1; i < world; ++i) {
    std::vector<int> got(count);
    const int from = parx::recv_any(group, got);
    check(!came[static_cast<std::size_t>(from)], "two messages of one rank");
    came[static_cast<std::size_t>(from)] = true;
    check(got == std::vector<int>(count, 7 * from + 1), "from anybody");
  }
}

void limit(int resource, std::size_t value) {
  rlimit now{};
  ::getrlimit(resource, &now);
  now.rlim_cur = value;
  if (::setrlimit(resource, &now) != 0) throw std::runtime_error("a limit cannot be set");
}

void commit_limit(const job& what) {
  if (what.fault == "files") {
    const int lowest = ::fcntl(STDIN_FILENO, F_DUPFD, 0);
    ::close(lowest);
    limit(RLIMIT_NOFILE, static_cast<std::size_t>(lowest) + what.amount);
  } else {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    limit(RLIMIT_AS, pages * static_cast<std::size_t>(::getpagesize()) + (what.amount << 20));
  }
}

void run_calls(parx::world& world, const job& what, const diary& log) {
  auto area = parx::allocate_shared<std::byte>(world, std::size_t{2} << 20);
  auto half = parx::split(world, world.rank() % 2);
  log.note("joined", world.rank());
  for (int i = 0; i < what.calls; ++i) {
    step now = draw(what, i, world.size());
    if (now.late_rank == world.rank()) std::this_thread::sleep_for(now.lateness);
    if (i == what.at && what.is_of_rank(world.rank())) {
      log.note("fault", i);
      if (what.fault == "exit") ::_exit(0);
      if (what.fault == "leave") return;
      if (what.fault == "throw") throw std::runtime_error("chaos was thrown");
      if (what.fault == "skip" || what.fault == "no message") continue;
      if (what.fault == "files" || what.fault == "memory") commit_limit(what);
      if (what.fault == "root") now.call.root = (now.call.root + 1) % world.size();
      if (what.fault == "size") now.call.count += 1;
      if (what.fault == "type") now.call.type = other_of_same_size(now.call.type);
      if (what.fault == "op") now.call.op = reduce_op::max;
    }
    switch (now.how) {
      case way::collective:
        matrix::run(world, now.call);
        break;
      case way::in_shared_buffer:
        matrix::run(world, now.call, std::span(area.data(), area.size()));
        parx::barrier(world);  // the next call writes where others still look
        break;
      case way::in_half:
        now.call.root %= half->size();
        matrix::run(*half, now.call);
        break;
      case way::ring:
        run_ring(world, now.call.count);
        break;
      case way::from_anybody:
        run_from_anybody(world, now.call.count, now.call.root);
        parx::barrier(world);  // the next one's messages have the same tag
        break;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* const rank = std::getenv("PARX_RANK");
  if (argc != 8 || rank == nullptr) return 2;
  const job what{.seed = std::stoull(argv[1]),
                 .calls = std::stoi(argv[2]),
                 .fault = argv[3],
                 .victim = std::stoi(argv[4]),
                 .at = std::stoi(argv[5]),
                 .amount = std::stoull(argv[6]),
                 .folder = argv[7]};
  const diary log(what.folder, rank);
  log.note("pid", ::getpid());
  if (what.at < 0 && (what.fault == "files" || what.fault == "memory") &&
      std::stoi(rank) == what.victim) {
    log.note("fault", what.at);
    commit_limit(what);
  }
  const int code = parx::run([&](parx::world& world) { run_calls(world, what, log); });
  log.note("end", code);
  return code;
}
