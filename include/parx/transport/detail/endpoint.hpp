// endpoint: what all groups of one process share.
//
// The arrivals, the peers' records and the job-wide abort key. For a pair of ranks the higher one
// connects, so that there is never more than one attempt; whether they share memory follows from
// the table of placements, so that both sides expect the same kind of link.
// Threads: safe from any thread.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/address.hpp>
#include <parx/transport/detail/arrivals.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/doorbell.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/interfaces.hpp>
#include <parx/transport/detail/link_proof.hpp>
#include <parx/transport/detail/notices.hpp>
#include <parx/transport/detail/peer_record.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/sleepers.hpp>
#include <parx/transport/detail/sockets.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

struct endpoint_options {
  std::shared_ptr<parx::store> job_store;  ///< every key of the job lies under its prefix
  std::string store_host;            ///< towards which this rank's address is chosen
  int rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  bool may_spin = false;
  environment env;
  std::optional<job_key> key = std::nullopt;  ///< where the job has a secret
};

class endpoint {
 public:
  /// Starts to listen and publishes this rank's record. Throws parx::error where that fails.
  explicit endpoint(endpoint_options options)
      : options_(std::move(options)),
        own_(describe_self(options_)),
        arrivals_(own_.address, own_.memory) {
    raise_descriptor_limit();
    const std::string offer = random_hex();
    const std::string agreed = options_.job_store->compare_set("token", "", offer);
    if (agreed.size() != token_.size()) {
      throw_error(errc::protocol, "the job's token in the store has {} bytes instead of {}",
                  agreed.size(), token_.size());
    }
    std::copy_n(agreed.begin(), token_.size(), token_.begin());
    own_.challenge = random_hex();
    arrivals_.take_in(agreed, options_.key, own_.challenge);
    own_.port = arrivals_.port();
    own_.probe = address_of(token_.data());
    if (!arrivals_.shares_memory()) own_.memory.clear();
    permit_reading();
    options_.job_store->set(record_key(options_.rank), own_.to_text());
    watch_for_abort(options_.job_store->watch("abort"));
  }

  ~endpoint() {
    if (options_.job_store != nullptr) say_goodbye(*options_.job_store);
  }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  /// Lets go of the store, which may then end. What groups of this process are still there end too.
  void leave() {
    std::shared_ptr<parx::store> last;
    {
      const std::lock_guard lock(mutex_);
      last = std::move(options_.job_store);
      if (!abort_reason_) {
        abort_reason_ =
            formatted("rank {} has left the job, since its parx::world is gone", options_.rank);
      }
      abort_known_.store(true, std::memory_order_release);
    }
    if (last != nullptr) say_goodbye(*last);
    // Not closed: a thread of such a group may be about to poll it.
    ::shutdown(abort_descriptor(), SHUT_RDWR);
  }

  [[nodiscard]] static std::string record_key(int rank) { return formatted("rank/{}", rank); }
  [[nodiscard]] const endpoint_options& options() const noexcept { return options_; }
  [[nodiscard]] const peer_record& own() const noexcept { return own_; }
  [[nodiscard]] detail::arrivals& incoming() noexcept { return arrivals_; }
  [[nodiscard]] notices& own_notices() noexcept { return notices_; }
  [[nodiscard]] int abort_descriptor() const noexcept {
    return abort_descriptor_.load(std::memory_order_acquire);
  }

  /// The record of a rank of the job, for good. Throws parx::error where the store does not tell it
  /// before `limit`.
  [[nodiscard]] const peer_record& record_of(int rank, deadline limit) {
    peer_record& known = records_[static_cast<std::size_t>(rank)];
    {
      const std::lock_guard lock(mutex_);
      if (known.is_known()) return known;
    }
    const auto job_store = store_of_job();
    if (job_store == nullptr) throw_error(errc::closed, "this process has left the job");
    auto record = peer_record::from_text(job_store->get(record_key(rank), limit));
    const std::lock_guard lock(mutex_);
    if (!known.is_known()) known = std::move(record);
    return known;
  }

