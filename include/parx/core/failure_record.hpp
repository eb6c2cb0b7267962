// failure_record: what a rank leaves behind of its failure. The other ranks read it from the job's
// store, parxrun and parx_doctor from a file (comm/flight/failure_log.hpp).
//
// Who is to blame is decided from its fields alone, so the sentences may be improved at any time.
// The text form is the JSON of PyTorch's TORCHELASTIC_ERROR_FILE (torch.distributed.elastic, class
// ErrorHandler), which torchrun shows, with parx's own fields in extraInfo.parx. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

/// Whose fault a rank says that its failure is.
enum class failure_kind : std::uint8_t {
  own,        ///< its own: an exception of the program, or of the system
  accuses,    ///< a rank did not call what this one called: a timeout, a mismatch
  lost_peer,  ///< a rank's connection ended while it was needed
  told,       ///< another rank failed first and has said so
};

struct failure_record {
  std::int64_t unix_ns = 0;    ///< when
  std::optional<errc> code{};  ///< empty: an exception that is no parx::error
  int rank = -1;               ///< of the job: the rank that failed; -1: not known
  int blamed = -1;             ///< of the job: the rank that this one blames; -1: none
  std::string host{};          ///< of `blamed`
  std::string operation{};     ///< "all_reduce", "rendezvous"; empty: outside of parx's operations
  std::string group{};
  std::uint64_t sequence = 0;  ///< number of the collective in its group; 0: there is none
  std::string site{};          ///< "train.cpp:88"
  std::string text{};          ///< for people
  /// An exception is on its way through the program: what it says is not known yet, and replaces
  /// this record soon.
  bool is_for_now = false;

  [[nodiscard]] failure_kind kind() const noexcept;
  /// The rank because of which the others end: the one that it blames, else the failed rank itself.
  [[nodiscard]] int culprit() const noexcept { return blamed >= 0 ? blamed : rank; }

  friend bool operator==(const failure_record&, const failure_record&) = default;
};

/// The key in the job's store of the record of the first rank that fails.
inline constexpr const char* first_failure_key = "abort";

/// The key in the job's store that parxrun sets, where it keeps the store, for a rank that it knows
/// to have ended though its host may not answer.
[[nodiscard]] inline std::string lost_key(int rank) { return formatted("lost/{}", rank); }

/// The record of an exception that has ended the work of `rank`, from now.
[[nodiscard]] failure_record record_of(const std::exception_ptr& failure, int rank);

/// What the log line of an error says, behind the rank that has failed, of the rank that it blames:
/// ", after rank 4 on n3", ", after another rank"; empty where the failure is its own.
[[nodiscard]] std::string blame_tag(const failure_record& record);

struct blamed_rank {
  int rank = -1;  ///< -1: not known
  std::string host;
};
/// The inverse for a line with a blame_tag(); nullopt for another one.
[[nodiscard]] std::optional<blamed_rank> blame_in_line(std::string_view line);

/// As JSON; of `text` at most 4096 bytes.
[[nodiscard]] std::string to_text(const failure_record& record);
/// What to_text() or PyTorch has written; nullopt where it is neither. Every text in the result is
/// printable().
[[nodiscard]] std::optional<failure_record> failure_from_text(std::string_view text);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/failure_record_impl.hpp>
#endif
