// parx-bench-pages: the cost of each kind of memory for the parameters of a sharded model.
//
//   parx-bench-pages                          memory that moves to fixed addresses (page_pool)
//   parxrun -n 4 parx-bench-pages [MiB]       one array for all ranks of a host (host_pages)
//
// As a single process it compares ways to attach memory to the addresses of a unit of 1 to 64 MiB
// and to detach it again, with and without a second thread that uses memory meanwhile, and products
// of matrices whose weights are in each kind of memory. With several ranks it compares host_pages
// with an all_gather of as many bytes. Times are medians of alternating rounds. Shared memory has
// huge pages only if /sys/kernel/mm/transparent_hugepage/shmem_enabled is advise, within_size or
// always.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <bench/resident.hpp>
#include <parx/comm.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/launch.hpp>
#include <parx/tensor.hpp>

namespace {

using bench::resident_mib;
using parx::tensor;

constexpr std::size_t mib = std::size_t{1} << 20U;

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Median seconds of each of several functions, called in turns, each after a call of `ready`.
std::vector<double> in_turns(int rounds, const std::vector<std::function<void()>>& things,
                             const std::function<void()>& ready = [] {}) {
  std::vector<std::vector<double>> seconds(things.size());
  for (const auto& each : things) each();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < things.size(); ++i) {
      ready();
      const double start = now();
      things[i]();
      seconds[i].push_back(now() - start);
    }
  }
  std::vector<double> medians;
  for (const auto& each : seconds) medians.push_back(median(each));
  return medians;
}

/// A memory file that can be mapped at, and unmapped from, a fixed address.
class mapped_file {
 public:
  explicit mapped_file(std::size_t bytes)
      : bytes_(bytes), file_(::memfd_create("parx-bench", MFD_CLOEXEC)), range_(bytes) {
    if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) std::abort();
    attach();
    ::madvise(data(), bytes_, MADV_HUGEPAGE);
    std::fill_n(data(), bytes_, std::byte{1});
    detach();
  }
  [[nodiscard]] std::byte* data() const { return range_.data(); }
  void attach() const {
    map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file_.get());
  }
  void detach() const {
    map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1);
  }

 private:
  void map(int protection, int flags, int file) const {
    if (::mmap(data(), bytes_, protection, flags, file, 0) == MAP_FAILED) std::abort();
  }

  std::size_t bytes_;
  parx::descriptor file_;
  parx::detail::address_range range_;
};

/// Reads one byte of each 4 KiB page.
unsigned touch(const std::byte* data, std::size_t bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes; i += 4096) sum += static_cast<unsigned>(data[i]);
  return sum;
}
std::atomic<unsigned> touched;

/// Times attaching and detaching a unit's memory.
void moves() {
  fmt::print("us to attach a unit, touch each page and detach it; to copy it, for comparison\n");
  fmt::print("{:>5} {:>8} {:>10} {:>10} {:>10} {:>10}\n", "MiB", "2 threads", "page_pool",
             "MAP_FIXED", "touch", "copy");
  for (const bool busy : {false, true}) {
    std::atomic<bool> stop{false};
    std::thread other([&] {
      std::vector<unsigned char> memory(busy ? mib : 0);
      while (busy && !stop) {
        for (std::size_t i = 0; i < memory.size(); i += 64) ++memory[i];
      }
    });
    for (const std::size_t size : {1U, 4U, 16U, 64U}) {
      const std::size_t bytes = size * mib;
      const parx::page_pool pool(1, bytes);
      parx::fixed_memory unit = pool.reserve();
      unit.attach();
      std::fill_n(unit.data(), bytes, std::byte{1});
      unit.detach();
      const mapped_file file(bytes);
      const std::vector<std::byte> from(bytes, std::byte{1});
      std::vector<std::byte> to(bytes);
      const auto seconds = in_turns(31, {
          [&] { unit.attach(); touched += touch(unit.data(), bytes); unit.detach(); },
          [&] { file.attach(); touched += touch(file.data(), bytes); file.detach(); },
          [&] { touched += touch(to.data(), bytes); },
          [&] { std::copy(from.begin(), from.end(), to.begin()); },
      });
      fmt::print("{:>5} {:>9} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}\n", size, busy ? "yes" : "no",
                 seconds[0] * 1e6, seconds[1] * 1e6, seconds[2] * 1e6, seconds[3] * 1e6);
    }
    stop = true;
    other.join();
  }
}

/// y = x w for a batch of 64, w in `memory`.
struct product {
  product(std::byte* memory, std::size_t n)
      : w(tensor<float>::wrap({reinterpret_cast<float*>(memory), n * n}, {n, n})) {}
  void operator()(const tensor<float>& x) const {
    touched += static_cast<unsigned>(parx::matmul(x, w).data()[0]);
  }
  tensor<float> w;
};

