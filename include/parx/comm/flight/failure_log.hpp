// failure_log: where a rank's failure_record is left for parxrun, parx_doctor and torchrun: beside
// its flight recorder (rank_3.failure) and in the file named by TORCHELASTIC_ERROR_FILE.
//
// The first failure of a rank is the one that tells why it ends, so it is kept; those that follow
// from it are not recorded. A record that is_for_now is replaced by the next that is not. A rank
// that goes on after a loss (world::shrink) removes its record. Where a file cannot be written (a
// full disk) there is none: readers treat that as unknown. Threads: safe from any.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/flight/directory.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

class failure_log {
 public:
  /// `error_file`: the value of TORCHELASTIC_ERROR_FILE, or empty.
  explicit failure_log(int rank, std::string error_file = {})
      : rank_(rank), error_file_(std::move(error_file)) {}
  failure_log(const failure_log&) = delete;
  failure_log& operator=(const failure_log&) = delete;

  /// From now on the record is also left in the flight recorders' directory. Removes what an
  /// earlier job has left there of this rank.
  void add_directory(const std::string& directory) {
    const std::lock_guard lock(mutex_);
    directory_ = directory;
    remove_from_directory();
  }

  /// Keeps the first record that is not for now. What cannot be written is left out.
  [[gnu::cold]] void write(const failure_record& record) noexcept try {
    const std::lock_guard lock(mutex_);
    const bool has_final = std::exchange(has_failed_, true) && !is_for_now_;
    if (has_final || (is_for_now_ && record.is_for_now)) return;
    is_for_now_ = record.is_for_now;
    const std::string text = to_text(record);
    if (!directory_.empty()) {
      const std::string name = flight_file_name(rank_, failure_suffix);
      const descriptor file = make_flight_file(directory_, name);
      if (file.valid() && !fill(file, text)) remove_from_directory();
    }
    if (error_file_.empty()) return;
    const descriptor file(
        ::open(error_file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.valid() && !fill(file, text)) ::unlink(error_file_.c_str());
  } catch (const std::exception&) {
    // Out of memory: there is no record.
  }

  /// The rank goes on after its failure.
  void survived() noexcept try {
    const std::lock_guard lock(mutex_);
    is_for_now_ = false;
    if (!std::exchange(has_failed_, false)) return;
    if (!directory_.empty()) remove_from_directory();
    if (!error_file_.empty()) ::unlink(error_file_.c_str());
  } catch (const std::exception&) {
    // Out of memory: the record stays.
  }

 private:
  [[nodiscard]] static bool fill(const descriptor& file, const std::string& text) noexcept {
    return detail::write_all(file.get(), text).reason == 0;
  }
  [[gnu::cold]] void remove_from_directory() {
    const descriptor folder = find_flight_directory(directory_);
    const std::string name = flight_file_name(rank_, failure_suffix);
    if (folder.valid()) ::unlinkat(folder.get(), name.c_str(), 0);
  }

  const int rank_;
  const std::string error_file_;
  std::mutex mutex_;
  std::string directory_;  ///< empty: not known yet, or none
  bool has_failed_ = false;
  bool is_for_now_ = false;  ///< the record that was written
};

/// The record in a file of an open directory; nullopt where there is none that can be read.
[[nodiscard]] inline std::optional<failure_record> read_failure(const descriptor& folder,
                                                                const std::string& name) {
  static constexpr off_t longest = 1 << 20;
  const descriptor file(
      ::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_size > longest) {
    return std::nullopt;
  }
  const auto text = detail::text_of_file(file);
  return text ? failure_from_text(*text) : std::nullopt;
}

/// The records in the open directory of a job's flight recorders, by rank; those from before
/// `since_unix_ns` are of an earlier start and left out.
[[nodiscard]] inline std::vector<failure_record> read_failures(const descriptor& folder,
                                                               std::int64_t since_unix_ns) {
  std::vector<failure_record> found;
  for (const std::string& name : flight_file_names(folder, failure_suffix)) {
    if (auto each = read_failure(folder, name); each && each->unix_ns >= since_unix_ns) {
      found.push_back(std::move(*each));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const failure_record& a, const failure_record& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace parx
