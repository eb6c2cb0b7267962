// Memory of this process, with each shared page divided by the number of processes that map it
// (PSS).
//
// Private pages are taken from RssAnon instead of PSS: smaps visits one mapping after the other,
// and would count pages twice that move between mappings meanwhile (page_pool).
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
  std::ifstream lines(path);
  for (std::string word; lines >> word;) {
    if (std::ranges::find(labels, word) == labels.end()) continue;
    double kib = 0;
    lines >> kib;
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

/// The largest resident_mib() while this object lives. A thread samples it for at most a fifth of
/// the time, because reading smaps blocks mmap().
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