void products() {
  fmt::print("\nGFLOP/s of a batch of 64 times weights of n x n, by the memory of the weights\n");
  fmt::print("{:>5} {:>5} {:>10} {:>10} {:>10} {:>12} {:>14}\n", "n", "MiB", "private",
             "4 KiB", "shared", "page_pool", "moved each time");
  for (const std::size_t n : {512U, 1024U, 2048U, 4096U}) {
    const std::size_t bytes = n * n * sizeof(float);
    const auto x = tensor<float>::ones({64, n});
    auto whole = tensor<float>::ones({n, n});
    parx::detail::address_range small(bytes);
    ::madvise(small.fill(0, bytes), bytes, MADV_NOHUGEPAGE);
    const mapped_file file(bytes);
    file.attach();
    const parx::page_pool pool(2, bytes);
    parx::fixed_memory stays = pool.reserve(), moved = pool.reserve();
    stays.attach();
    moved.attach();
    for (std::byte* const memory : {small.data(), file.data(), stays.data(), moved.data()}) {
      std::fill_n(reinterpret_cast<float*>(memory), n * n, 1.0F);
    }
    moved.detach();
    const product in_private(reinterpret_cast<std::byte*>(whole.data()), n);
    const product in_small(small.data(), n), in_file(file.data(), n), in_pool(stays.data(), n);
    const product in_moved(moved.data(), n);
    const auto seconds = in_turns(n > 2048 ? 15 : 41, {
        [&] { in_private(x); },
        [&] { in_small(x); },
        [&] { in_file(x); },
        [&] { in_pool(x); },
        [&] { moved.attach(); in_moved(x); moved.detach(); },
    });
    const double work = 2.0 * 64 * static_cast<double>(n * n) / 1e9;
    fmt::print("{:>5} {:>5} {:>10.1f} {:>10.1f} {:>10.1f} {:>12.1f} {:>14.1f}\n", n, bytes / mib,
               work / seconds[0], work / seconds[1], work / seconds[2], work / seconds[3],
               work / seconds[4]);
  }
}

void on_one_host(parx::world& world, std::size_t size) {
  const std::size_t count = size * mib / sizeof(float), n = 1024;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto everywhere = [&](double value) {
    std::array<double, 1> sum{value};
    parx::all_reduce(world, sum);
    return sum[0];
  };
  parx::barrier(world);
  const double before = everywhere(resident_mib());
  parx::host_pages<float> pages(world, count);
  pages.update([](std::span<float> part) { std::ranges::fill(part, 1.0F); });
  touched += static_cast<unsigned>(std::accumulate(pages.all().begin(), pages.all().end(), 0.0F));
  parx::barrier(world);
  const double with_pages = everywhere(resident_mib());
  auto own = tensor<float>::ones({count});
  parx::barrier(world);
  const double with_copies = everywhere(resident_mib());
  auto gathered = parx::allocate_shared<float>(world, count);
  std::ranges::fill(gathered, 1.0F);

  const std::vector<float> part(count / ranks, 1.0F);
  const auto x = tensor<float>::ones({64, n});
  std::vector<product> shared_products, own_products;
  for (std::size_t i = 0; i + n * n <= count; i += n * n) {
    shared_products.emplace_back(reinterpret_cast<std::byte*>(pages.all().data() + i), n);
    own_products.emplace_back(reinterpret_cast<std::byte*>(own.data() + i), n);
  }
  const auto all_of = [&](const std::vector<product>& products) {
    for (const product& each : products) each(x);
  };
  const auto seconds = in_turns(31, {
      [&] { pages.update([](std::span<float>) {}); },
      [&] { parx::all_gather(world, part, std::span(own.data(), part.size() * ranks)); },
      [&] { parx::all_gather(world, part, std::span(gathered.data(), part.size() * ranks)); },
      [&] { all_of(shared_products); },
      [&] { all_of(own_products); },
  }, [&] { parx::barrier(world); });
  const double work = 2.0 * 64 * static_cast<double>(n * n * own_products.size()) / 1e9;
  parx::print0(world,
               "{} ranks, {} MiB of parameters\n"
               "  host_pages: two barriers, no write    {:>10.1f} us\n"
               "  all_gather into private memory        {:>10.1f} us\n"
               "  all_gather into shared buffers        {:>10.1f} us\n"
               "  products, all read the same pages     {:>10.1f} GFLOP/s a rank\n"
               "  products, each reads a copy           {:>10.1f} GFLOP/s a rank\n"
               "  memory of all ranks: host_pages {:.0f} MiB, a copy each {:.0f} MiB\n",
               world.size(), size, seconds[0] * 1e6, seconds[1] * 1e6, seconds[2] * 1e6,
               work / seconds[3], work / seconds[4], with_pages - before, with_copies - with_pages);
}

}  // namespace

int main(int argc, char** argv) {
  return parx::run([&](parx::world& world) {
    if (world.size() > 1) {
      on_one_host(world, argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 64);
    } else {
      moves();
      products();
    }
  });
}
