// parx-bench-checkpoint: how fast safetensors files are saved and loaded, against a plain write and
// read of as many bytes of the same disk or page cache, in alternation.
//
//   parx-bench-checkpoint [--gigabytes 1] [--rounds 7] [--folder /tmp]
//
// Times are medians; a ratio of 1.00 is the speed of write() + fsync(), or of read(). Files of the
// previous round are removed before the clock starts. Otherwise the page cache would hold the old
// and the new file, and allocating its memory can take longer than writing (3 s for 1 GB if a
// virtual machine gets its memory page by page).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/options.hpp"
#include <fmt/format.h>

#include <parx/checkpoint.hpp>

namespace {

namespace fs = std::filesystem;

/// A model of 64 equal matrices.
struct model {
  explicit model(std::size_t bytes) {
    for (int i = 0; i < 64; ++i)
      weights.push_back(parx::tensor<float>::full({bytes / 64 / 4096, 1024}, 1.5F));
  }
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      visitor(fmt::format("layer.{}.weight", i), weights[i]);
  }
  std::vector<parx::tensor<float>> weights;
};

void must(bool good, const char* what) {
  if (!good) parx::throw_error(parx::errc::io, "{}: {}", what, parx::errno_text(errno));
}

void plain_write(const std::string& path, const std::vector<char>& bytes) {
  const parx::descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::write(file.get(), bytes.data() + at, bytes.size() - at);
    must(count > 0, "write");
    at += static_cast<std::size_t>(count);
  }
  must(::fsync(file.get()) == 0, "fsync");
}

void plain_read(const std::string& path, std::vector<char>& bytes) {
  const parx::descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    must(count > 0, "read");
    at += static_cast<std::size_t>(count);
  }
}

struct contender {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = [] {};  // not timed
  std::vector<double> seconds = {};
  [[nodiscard]] double median() const {
    auto sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/// Runs all in turns and prints them beside the first.
void compare(std::vector<contender> all, int rounds, double gigabytes) {
  for (int round = 0; round <= rounds; ++round) {
    for (contender& one : all) {
      one.prepare();
      const auto begin = std::chrono::steady_clock::now();
      one.run();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (round > 0) one.seconds.push_back(taken.count());  // the first round fills the caches
    }
  }
  for (const contender& one : all) {
    const auto [best, worst] = std::minmax_element(one.seconds.begin(), one.seconds.end());
    fmt::print("{:<42} {:>8.3f} s  [{:.3f}, {:.3f}]  {:>6.2f} GB/s  ratio {:.2f}\n", one.name,
               one.median(), *best, *worst, gigabytes / one.median(),
               all.front().median() / one.median());
  }
}

void run(const cxxopts::ParseResult& given) {
  const double gigabytes = examples::number(given, "gigabytes", 1e-3, 1e6);
  const int rounds = examples::number(given, "rounds", 1, 1'000'000);
  const auto bytes = static_cast<std::size_t>(gigabytes * 1e9) / 262144 * 262144;
  const fs::path folder = fs::path(given["folder"].as<std::string>()) /
                          fmt::format("parx-bench-checkpoint.{}", ::getpid());
  fs::create_directory(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  model saved(bytes);
  std::vector<char> plain(bytes, 'x');
  parx::checkpoint_manager manager(path("out"), {.mode = parx::save_mode::blocking});
  manager.probe();
  const auto parts = [&] { return parx::checkpoint_parts{}.add("model", saved); };
  const auto remove = [&](const char* name) { return [=] { fs::remove_all(path(name)); }; };
  compare({{"write and fsync", [&] { plain_write(path("plain"), plain); }, remove("plain")},
           {"save_state", [&] { parx::save_state(saved, path("model")); }, remove("model")},
           {"checkpoint_manager.save, checksums", [&] { manager.save(1, parts()); },
            remove("out/checkpoint-1")}},
          rounds, gigabytes);
  compare({{"read", [&] { plain_read(path("plain"), plain); }},
           {"load_state", [&] { parx::load_state(saved, path("model")); }},
           {"latest() and load, checksums", [&] { manager.latest()->load("model", saved); }},
           {"mapped_safetensors, touching nothing",
            [&] { (void)parx::mapped_safetensors(path("model")).view<float>("layer.0.weight"); }}},
          rounds, gigabytes);
  fs::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("parx-bench-checkpoint",
                           "Saving and loading against plain writing and reading");
  options.add_options()("gigabytes", "size of the model", examples::text("1"))(
      "rounds", "timed rounds", examples::text("7"))("folder", "where to write",
                                                     examples::text("/tmp"))("help", "");
  return examples::exit_code("parx-bench-checkpoint", [&] {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") > 0) {
      fmt::print("{}\n", options.help());
      return 0;
    }
    run(given);
    return 0;
  });
}
