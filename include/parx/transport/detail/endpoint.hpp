// endpoint: what the links of all groups of one process share: the job, the arrivals, the wake
// channels to the processes of this host, and the proofs by which ranks recognize each other.
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
#include <bit>
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
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/abort_watch.hpp>
#include <parx/transport/detail/address.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/incoming_connections.hpp>
#include <parx/transport/detail/interfaces.hpp>
#include <parx/transport/detail/link_proof.hpp>
#include <parx/transport/detail/network.hpp>
#include <parx/transport/detail/peer_record.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/sleeping_groups.hpp>
#include <parx/transport/detail/sockets.hpp>
#include <parx/transport/detail/wake_channel.hpp>
#include <parx/transport/job.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

/// What a rank's process is told about its job.
struct endpoint_options {
  std::shared_ptr<parx::store> job_store;  ///< prefixed: holds the keys of this job only
  std::string store_host;                  ///< this rank publishes its address on the route to it
  store_process kept_by = {};              ///< that keeps that store
  int rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  bool may_spin = false;
  environment env;
  std::optional<job_key> key = std::nullopt;  ///< where the job has a secret
  /// After which a host is taken for lost of which there is no connection that the kernel watches.
  std::chrono::milliseconds longest_silence = detail::longest_silence;
};

/// The fields that are known before listening. Throws usage_error for a wrong PARX_TRANSPORT or
/// PARX_STREAMS.
[[nodiscard, gnu::cold]] inline peer_record describe_self(const endpoint_options& options) {
  const transport_kind& wanted = wanted_transport(options.env);
  if (!wanted.header.empty() &&
      network_makers::instance().find(std::string(wanted.name)) == nullptr) {
    throw_usage(
        "PARX_TRANSPORT={}: this program was compiled without it; include <{}> in one of its "
        "files (needs {})",
        wanted.name, wanted.header, wanted.needs);
  }
  if (!wanted.encrypts && options.key && options.key->encrypts()) {
    throw_usage("PARX_TRANSPORT={} with PARX_TLS=1: it does not encrypt; give up one of the two",
                wanted.name);
  }
  peer_record self;
  self.host = host_name();
  self.boot_id = read_line("/proc/sys/kernel/random/boot_id");
  self.address = choose_address(options.env, options.store_host,
                                options.local_world_size < options.world_size);
  self.network =
      read_link("/proc/self/ns/net") + env_string(options.env, "PARX_HOST_ID").value_or("");
  if (wanted.shares_memory && shared_memory::can_be_had()) self.memory = "parx-" + random_hex();
  self.pid = ::getpid();
  static constexpr int most_streams = 64;
  self.streams = env_number<int>(options.env, "PARX_STREAMS").value_or(1);
  if (self.streams < 1 || self.streams > most_streams) {
    throw_usage("PARX_STREAMS=\"{}\" is not a number of connections to a peer from 1 to {}",
                self.streams, most_streams);
  }
  return self;
}

class endpoint {
 public:
  /// Starts to listen and publishes this rank's record. Throws parx::error where that fails; the
  /// store must answer before `limit`, by default within its timeout.
  [[gnu::cold]] explicit endpoint(endpoint_options options, std::optional<deadline> limit = {})
      : options_(std::move(options)),
        own_(describe_self(options_)),
        job_(new parx::job({.store = options_.job_store,
                            .rank = options_.rank,
                            .world_size = options_.world_size,
                            .may_spin = options_.may_spin,
                            .loss = env_string(options_.env, "PARX_AGENT") ? store_loss::is_borne
                                                                           : store_loss::ends_job,
                            .kept_by = options_.kept_by},
                           limit)),
        incoming_(own_.address, own_.memory) {
    raise_descriptor_limit();
    const auto store = std::exchange(options_.job_store, nullptr);
    const std::string agreed = store->compare_set("token", "", random_hex(), limit);
    if (agreed.size() != token_.size()) {
      throw_error(errc::protocol, "the job's token in the store has {} bytes instead of {}",
                  agreed.size(), token_.size());
    }
    std::copy_n(agreed.begin(), token_.size(), token_.begin());
    own_.challenge = random_hex();
    open_network();
    incoming_.accept_with(agreed, options_.key, own_.challenge);
    own_.port = incoming_.port();
    own_.probe = address_of(token_.data());
    if (!incoming_.shares_memory()) own_.memory.clear();
    permit_reading();
    store->set(record_key(options_.rank), own_.to_text(), limit);
  }

  ~endpoint() { job_->publish_exit(); }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  [[nodiscard]] static std::string record_key(int rank) { return peer_directory::key(rank); }
  [[nodiscard]] const endpoint_options& options() const noexcept { return options_; }
  [[nodiscard]] const peer_record& own() const noexcept { return own_; }
  [[nodiscard]] const std::shared_ptr<parx::job>& job() const noexcept { return job_; }
  [[nodiscard]] detail::incoming_connections& incoming() noexcept { return incoming_; }
  /// What links to other hosts use in place of TCP; null where they use TCP.
  [[nodiscard]] network* other_network() noexcept { return network_.get(); }

