// layout: the flight recorder's file format. It holds a rank's last operations and outlives its
// process.
//
// A header of 8192 bytes, then `capacity` records of 128 bytes; record n (from 1 on) is in slot
// (n - 1) % capacity. Little-endian, fixed offsets, no pointers. A record whose ticket does not
// match its slot is empty or was being written. A change of the layout needs a new version. Times
// are nanoseconds on the writer's steady clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <parx/comm/detail/progress/call_header.hpp>

namespace parx::inline PARX_ABI {

inline constexpr std::array<char, 8> flight_magic{'P', 'X', 'F', 'L', 'I', 'G', 'H', 'T'};
inline constexpr std::uint32_t flight_version = 1;
inline constexpr std::uint32_t flight_capacity = 4096;
inline constexpr std::uint32_t flight_header_bytes = 8192;

/// How far an operation has come.
enum class flight_state : std::uint32_t { entered, finished, failed };

/// How the process left the job. A killed process leaves `running`.
enum class flight_ending : std::uint32_t { running, left, failed };

struct flight_record {
  std::uint64_t ticket = 0;  ///< the rank's operations, from 1 on; 0 while it is being written
  std::int64_t entered_ns = 0;
  std::int64_t finished_ns = 0;  ///< 0: not yet
  std::uint64_t bytes = 0;
  std::int32_t peer = -1;  ///< of a message: the other rank of the group; -1: any, or a collective
  flight_state state = flight_state::entered;
  std::array<std::uint64_t, 3> reserved{};  ///< fills two cache lines
  detail::call_header call{};  ///< operation, type, count, root, place: the fingerprint on the wire
};
static_assert(std::is_trivially_copyable_v<flight_record> && sizeof(flight_record) == 128);

struct flight_group {
  std::uint64_t id = 0;
  std::int32_t size = 0;
  std::int32_t rank = 0;
  std::array<char, 48> name{};  ///< zero-terminated unless it fills the array
};

struct flight_header {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint32_t record_bytes = 0;
  std::uint32_t capacity = 0;
  std::uint64_t job = 0;  ///< random, equal on all ranks of one start
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int64_t pid = 0;
  std::int64_t made_unix_ns = 0;
  std::int64_t unix_minus_steady_ns = 0;
  std::array<char, 64> host{};
  std::array<char, 40> boot_id{};  ///< equal if the steady clock is the same
  flight_ending ending = flight_ending::running;
  std::uint32_t groups_made = 0;   ///< group n lies in groups[n % groups.size()]
  std::array<char, 512> reason{};  ///< why the first group of the rank failed
  std::array<flight_group, 96> groups{};
};
static_assert(std::is_trivially_copyable_v<flight_header>);
static_assert(sizeof(flight_header) <= flight_header_bytes);

/// Size of a file, and the suffix of its name in the job's directory.
inline constexpr std::size_t flight_file_bytes =
    flight_header_bytes + std::size_t{flight_capacity} * sizeof(flight_record);
inline constexpr std::string_view flight_suffix = ".flight";  // rank_3.flight
/// Of the other files there: a rank's failure_record, and what a Python rank has written of its own
/// to the TORCHELASTIC_ERROR_FILE that parxrun has named.
inline constexpr std::string_view failure_suffix = ".failure";
inline constexpr std::string_view error_suffix = ".error.json";

}  // namespace parx
