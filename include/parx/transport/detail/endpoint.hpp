// endpoint: the state that all groups of one process share: the arrivals, the peers' records and
// the watch on the job's abort key.
//
// Of two ranks the higher one connects, so that there is never more than one attempt. Whether they
// share memory follows from the table of placements, so that both expect the same kind of link.
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
#include <cstring>
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
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/address.hpp>
#include <parx/transport/detail/arrivals.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/endpoint_options.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/interfaces.hpp>
#include <parx/transport/detail/link_proof.hpp>
#include <parx/transport/detail/network.hpp>
#include <parx/transport/detail/notices.hpp>
#include <parx/transport/detail/peer_record.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/sleepers.hpp>
#include <parx/transport/detail/sockets.hpp>
#include <parx/transport/detail/wake_channel.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

class endpoint {
 public:
  /// Starts to listen and publishes this rank's record. Throws parx::error where that fails; the
  /// store must answer before `limit`, by default within its timeout.
  explicit endpoint(endpoint_options options, std::optional<deadline> limit = {})
      : options_(std::move(options)),
        own_(describe_self(options_)),
        arrivals_(own_.address, own_.memory) {
    raise_descriptor_limit();
    const std::string offer = random_hex();
    const std::string agreed = options_.job_store->compare_set("token", "", offer, limit);
    if (agreed.size() != token_.size()) {
      throw_error(errc::protocol, "the job's token in the store has {} bytes instead of {}",
                  agreed.size(), token_.size());
    }
    std::copy_n(agreed.begin(), token_.size(), token_.begin());
    own_.challenge = random_hex();
    open_network();
    arrivals_.accept_with(agreed, options_.key, own_.challenge);
    own_.port = arrivals_.port();
    own_.probe = address_of(token_.data());
    if (!arrivals_.shares_memory()) own_.memory.clear();
    permit_reading();
    options_.job_store->set(record_key(options_.rank), own_.to_text(), limit);
    watch_for_abort(options_.job_store->watch(first_failure_key, limit));
  }

  ~endpoint() {
    if (options_.job_store != nullptr) say_goodbye(*options_.job_store);
  }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  /// Releases the store, which may then end. Groups of this process that still exist are aborted.
  void leave() {
    std::shared_ptr<parx::store> last;
    {
      const std::lock_guard lock(mutex_);
      last = std::move(options_.job_store);
      if (!abort_reason_) {
        abort_reason_ = failure_record{
            .rank = options_.rank,
            .text = formatted("rank {} has left the job, since its parx::world is gone",
                              options_.rank)};
      }
      abort_known_.store(true, std::memory_order_release);
    }
    if (last != nullptr) say_goodbye(*last);
    // Shut down, not closed: a thread of such a group may be about to poll it.
    ::shutdown(abort_descriptor(), SHUT_RDWR);
  }

  [[nodiscard]] static std::string record_key(int rank) { return formatted("rank/{}", rank); }
  [[nodiscard]] const endpoint_options& options() const noexcept { return options_; }
  [[nodiscard]] const peer_record& own() const noexcept { return own_; }
  [[nodiscard]] detail::arrivals& incoming() noexcept { return arrivals_; }
  /// What links to other hosts use in place of TCP; null where they use TCP.
  [[nodiscard]] network* other_network() noexcept { return network_.get(); }
  [[nodiscard]] notices& own_notices() noexcept { return notices_; }
  [[nodiscard]] int abort_descriptor() const noexcept {
    return abort_descriptor_.load(std::memory_order_acquire);
  }

  /// The record of a rank of the job; the reference stays valid. Throws parx::error where the store
  /// does not return it before `limit`.
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

  /// Calls ask(store, limit) for information that only improves a message; false where it fails. A
  /// store that does not answer (its process may be stopped) is not asked again for a while,
  /// because each question of a message would wait for the whole timeout.
  template <typename Ask>
  bool ask_for_diagnosis(Ask ask) {
    const auto job_store = store_of_job();
    if (job_store == nullptr || store_is_silent()) return false;
    return is_answered([&] { ask(*job_store, deadline::after(std::chrono::milliseconds(800))); });
  }
  [[nodiscard]] bool store_is_silent() const noexcept {
    static constexpr std::chrono::seconds respite{10};
    const auto last = last_unanswered_.load(std::memory_order_relaxed);
    return last != 0 && clock::now() < clock::time_point(clock::duration(last)) + respite;
  }
  /// For this rank's last requests to the store, whose process may be stopped.
  [[nodiscard]] deadline parting_deadline() const {
    return deadline::after(std::chrono::milliseconds(store_is_silent() ? 100 : 700));
  }
  /// As record_of, for messages and diagnosis: null where the store does not return it.
  [[nodiscard]] const peer_record* record_for_diagnosis(int rank) {
    const auto limit = store_is_silent() ? deadline::after(std::chrono::seconds(0))
                                         : deadline::after(std::chrono::seconds(1));
    try {
      return &record_of(rank, limit);
    } catch (const error&) {
      return nullptr;
    }
  }