  /// Asks the store, as ask(store, limit), for what only makes words clearer; false where it gives
  /// none. One that does not answer, because its process is stopped, would take the whole patience
  /// for every question of a message: it is then not asked again for a while.
  template <typename Ask>
  bool ask_for_words(Ask ask) {
    const auto job_store = store_of_job();
    if (job_store == nullptr || store_is_silent()) return false;
    try {
      ask(*job_store, deadline::after(std::chrono::milliseconds(800)));
      return true;
    } catch (const error& failure) {
      if (failure.code_value() == errc::timeout) {
        asked_in_vain_.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      }
      return false;
    }
  }
  [[nodiscard]] bool store_is_silent() const noexcept {
    static constexpr std::chrono::seconds respite{10};
    const auto last = asked_in_vain_.load(std::memory_order_relaxed);
    return last != 0 && clock::now() < clock::time_point(clock::duration(last)) + respite;
  }
  /// For what is said to the store last: who keeps it may stand still.
  [[nodiscard]] deadline parting_deadline() const {
    return deadline::after(std::chrono::milliseconds(store_is_silent() ? 100 : 700));
  }
  /// As record_of, where no more depends on it than words: null where it is not told.
  [[nodiscard]] const peer_record* record_for_words(int rank) {
    const auto limit = store_is_silent() ? deadline::after(std::chrono::seconds(0))
                                         : deadline::after(std::chrono::seconds(1));
    try {
      return &record_of(rank, limit);
    } catch (const error&) {
      return nullptr;
    }
  }

  /// Where each rank of the job is. From rank 0's table where it has published one, else from every
  /// rank's record. Throws parx::error where a record is missing.
  [[nodiscard]] const std::vector<placement>& placements() {
    const std::lock_guard lock(placements_mutex_);
    if (!placements_.empty()) return placements_;
    const std::vector<std::string> key{"placements"};
    const auto limit = deadline::after(std::chrono::seconds(30));
    const auto job_store = store_of_job();
    if (job_store == nullptr) throw_error(errc::closed, "this process has left the job");
    placements_ = job_store->check(key, limit)
                      ? placements_from_text(job_store->get(key.front(), limit))
                      : place(*job_store, limit);
    if (placements_.size() != static_cast<std::size_t>(options_.world_size)) {
      throw_error(errc::protocol, "the table of hosts in the store has {} ranks instead of {}",
                  placements_.size(), options_.world_size);
    }
    return placements_;
  }
  /// For rank 0, once all have arrived: spares the others a look at every record.
  void publish_placements(deadline limit) {
    options_.job_store->set("placements", to_text(place(*options_.job_store, limit)), limit);
  }

  /// What the connecting side of a link says first, to the rank of that record.
  [[nodiscard]] link_hello hello(const link_key& key, int from, const peer_record& peer) {
    link_hello greeting;
    greeting.what_for = key.what_for;
    greeting.group = key.group;
    greeting.from = from;
    greeting.to = key.peer;
    greeting.stream = key.stream;
    greeting.rank = options_.rank;
    if (options_.key) {
      const std::lock_guard lock(mutex_);
      greeting.count = hellos_[peer.challenge]++;
      greeting.proof = proof_of_hello(*options_.key, greeting, peer.challenge);
    } else {
      std::copy(token_.begin(), token_.end(), greeting.proof.begin());
    }
    return greeting;
  }
  /// What a peer that has heard it sends first over TCP; nothing in a job without a secret.
  [[nodiscard]] std::optional<mac> welcome_to(const link_hello& greeting) const {
    if (!options_.key) return std::nullopt;
    return proof_of_welcome(*options_.key, greeting);
  }

  /// Whether TLS follows on TCP connections, and its key, bound to what the peer has been answered.
  [[nodiscard]] bool encrypts() const noexcept { return options_.key && options_.key->encrypts(); }
  [[nodiscard]] mac tls_key(const mac& welcome) const {
    return options_.key->sign("parx link tls", {job_key::view(welcome)});
  }

  /// The connection with `rank` of the job, a process of this host, that all groups share. Null
  /// while it is being opened. A group calls the rank `peer`. Throws link_lost.
  [[nodiscard]] detail::doorbell* doorbell_with(int rank, int peer, const peer_record& record) {
    const std::lock_guard lock(doorbells_mutex_);
    auto& known = doorbells_[static_cast<std::size_t>(rank)];
    if (known != nullptr) return known.get();
    auto socket = connects_to(rank) ? call_at(rank, peer, record)
                                    : arrivals_.claim(doorbell_key(rank)).socket;
    if (!socket.valid()) return nullptr;
    known.reset(new detail::doorbell(std::move(socket)));
    return known.get();
  }
  /// Of two ranks that share memory the higher one connects, whatever a group calls them.
  [[nodiscard]] bool connects_to(int rank) const noexcept { return options_.rank > rank; }
  [[nodiscard]] detail::sleepers& sleepers() noexcept { return sleepers_; }

