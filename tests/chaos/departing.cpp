// One rank of a job that makes one call and ends: the ranks that are done leave while others, on a
// busy host, still wait for what they have sent.
//   departing SEED HOSTS
// All ranks draw the same call from SEED. With HOSTS > 1 the ranks act as that many hosts.
#include <parx/comm.hpp>
#include <parx/launch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using values = std::vector<std::int64_t>;

struct drawn {
  int what = 0;
  std::size_t count = 0;  ///< elements, of a block where there are blocks
  int root = 0;
  parx::algorithm use = parx::algorithm::automatic;
  int late_rank = -1;
  std::chrono::milliseconds lateness{};
};
constexpr int collectives = 11;

drawn draw(std::uint64_t seed, int world) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  drawn call;
  call.what = static_cast<int>(below(collectives + 3));
  const bool has_blocks = call.what >= 5;
  // Few of many ranks have the memory to buffer long messages of all others.
  const std::size_t most = below(3) == 0 && world <= 40 ? 100'000 : 40;
  call.count = below(most / (has_blocks ? static_cast<std::size_t>(world) : 1) + 2);
  call.root = static_cast<int>(below(static_cast<std::size_t>(world)));
  if (below(2) == 0) call.use = static_cast<parx::algorithm>(below(15));
  if (below(2) == 0) call.late_rank = static_cast<int>(below(static_cast<std::size_t>(world)));
  call.lateness = std::chrono::milliseconds(below(400));
  return call;
}

void check(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string("wrong result of ") + what);
}
bool are_all(std::span<const std::int64_t> found, std::int64_t wanted) {
  return std::ranges::all_of(found, [wanted](std::int64_t each) { return each == wanted; });
}
/// Whether block r of the ranks' blocks is r + 1.
bool are_by_rank(std::span<const std::int64_t> found, std::size_t count) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != static_cast<std::int64_t>(i / count) + 1) return false;
  }
  return true;
}

void run_collective(parx::process_group& group, const drawn& call, parx::algorithm use) {
  const auto world = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::int64_t>(group.rank());
  const std::int64_t sum = static_cast<std::int64_t>(world * (world + 1) / 2);
  const bool is_root = group.rank() == call.root;
  const std::size_t all = call.count * world;
  const values mine(call.count, rank + 1);
  values by_rank(all), got(call.count), got_all(all);
  for (std::size_t i = 0; i < all; ++i) {
    by_rank[i] = static_cast<std::int64_t>(i / call.count) + 1;
  }
  const parx::collective_options plain{.use = use};
  const parx::rooted_options rooted{.root = call.root, .use = use};
  switch (call.what) {
    case 0:
      return parx::barrier(group);
    case 1:
      parx::all_reduce(group, mine, got, {.op = parx::reduce_op::sum, .use = use});
      return check(are_all(got, sum), "all_reduce");
    case 2:
      parx::reduce(group, mine, got, {.root = call.root, .op = parx::reduce_op::sum, .use = use});
      return check(!is_root || are_all(got, sum), "reduce");
    case 3:
      got = mine;
      parx::broadcast(group, got, rooted);
      return check(are_all(got, call.root + 1), "broadcast");
    case 4:
      parx::scan(group, mine, got, {.op = parx::reduce_op::sum, .use = use});
      return check(are_all(got, (rank + 1) * (rank + 2) / 2), "scan");
    case 5:
      parx::all_gather(group, mine, got_all, plain);
      return check(are_by_rank(got_all, call.count), "all_gather");
    case 6:
      parx::gather(group, mine, got_all, rooted);
      return check(!is_root || are_by_rank(got_all, call.count), "gather");
    case 7:
      parx::scatter(group, by_rank, got, rooted);
      return check(are_all(got, rank + 1), "scatter");
    case 8:
      parx::reduce_scatter(group, by_rank, got, {.op = parx::reduce_op::sum, .use = use});
      return check(are_all(got, (rank + 1) * static_cast<std::int64_t>(world)), "reduce_scatter");
    case 9:
      parx::all_to_all(group, by_rank, got_all, plain);
      return check(are_all(got_all, rank + 1), "all_to_all");
    default:
      parx::exscan(group, mine, got, {.op = parx::reduce_op::sum, .use = use});
      return check(rank == 0 || are_all(got, rank * (rank + 1) / 2), "exscan");
  }
}

void run_messages(parx::process_group& group, const drawn& call) {
  const int world = group.size(), rank = group.rank();
  values x(call.count, rank + 1);
  switch (call.what - collectives) {
    case 0:  // along a chain: the first leaves at once
      if (rank > 0) parx::recv(group, x, rank - 1);
      if (rank > 0) check(are_all(x, rank), "a chain");
      x.assign(x.size(), rank + 1);
      if (rank + 1 < world) parx::send(group, x, rank + 1);
      return;
    case 1:  // to the root, which takes what comes first
      if (rank != call.root) return parx::send(group, x, call.root);
      for (int i = 1; i < world; ++i) {
        const int from = parx::recv_any(group, x);
        check(are_all(x, from + 1), "a message from anybody");
      }
      return;
    default:  // to the next one
      parx::batch ring(group);
      values got(call.count);
      ring.recv(got, (rank + world - 1) % world).send(x, (rank + 1) % world);
      ring.run();
      return check(are_all(got, (rank + world - 1) % world + 1), "a ring");
  }
}

void run_call(parx::world& world, const drawn& call) {
  if (world.rank() == call.late_rank) std::this_thread::sleep_for(call.lateness);
  if (call.what >= collectives) return run_messages(world, call);
  try {
    run_collective(world, call, call.use);
  } catch (const parx::usage_error&) {  // on all ranks: this algorithm cannot do it
    run_collective(world, call, parx::algorithm::automatic);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* const rank = std::getenv("PARX_RANK");
  if (argc != 3 || rank == nullptr) return 2;
  const std::uint64_t seed = std::stoull(argv[1]);
  const int hosts = std::stoi(argv[2]);
  if (hosts > 1) {
    ::setenv("PARX_HOST_ID", std::to_string(std::stoi(rank) % hosts).c_str(), 1);
  }
  return parx::run([&](parx::world& world) { run_call(world, draw(seed, world.size())); });
}