  /// Where each rank of the job is: from rank 0's table if it has published one, else from all
  /// ranks' records. Throws parx::error where a record is missing.
  [[nodiscard]] const std::vector<placement>& placements() {
    const std::lock_guard lock(placements_mutex_);
    if (!placements_.empty()) return placements_;
    const std::vector<std::string> key{"placements"};
    const auto limit = deadline::after(std::chrono::seconds(30));
    const auto job_store = store_of_job();
    if (job_store == nullptr) throw_error(errc::closed, "this process has left the job");
    placements_ = job_store->check(key, limit)
                      ? placements_from_text(job_store->get(key.front(), limit))
                      : place_ranks(read_records(*job_store, limit));
    if (placements_.size() != static_cast<std::size_t>(options_.world_size)) {
      throw_error(errc::protocol, "the table of hosts in the store has {} ranks instead of {}",
                  placements_.size(), options_.world_size);
    }
    return placements_;
  }
  /// Once all have arrived: reads all ranks' records, so that links can be opened although the
  /// store's process is stopped later. In a large world that would be too much for the store: there
  /// rank 0 publishes the table of placements, and a record is read when a link needs it.
  void meet_everybody(const deadline& limit) {
    static constexpr int most_read = 256;  // some 250 bytes each: the store sends up to 16 MB
    const bool is_large = options_.world_size > most_read;
    if (is_large && options_.rank != 0) return;
    auto records = read_records(*options_.job_store, limit);
    auto places = place_ranks(records);
    if (is_large) options_.job_store->set("placements", to_text(places), limit);
    const std::scoped_lock lock(placements_mutex_, mutex_);
    placements_ = std::move(places);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (!records_[i].is_known()) records_[i] = std::move(records[i]);
    }
  }

  /// The hello that the connecting side of a link sends first, to the rank of `peer`.
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
  /// The proof that the accepting peer sends first over TCP; none in a job without a secret.
  [[nodiscard]] std::optional<mac> welcome_to(const link_hello& greeting) const {
    if (!options_.key) return std::nullopt;
    return proof_of_welcome(*options_.key, greeting);
  }

  /// Whether TCP connections use TLS.
  [[nodiscard]] bool encrypts() const noexcept { return options_.key && options_.key->encrypts(); }
  /// The key of that TLS, bound to the connection by the accepting rank's proof.
  [[nodiscard]] mac tls_key(const mac& welcome) const {
    return options_.key->sign("parx link tls", {job_key::view(welcome)});
  }

  /// The wake_channel to the process of `rank` in the job, on this host; all groups share it. Null
  /// while it is being opened. `peer` is that rank's number in the calling group, for messages.
  /// Throws link_lost.
  [[nodiscard]] wake_channel* wake_channel_with(int rank, int peer, const peer_record& record) {
    const std::lock_guard lock(wake_channels_mutex_);
    auto& known = wake_channels_[static_cast<std::size_t>(rank)];
    if (known != nullptr) return known.get();
    auto socket = connects_to(rank) ? connect_wake_channel(rank, peer, record)
                                    : arrivals_.claim(wake_channel_key(rank)).socket;
    if (!socket.valid()) return nullptr;
    known.reset(new wake_channel(std::move(socket)));
    return known.get();
  }
  /// Of two ranks that share memory the one with the higher number in the job connects.
  [[nodiscard]] bool connects_to(int rank) const noexcept { return options_.rank > rank; }
  [[nodiscard]] detail::sleepers& sleepers() noexcept { return sleepers_; }

  /// Connects to the Unix socket at which a rank of this host accepts shared memory; not valid
  /// while its backlog is full. Throws link_lost, and parx::error where no socket can be made.
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
    if (errno == ECONNREFUSED) throw link_lost(peer, "it has ended", link_end::closed);
    throw link_lost(peer, formatted("it does not share memory any more: {}", errno_text(errno)));
  }
  /// Sends the hello over such a connection and passes the memory with it. Throws link_lost.
  void pass_memory(const descriptor& socket, const descriptor& memory, const link_key& key,
                   int from, const peer_record& peer) {
    const auto greeting = hello(key, from, peer);
    if (!send_with_descriptor(socket.get(), &greeting, sizeof greeting, memory.get())) {
      throw link_lost(key.peer,
                      formatted("it does not accept shared memory: {}", errno_text(errno)));
    }
  }

  /// Whether this process may read the memory of a peer's process: tested by reading its token.
  [[nodiscard]] bool can_read(pid_t pid, const peer_record& peer) const noexcept {
    if (pid <= 0 || peer.probe == 0 || !single_copy_) return false;
    token_text found{};
    const iovec here{found.data(), found.size()};
    const iovec there = memory_at(peer.probe, found.size());
    const auto got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    return got == static_cast<ssize_t>(found.size()) && found == token_;
  }

  /// Whether a rank's process has ended: its host answers, but nothing listens at its port.
  [[nodiscard]] bool has_ended(int rank) {
    static constexpr int patience_ms = 200;
    const auto* record = record_for_diagnosis(rank);
    if (record == nullptr) return false;
    const auto address = socket_address::tcp(record->address, record->port);
    const descriptor probe = stream_socket(address.storage.ss_family);
    if (!probe.valid()) return false;
    if (::connect(probe.get(), address.data(), address.length) == 0) return false;
    if (errno != EINPROGRESS) return errno == ECONNREFUSED;
    return connection_state(probe.get(), patience_ms) == ECONNREFUSED;
  }

  /// For a rank that has ended: false where it has not published that it leaves the job.
  [[nodiscard]] bool may_have_left(int rank) {
    bool left = true;
    ask_for_diagnosis([&](parx::store& job_store, const deadline& limit) {
      left = job_store.check(std::vector{goodbye_key(rank)}, limit);
    });
    return left;
  }

  void abort(const failure_record& reason) noexcept {
    const auto job_store = store_of_job();
    if (job_store == nullptr) return;
    // Where the store is gone, its clients notice that by themselves.
    is_answered([&] {
      job_store->compare_set(first_failure_key, "", to_text(reason), parting_deadline());
    });
  }

  /// Whether any group of this process has found an abort_reason(). One atomic load.
  [[nodiscard]] bool abort_known() const noexcept {
    return abort_known_.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::optional<failure_record> abort_reason() {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) {
      switch (abort_watches_.back()->ready()) {
        case watch_state::pending: break;
        case watch_state::set: abort_reason_ = read_abort_reason(); break;
        case watch_state::lost:
          if (watches_again()) break;
          abort_reason_ = failure_record{
              .code = errc::peer_lost,
              .blamed = 0,
              .text = formatted("rank 0, which keeps the job's store ({}), has ended or was "
                                "killed, or cannot be reached any more",
                                options_.job_store->describe())};
          break;
      }
    }
    if (abort_reason_) abort_known_.store(true, std::memory_order_release);
    return abort_reason_;
  }

 private:
  using token_text = std::array<char, 32>;
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t most_watches = 16;
  /// Usually rank 0 has ended, which should be reported soon.
  static constexpr std::chrono::milliseconds reconnect_patience{400};

  [[nodiscard]] static std::string goodbye_key(int rank) { return formatted("left/{}", rank); }
  void say_goodbye(parx::store& job_store) noexcept {
    // Where the store is gone, nobody can ask for it.
    is_answered([&] { job_store.set(goodbye_key(options_.rank), "1", parting_deadline()); });
  }
  /// Calls request(), which asks the store; false where it fails. Notes a store that does not
  /// answer, see store_is_silent().
  template <typename Request>
  bool is_answered(Request request) noexcept {
    try {
      request();
      return true;
    } catch (const error& failure) {
      if (failure.code_value() == errc::timeout) {
        last_unanswered_.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      }
    } catch (const std::exception&) {
    }
    return false;
  }

  [[nodiscard]] std::shared_ptr<parx::store> store_of_job() {
    const std::lock_guard lock(mutex_);
    return options_.job_store;
  }

  [[nodiscard]] static link_key wake_channel_key(int rank) noexcept {
    return {all_groups, rank, purpose::wake_up};
  }
  [[nodiscard]] descriptor connect_wake_channel(int rank, int peer, const peer_record& record) {
    descriptor socket = connect_to_memory(peer, record);
    if (!socket.valid()) return socket;
    const auto greeting = hello(wake_channel_key(rank), options_.rank, record);
    if (::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof greeting)) {
      throw link_lost(peer, formatted("it does not accept the hello: {}", errno_text(errno)));
    }
    return socket;
  }

  [[nodiscard]] std::vector<peer_record> read_records(parx::store& job_store,
                                                      const deadline& limit) const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < options_.world_size; ++rank) keys.push_back(record_key(rank));
    std::vector<peer_record> records;
    for (const std::string& text : job_store.multi_get(keys, limit)) {
      records.push_back(peer_record::from_text(text));
    }
    return records;
  }

  /// Throws parx::error where the network that PARX_TRANSPORT names cannot be used.
  void open_network() {
    const std::string wanted = wanted_transport(options_.env);
    const network_maker make = network_makers::instance().find(wanted);
    if (make == nullptr) return;
    std::string interface;
    for (const auto& each : interface_addresses()) {
      if (each.address == own_.address) interface = each.name;
    }
    network_ = make({.rank = options_.rank,
                     .challenge = own_.challenge,
                     .own_interface = interface,
                     .env = options_.env,
                     .tag = [this](const link_hello& hello,
                                   std::string_view challenge) { return tag_of(hello, challenge); },
                     .wake = [this](std::uint64_t group) { sleepers_.wake(group); }});
    own_.network_name = wanted + ' ' + network_->version();
    own_.network_address = network_->address();
  }
  /// As the proof of a hello: only a rank of this job can compute it.
  [[nodiscard]] std::uint64_t tag_of(const link_hello& hello, std::string_view challenge) const {
    std::uint64_t tag = 0;
    if (options_.key) {
      const mac proof = proof_of_hello(*options_.key, hello, challenge);
      std::memcpy(&tag, proof.data(), sizeof tag);
    } else {
      std::memcpy(&tag, token_.data(), sizeof tag);
    }
    return tag;
  }

  /// Where Yama (ptrace_scope 1) lets only ancestors read this process's memory, allows it for all
  /// processes of the same user.
  static void permit_reading() noexcept {
    if (read_line("/proc/sys/kernel/yama/ptrace_scope") == "1") {
      ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    }
  }

  void watch_for_abort(std::unique_ptr<store_watch> next) {
    abort_descriptor_.store(next->descriptor(), std::memory_order_release);
    abort_watches_.push_back(std::move(next));
  }
  /// Connects again, since the connection may have broken although the store is alive.
  [[nodiscard]] bool watches_again() {
    if (abort_watches_.size() == most_watches) return false;
    try {
      watch_for_abort(
          options_.job_store->watch(first_failure_key, deadline::after(reconnect_patience)));
      log(log_level::info, "the connection to {} broke and was made again",
          options_.job_store->describe());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  [[nodiscard]] failure_record read_abort_reason() {
    try {
      const auto text = abort_watches_.back()->value(deadline::after(std::chrono::seconds(2)));
      if (auto record = failure_from_text(text)) return std::move(*record);
      return {.text = "another rank has failed, and its record cannot be understood"};
    } catch (const std::exception& failure) {
      return {.text = formatted("another rank has failed, but its record cannot be read: {}",
                                failure.what())};
    }
  }

  endpoint_options options_;
  bool single_copy_ = env_flag(options_.env, "PARX_SINGLE_COPY").value_or(true);
  peer_record own_;
  detail::arrivals arrivals_;
  notices notices_;
  token_text token_{};
  /// The last one is current. Others stay open: a thread may be about to poll their descriptors.
  std::vector<std::unique_ptr<store_watch>> abort_watches_;
  std::atomic<int> abort_descriptor_{-1};

  std::mutex wake_channels_mutex_;
  /// By rank; null until opened, then kept until this process leaves.
  std::vector<std::unique_ptr<wake_channel>> wake_channels_ =
      std::vector<std::unique_ptr<wake_channel>>(static_cast<std::size_t>(options_.world_size));
  detail::sleepers sleepers_;
  std::unique_ptr<network> network_;

  std::mutex placements_mutex_;
  std::vector<placement> placements_;
  std::mutex mutex_;
  /// By rank; is_known() once the store has returned it.
  std::vector<peer_record> records_ =
      std::vector<peer_record>(static_cast<std::size_t>(options_.world_size));
  /// Hellos sent to each peer, by its challenge.
  std::map<std::string, std::uint64_t> hellos_;
  std::optional<failure_record> abort_reason_;
  std::atomic<bool> abort_known_{false};
  std::atomic<clock::rep> last_unanswered_{0};  ///< when the store last did not answer; 0: never
};

}  // namespace parx::detail
