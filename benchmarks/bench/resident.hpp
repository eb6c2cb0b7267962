// Memory of this process, each page divided by the number of processes that have it (PSS).
//
// What only this process has is counted by RssAnon: the kernel looks at one mapping after the
// other, and would see twice what moves from one to the other meanwhile (page_pool).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>

namespace bench {

namespace detail {

/// The sum of the lines of a file of /proc with these labels, KiB each.
inline double kib_of(const char* path, std::initializer_list<std::string_view> labels) {
  double sum = 0;
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (std::ranges::find(labels, word) == labels.end()) continue;
    double kib = 0;
    file >> kib;
    sum += kib;
  }
  return sum;
}

}  // namespace detail

inline double resident_mib() {
  return (detail::kib_of("/proc/self/smaps_rollup", {"Pss_File:", "Pss_Shmem:"}) +
          detail::kib_of("/proc/self/status", {"RssAnon:"})) /
         1024;
}

/// The most of it while this object lives. A thread looks, for a fifth of its time, because memory
/// cannot be mapped meanwhile.
class peak_resident {
 public:
  peak_resident() : watching_([this] { watch(); }) {}
  ~peak_resident() {
    has_ended_ = true;
    watching_.join();
  }
  peak_resident(const peak_resident&) = delete;
  peak_resident& operator=(const peak_resident&) = delete;

  [[nodiscard]] double mib() const noexcept { return most_; }

 private:
  void watch() {
    while (!has_ended_) {
      const auto start = std::chrono::steady_clock::now();
      most_ = std::max(most_.load(), resident_mib());
      const auto took = std::chrono::steady_clock::now() - start;
      std::this_thread::sleep_for(std::max<decltype(took)>(4 * took, std::chrono::milliseconds(2)));
    }
  }

  std::atomic<bool> has_ended_{false};
  std::atomic<double> most_{0};
  std::thread watching_;
};

}  // namespace bench
