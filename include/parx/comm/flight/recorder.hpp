// flight_recorder: records each operation of a rank's groups in a memory-mapped file.
//
// Always on. The kernel keeps the mapped pages when the process is killed, so the file then shows
// the rank's last operations (parx_doctor recorder DIR). Recording an operation takes
// two cache lines and two clock readings (of a short one less, see call_record.hpp), no lock and no
// system call. The file's blocks are reserved first, so that a full disk does not cause a SIGBUS
// later. Threads: safe from any. The idea is from the flight recorder of PyTorch's
// ProcessGroupNCCL.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <parx/comm/flight/directory.hpp>
#include <parx/comm/flight/layout.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/file_text.hpp>

namespace parx::inline PARX_ABI {

struct flight_options {
  std::string directory;  ///< made with mode 0700 if it is missing
  int rank = 0;
  int world_size = 1;
  std::uint64_t job = 0;  ///< equal on all ranks of one start, different for each start
  flight_files files = flight_files::kept;
};

class flight_recorder {
  using clock = std::chrono::steady_clock;

 public:
  /// Throws errc::io if the directory is not this user's own, or the disk is full.
  explicit flight_recorder(flight_options options) : options_(std::move(options)) {
    const std::string name = flight_file_name(options_.rank);
    const std::string path = options_.directory + "/" + name;
    const auto fail = [&](int reason) {
      throw_error(errc::io, "the flight recorder {} cannot be written: {}", path,
                  flight_refusal(options_.directory, reason));
    };
    if (options_.files == flight_files::removed_after_success &&
        ::access(options_.directory.c_str(), F_OK) != 0) {
      remove_old_flight_directories(options_.directory);
    }
    const descriptor file = make_flight_file(options_.directory, name);
    if (!file.valid()) fail(errno);
    // Writing to mapped pages without reserved blocks could raise SIGBUS.
    const auto reserve = [&] {
      errno = ::posix_fallocate(file.get(), 0, flight_file_bytes);
      return errno == 0 ? 0 : -1;
    };
    if (detail::within_file_limit(reserve) != 0) {
      const int full = errno;
      ::unlink(path.c_str());
      fail(full);
    }
    void* const memory = ::mmap(nullptr, flight_file_bytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (memory == MAP_FAILED) fail(errno);
    header_ = new (memory) flight_header;
    records_ = reinterpret_cast<flight_record*>(static_cast<std::byte*>(memory) +
                                                flight_header_bytes);
    describe_self();
  }
  ~flight_recorder() { ::munmap(header_, flight_file_bytes); }
  flight_recorder(const flight_recorder&) = delete;
  flight_recorder& operator=(const flight_recorder&) = delete;

  [[nodiscard]] const std::string& directory() const noexcept { return options_.directory; }

  void add_group(std::uint64_t id, std::string_view name, int size, int rank) noexcept {
    const auto n = std::atomic_ref(header_->groups_made).fetch_add(1, std::memory_order_relaxed);
    flight_group& slot = header_->groups[n % header_->groups.size()];
    slot.name.fill('\0');
    std::copy_n(name.begin(), std::min(name.size(), slot.name.size()), slot.name.begin());
    slot.size = size;
    slot.rank = rank;
    slot.id = id;
  }

  /// An operation has been issued at about `now`; returns its ticket.
  [[nodiscard]] std::uint64_t enter(const detail::call_header& call, std::uint64_t bytes, int peer,
                                    clock::time_point now = clock::now()) noexcept {
    const auto ticket = last_.fetch_add(1, std::memory_order_relaxed) + 1;
    flight_record& slot = slot_of(ticket);
    const std::atomic_ref number(slot.ticket);
    number.store(0, std::memory_order_relaxed);
    // A reader that finds the old number must not see the new contents.
    std::atomic_thread_fence(std::memory_order_release);
    slot.entered_ns = ns_of(now);
    slot.finished_ns = 0;
    slot.bytes = bytes;
    slot.peer = peer;
    slot.state = flight_state::entered;
    slot.call = call;
    number.store(ticket, std::memory_order_release);
    return ticket;
  }

  /// The operation's exact time. As finish(), does nothing if a later one has taken its slot.
  void begin_time(std::uint64_t ticket, clock::time_point now) noexcept {
    if (has(ticket)) slot_of(ticket).entered_ns = ns_of(now);
  }
  /// The operation has ended.
  void finish(std::uint64_t ticket, flight_state state,
              clock::time_point now = clock::now()) noexcept {
    if (!has(ticket)) return;
    flight_record& slot = slot_of(ticket);
    slot.finished_ns = ns_of(now);
    std::atomic_ref(slot.state).store(state, std::memory_order_release);
  }

  /// A group of this rank has failed. Only the first reason is recorded.
  void fail(std::string_view reason) noexcept {
    if (!ends_as(flight_ending::failed)) return;
    std::copy_n(reason.begin(), std::min(reason.size(), header_->reason.size()),
                header_->reason.begin());
  }

  /// The rank leaves the job without failure. The last rank of a host removes the files of all,
  /// unless they are to be kept; if a rank has failed or was killed, all files stay.
  void leave() noexcept {
    if (ends_as(flight_ending::left) && options_.files == flight_files::removed_after_success) {
      remove_flight_files(options_.directory, options_.job);
    }
  }

 private:
  [[nodiscard]] static std::int64_t ns_of(clock::time_point time) noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
  [[nodiscard]] flight_record& slot_of(std::uint64_t ticket) const noexcept {
    return records_[(ticket - 1) % flight_capacity];
  }

  [[nodiscard]] bool has(std::uint64_t ticket) const noexcept {
    return std::atomic_ref(slot_of(ticket).ticket).load(std::memory_order_relaxed) == ticket;
  }

  /// False if it has ended already.
  bool ends_as(flight_ending how) noexcept {
    auto before = flight_ending::running;
    return std::atomic_ref(header_->ending).compare_exchange_strong(before, how);
  }

  void describe_self() noexcept {
    const auto unix_time = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    header_->version = flight_version;
    header_->header_bytes = flight_header_bytes;
    header_->record_bytes = sizeof(flight_record);
    header_->capacity = flight_capacity;
    header_->job = options_.job;
    header_->rank = options_.rank;
    header_->world_size = options_.world_size;
    header_->pid = ::getpid();
    header_->made_unix_ns = unix_time.count();
    header_->unix_minus_steady_ns = unix_time.count() - ns_of(clock::now());
    ::gethostname(header_->host.data(), header_->host.size() - 1);
    try {
      const auto boot = detail::file_text("/proc/sys/kernel/random/boot_id").value_or("");
      std::copy_n(boot.begin(), std::min<std::size_t>(boot.size(), 36), header_->boot_id.begin());
    } catch (const std::bad_alloc&) {  // the clock is then treated as another host's
    }
    std::atomic_thread_fence(std::memory_order_release);
    header_->magic = flight_magic;
  }

  const flight_options options_;
  flight_header* header_ = nullptr;
  flight_record* records_ = nullptr;
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace parx
