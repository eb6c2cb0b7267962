// failure_folder: where the ranks of a job leave the records of their failures for parxrun: the
// directory of the flight recorders. With PARX_RECORDER=off it is the one that these would have had
// by default, and parxrun removes it at its end.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include <parx/comm/flight/directory.hpp>
#include <parx/comm/flight/failure_log.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/failure_record.hpp>

namespace parx::inline PARX_ABI::detail {

class failure_folder {
 public:
  /// Makes the directory and removes what an earlier job has left in it. Where it cannot be made
  /// there are no records.
  failure_folder(environment env, std::string_view start)
      : recorders_(find_flight_place(env, start)) {
    directory_ = recorders_.directory;
    if (directory_.empty()) {
      env.erase("PARX_RECORDER");
      directory_ = find_flight_place(env, start).directory;
    }
    if (::access(directory_.c_str(), F_OK) != 0 && has_default_name()) {
      remove_old_flight_directories(directory_);
    }
    const descriptor folder = open_flight_directory(directory_);
    is_usable_ = folder.valid();
    if (is_usable_) remove_failures(folder);
  }
  ~failure_folder() {
    if (!is_usable_ || !has_default_name()) return;
    if (recorders_.directory.empty()) clear_flight_directory(directory_);
    else ::rmdir(directory_.c_str());  // if no rank has left anything
  }
  failure_folder(const failure_folder&) = delete;
  failure_folder& operator=(const failure_folder&) = delete;

  /// Of the flight recorders; an empty directory where nothing is recorded.
  [[nodiscard]] const flight_place& recorders() const noexcept { return recorders_; }

  /// Their directory, where ranks have left some; else empty.
  [[nodiscard]] std::string recordings() const {
    const descriptor folder = find_flight_directory(recorders_.directory);
    const bool has_some = folder.valid() && !flight_file_names(folder).empty();
    return has_some ? recorders_.directory : std::string();
  }
  /// Removes them where they are not to be kept: ranks that ended by exit() have not done so.
  void remove_after_success() const {
    if (recorders_.files == flight_files::removed_after_success) {
      clear_flight_directory(recorders_.directory);
    }
  }

  /// For a rank's TORCHELASTIC_ERROR_FILE; empty where there is no directory.
  [[nodiscard]] std::string error_file(int rank) const {
    return is_usable_ ? directory_ + "/" + flight_file_name(rank, error_suffix) : std::string();
  }
  /// Whether a rank has left a record.
  [[nodiscard]] bool has_record(int rank) const {
    const auto exists = [&, this](std::string_view suffix) {
      return ::access((directory_ + "/" + flight_file_name(rank, suffix)).c_str(), F_OK) == 0;
    };
    return is_usable_ && (exists(failure_suffix) || exists(error_suffix));
  }
  /// What a rank has left: parx's record rather than what PyTorch has written later.
  [[nodiscard]] std::optional<failure_record> record_of_rank(int rank) const {
    const descriptor folder = find_flight_directory(directory_);
    if (!folder.valid()) return std::nullopt;
    auto record = read_failure(folder, flight_file_name(rank, failure_suffix));
    return record ? record : read_failure(folder, flight_file_name(rank, error_suffix));
  }

 private:
  [[nodiscard]] bool has_default_name() const noexcept {
    return recorders_.directory.empty() || recorders_.files == flight_files::removed_after_success;
  }

  flight_place recorders_;
  std::string directory_;
  bool is_usable_ = false;
};

}  // namespace parx::detail