  /// A connection to where a rank of this host takes in shared memory; none while too many others
  /// stand in line there. Throws link_lost, and parx::error where this process can make no socket.
  [[nodiscard]] descriptor connect_to_memory(int peer, const peer_record& record) const {
    const auto name = socket_address::abstract(record.memory);
    descriptor socket = stream_socket(AF_UNIX);
    if (!socket.valid()) {
      throw_error(errc::io, "no socket can be made for a connection to rank {}: {}", peer,
                  shortage_text(errno));
    }
    if (::connect(socket.get(), name.data(), name.length) == 0) {
      if (arrivals_.is_of_this_user(socket.get())) return socket;
      throw link_lost(peer, "the socket at which it shares memory belongs to another user");
    }
    if (errno == EAGAIN || errno == EINTR) return {};
    if (errno == ECONNREFUSED) throw link_lost(peer, "it has ended");
    throw link_lost(peer, formatted("it does not share memory any more: {}", errno_text(errno)));
  }
  /// Says over it what it is for, and passes the memory. Throws link_lost.
  void pass_memory(const descriptor& socket, const descriptor& memory, const link_key& key,
                   int from, const peer_record& peer) {
    const auto greeting = hello(key, from, peer);
    if (!send_with_descriptor(socket.get(), &greeting, sizeof greeting, memory.get())) {
      throw link_lost(key.peer,
                      formatted("it does not take shared memory: {}", errno_text(errno)));
    }
  }

  /// Whether the process behind a Unix connection lets this one read its memory: tried at the place
  /// where its token lies.
  [[nodiscard]] bool can_read(pid_t pid, const peer_record& peer) const noexcept {
    if (pid <= 0 || peer.probe == 0 || !single_copy_) return false;
    token_text found{};
    const iovec here{found.data(), found.size()};
    const iovec there = memory_at(peer.probe, found.size());
    const auto got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    return got == static_cast<ssize_t>(found.size()) && found == token_;
  }

  /// Whether a rank's process is gone: its host answers, but nobody listens at its port any more.
  [[nodiscard]] bool has_ended(int global_peer) {
    static constexpr int patience_ms = 200;
    const auto* record = record_for_words(global_peer);
    if (record == nullptr) return false;
    const auto address = socket_address::tcp(record->address, record->port);
    const descriptor probe = stream_socket(address.storage.ss_family);
    if (!probe.valid()) return false;
    if (::connect(probe.get(), address.data(), address.length) == 0) return false;
    if (errno != EINPROGRESS) return errno == ECONNREFUSED;
    return connection_state(probe.get(), patience_ms) == ECONNREFUSED;
  }

  /// Of a rank that has ended: false where it has not said that it leaves the job.
  [[nodiscard]] bool may_have_left(int rank) {
    bool left = true;
    ask_for_words([&](parx::store& job_store, const deadline& limit) {
      left = job_store.check(std::vector{goodbye_key(rank)}, limit);
    });
    return left;
  }

  void abort(std::string_view reason) noexcept {
    try {
      const auto job_store = store_of_job();
      if (job_store == nullptr) return;
      job_store->compare_set("abort", "", reason.substr(0, longest_reason), parting_deadline());
    } catch (const std::exception&) {
      // The store is gone, and its clients notice that by themselves.
    }
  }

  /// Whether abort_reason() has been found by any group of this process. Costs nothing.
  [[nodiscard]] bool abort_known() const noexcept {
    return abort_known_.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::optional<std::string> abort_reason() {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) {
      switch (abort_watches_.back()->ready()) {
        case watch_state::pending: break;
        case watch_state::set: abort_reason_ = read_abort_reason(); break;
        case watch_state::lost:
          if (watches_again()) break;
          abort_reason_ = formatted(
              "rank 0, which keeps the job's store ({}), has ended or was killed, or cannot be "
              "reached any more",
              options_.job_store->describe());
          break;
      }
    }
    if (abort_reason_) abort_known_.store(true, std::memory_order_release);
    return abort_reason_;
  }

 private:
  using token_text = std::array<char, 32>;
  using clock = std::chrono::steady_clock;
  static constexpr int most_streams = 64;
  static constexpr std::size_t longest_reason = 4096;
  static constexpr std::size_t most_watches = 16;
  /// Rank 0 mostly has ended; its death shall be known soon.
  static constexpr std::chrono::milliseconds reconnect_patience{400};

  [[nodiscard]] static std::string goodbye_key(int rank) { return formatted("left/{}", rank); }
  void say_goodbye(parx::store& job_store) const noexcept {
    try {
      job_store.set(goodbye_key(options_.rank), "1", parting_deadline());
    } catch (const std::exception&) {
      // The store has gone, and with it who would ask.
    }
  }

  [[nodiscard]] std::shared_ptr<parx::store> store_of_job() {
    const std::lock_guard lock(mutex_);
    return options_.job_store;
  }