  /// The hello that the connecting side of a link sends first, to the rank of `peer`.
  [[nodiscard, gnu::cold]] link_hello hello(const link_key& key, int from,
                                            const peer_record& peer) {
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
    }
    greeting.proof = proof_of(greeting, peer.challenge);
    return greeting;
  }
  /// The proof that the accepting peer sends first over TCP; none in a job without a secret.
  [[nodiscard]] std::optional<mac> welcome_to(const link_hello& greeting) const {
    if (!options_.key) return std::nullopt;
    return proof_of_welcome(*options_.key, greeting);
  }

  /// Whether the job has a secret, so that ranks prove to each other that they know it.
  [[nodiscard]] bool has_key() const noexcept { return options_.key.has_value(); }
  /// Whether TCP connections use TLS.
  [[nodiscard]] bool encrypts() const noexcept { return options_.key && options_.key->encrypts(); }
  /// The key of that TLS, bound to the connection by the accepting rank's proof.
  [[nodiscard]] mac tls_key(const mac& welcome) const {
    return options_.key->sign("parx link tls", {job_key::view(welcome)});
  }

  /// The wake_channel to the process of `rank` in the job, on this host; all groups share it. Null
  /// while it is being opened. `peer` is that rank's number in the calling group, for messages.
  /// Throws link_lost.
  [[nodiscard, gnu::cold]] wake_channel* wake_channel_with(int rank, int peer,
                                                           const peer_record& record) {
    const std::lock_guard lock(wake_channels_mutex_);
    auto& known = wake_channels_[static_cast<std::size_t>(rank)];
    if (known != nullptr) return known.get();
    auto socket = connects_to(rank) ? connect_wake_channel(rank, peer, record)
                                    : incoming_.claim(wake_channel_key(rank)).socket;
    if (!socket.valid()) return nullptr;
    known.reset(new wake_channel(std::move(socket)));
    return known.get();
  }
  /// Of two ranks that share memory the one with the higher number in the job connects.
  [[nodiscard]] bool connects_to(int rank) const noexcept { return options_.rank > rank; }
  [[nodiscard]] detail::sleeping_groups& sleeping_groups() noexcept { return sleeping_groups_; }

  /// Connects to the Unix socket at which a rank of this host accepts shared memory; not valid
  /// while its backlog is full. Throws link_lost, and parx::error where no socket can be made.
  [[nodiscard, gnu::cold]] descriptor connect_to_memory(int peer, const peer_record& record) const {
    const auto name = socket_address::abstract(record.memory);
    descriptor socket = stream_socket(AF_UNIX);
    if (!socket.valid()) {
      throw_error(errc::io, "no socket can be made for a connection to rank {}: {}", peer,
                  shortage_text(errno));
    }
    if (::connect(socket.get(), name.data(), name.length) == 0) {
      if (incoming_.is_of_this_user(socket.get())) return socket;
      throw link_lost(peer, "the socket at which it shares memory belongs to another user");
    }
    if (errno == EAGAIN || errno == EINTR) return {};
    if (errno == ECONNREFUSED) throw link_lost(peer, "it has ended", link_end::closed);
    throw link_lost(peer, formatted("it does not share memory any more: {}", errno_text(errno)));
  }
  /// Sends the hello over such a connection and passes the memory with it. Throws link_lost.
  [[gnu::cold]] void pass_memory(const descriptor& socket, const descriptor& memory,
                                 const link_key& key, int from, const peer_record& peer) {
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

 private:
  using token_text = std::array<char, 32>;

  [[nodiscard]] static link_key wake_channel_key(int rank) noexcept {
    return {all_groups, rank, purpose::wake_up};
  }
  [[nodiscard, gnu::cold]] descriptor connect_wake_channel(int rank, int peer,
                                                           const peer_record& record) {
    descriptor socket = connect_to_memory(peer, record);
    if (!socket.valid()) return socket;
    const auto greeting = hello(wake_channel_key(rank), options_.rank, record);
    if (::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof greeting)) {
      throw link_lost(peer, formatted("it does not accept the hello: {}", errno_text(errno)));
    }
    return socket;
  }

  /// Throws parx::error where the network that PARX_TRANSPORT names cannot be used.
  [[gnu::cold]] void open_network() {
    const std::string wanted(wanted_transport(options_.env).name);
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
                     .wake = [this](std::uint64_t group) { sleeping_groups_.wake(group); },
                     .lost = [this] { job_->report_loss(); }});
    own_.network_name = wanted + ' ' + network_->version();
    own_.network_address = network_->address();
  }
  /// As the proof of a hello: only a rank of this job can compute it.
  [[nodiscard]] std::uint64_t tag_of(const link_hello& hello, std::string_view challenge) const {
    std::uint64_t tag = 0;
    std::memcpy(&tag, proof_of(hello, challenge).data(), sizeof tag);
    return tag;
  }
  [[nodiscard]] mac proof_of(const link_hello& hello, std::string_view challenge) const {
    return options_.key ? proof_of_hello(*options_.key, hello, challenge)
                        : std::bit_cast<mac>(token_);
  }

  /// Where Yama (ptrace_scope 1) lets only ancestors read this process's memory, allows it for all
  /// processes of the same user.
  static void permit_reading() noexcept {
    if (read_line("/proc/sys/kernel/yama/ptrace_scope") == "1") {
      ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    }
  }

  endpoint_options options_;
  bool single_copy_ = env_flag(options_.env, "PARX_SINGLE_COPY").value_or(true);
  peer_record own_;
  std::shared_ptr<parx::job> job_;
  detail::incoming_connections incoming_;
  token_text token_{};

  std::mutex wake_channels_mutex_;
  /// By rank; null until opened, then kept until this process leaves.
  std::vector<std::unique_ptr<wake_channel>> wake_channels_ =
      std::vector<std::unique_ptr<wake_channel>>(static_cast<std::size_t>(options_.world_size));
  detail::sleeping_groups sleeping_groups_;
  std::unique_ptr<network> network_;

  std::mutex mutex_;
  /// Hellos sent to each peer, by its challenge.
  std::map<std::string, std::uint64_t> hellos_;
};

}  // namespace parx::detail