  [[nodiscard]] static link_key doorbell_key(int rank) noexcept {
    return {all_groups, rank, purpose::doorbell};
  }
  [[nodiscard]] descriptor call_at(int rank, int peer, const peer_record& record) {
    descriptor socket = connect_to_memory(peer, record);
    if (!socket.valid()) return socket;
    const auto greeting = hello(doorbell_key(rank), options_.rank, record);
    if (::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof greeting)) {
      throw link_lost(peer, formatted("it does not take a greeting: {}", errno_text(errno)));
    }
    return socket;
  }

  [[nodiscard]] std::vector<placement> place(parx::store& job_store, const deadline& limit) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < options_.world_size; ++rank) keys.push_back(record_key(rank));
    std::vector<peer_record> records;
    for (const std::string& text : job_store.multi_get(keys, limit)) {
      records.push_back(peer_record::from_text(text));
    }
    return place_ranks(records);
  }

  /// All but what only listening tells. Throws usage_error for an unknown PARX_TRANSPORT.
  [[nodiscard]] static peer_record describe_self(const endpoint_options& options) {
    const std::string wanted = env_string(options.env, "PARX_TRANSPORT").value_or("auto");
    if (wanted != "auto" && wanted != "tcp") {
      throw_usage("PARX_TRANSPORT=\"{}\" is neither auto (shared memory inside a host, TCP across) "
                  "nor tcp",
                  wanted);
    }
    peer_record self;
    self.host = host_name();
    self.boot_id = read_line("/proc/sys/kernel/random/boot_id");
    self.address = choose_address(options.env, options.store_host,
                                  options.local_world_size < options.world_size);
    self.network =
        read_link("/proc/self/ns/net") + env_string(options.env, "PARX_HOST_ID").value_or("");
    if (wanted == "auto" && shared_memory::can_be_had()) self.memory = "parx-" + random_hex();
    self.pid = ::getpid();
    self.streams = env_number<int>(options.env, "PARX_STREAMS").value_or(1);
    if (self.streams < 1 || self.streams > most_streams) {
      throw_usage("PARX_STREAMS=\"{}\" is not a number of connections to a peer from 1 to {}",
                  self.streams, most_streams);
    }
    return self;
  }

  /// Where Yama lets only ancestors read a process's memory, this one admits all of its user's.
  static void permit_reading() noexcept {
    if (read_line("/proc/sys/kernel/yama/ptrace_scope") == "1") {
      ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    }
  }

  void watch_for_abort(std::unique_ptr<store_watch> next) {
    abort_descriptor_.store(next->descriptor(), std::memory_order_release);
    abort_watches_.push_back(std::move(next));
  }
  /// The connection may have broken where its other end lives: asks before that one is accused.
  [[nodiscard]] bool watches_again() {
    if (abort_watches_.size() == most_watches) return false;
    try {
      watch_for_abort(options_.job_store->watch("abort", deadline::after(reconnect_patience)));
      log(log_level::info, "the connection to {} broke and was made again",
          options_.job_store->describe());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  [[nodiscard]] std::string read_abort_reason() {
    try {
      const auto text = abort_watches_.back()->value(deadline::after(std::chrono::seconds(2)));
      return printable(std::string_view(text).substr(0, longest_reason));
    } catch (const std::exception& failure) {
      return formatted("another rank has failed, but its reason cannot be read: {}",
                       failure.what());
    }
  }

  endpoint_options options_;
  bool single_copy_ = env_flag(options_.env, "PARX_SINGLE_COPY").value_or(true);
  peer_record own_;
  detail::arrivals arrivals_;
  notices notices_;
  token_text token_{};
  /// The last one counts. Others are not closed: a thread may be about to poll their descriptors.
  std::vector<std::unique_ptr<store_watch>> abort_watches_;
  std::atomic<int> abort_descriptor_{-1};

  std::mutex doorbells_mutex_;
  /// By rank, once opened; until this process leaves.
  std::vector<std::unique_ptr<detail::doorbell>> doorbells_ =
      std::vector<std::unique_ptr<detail::doorbell>>(static_cast<std::size_t>(options_.world_size));
  detail::sleepers sleepers_;

  std::mutex placements_mutex_;
  std::vector<placement> placements_;
  std::mutex mutex_;
  /// By rank, once known.
  std::vector<peer_record> records_ =
      std::vector<peer_record>(static_cast<std::size_t>(options_.world_size));
  /// To the peer of each challenge.
  std::map<std::string, std::uint64_t> hellos_;
  std::optional<std::string> abort_reason_;
  std::atomic<bool> abort_known_{false};
  std::atomic<clock::rep> asked_in_vain_{0};  ///< when the store last gave no answer; 0: never
};

}  // namespace parx::detail
