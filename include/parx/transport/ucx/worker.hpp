// ucx_worker: UCX's context and the one worker of a process, and UCX's calls on them.
//
// One worker serves all groups: an idle progress() costs an epoll_wait(2) over TCP, and each worker
// takes megabytes. Threads: one at a time; the owner has a mutex.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include <parx/transport/ucx/library.hpp>
#include <parx/transport/ucx/settings.hpp>

namespace parx::inline PARX_ABI::detail {

class ucx_worker {
 public:
  /// Called from progress() for each message: see ucp_am_recv_callback_t. `self` is the worker's
  /// owner.
  using on_message = ucp_am_recv_callback_t;
  static constexpr unsigned message_id = 7;

  /// Throws parx::error where UCX cannot be loaded or finds no transport.
  ucx_worker(const ucx_settings& settings, on_message receive, void* owner) {
    try {
      open_context(settings);
      open_worker(receive, owner);
    } catch (...) {
      close();
      throw;
    }
  }
  ~ucx_worker() { close(); }
  ucx_worker(const ucx_worker&) = delete;
  ucx_worker& operator=(const ucx_worker&) = delete;

  [[nodiscard]] const ucx_library& ucx() const noexcept { return ucx_; }
  [[nodiscard]] ucp_worker_h handle() const noexcept { return worker_; }
  /// Becomes readable when progress() has something to do, once arm() has returned true.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  /// True where something was moved.
  bool progress() const noexcept { return ucx_.worker_progress(worker_) != 0; }
  /// False where something is there already.
  [[nodiscard]] bool arm() const noexcept { return ucx_.worker_arm(worker_) == UCS_OK; }

  /// How other processes reach this worker: opaque bytes.
  [[nodiscard]] std::string address(bool also_inside_host) const {
    ucp_worker_attr_t asked{};
    asked.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    asked.address_flags = also_inside_host ? 0 : UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    ucx_.require_ok(ucx_.worker_query(worker_, &asked), "has no address for this process");
    std::string bytes(reinterpret_cast<const char*>(asked.address), asked.address_length);
    ucx_.worker_release_address(worker_, asked.address);
    return bytes;
  }

 private:
  /// Connections that a rank may well have; with a larger number UCX leaves reliable connections.
  static constexpr std::size_t usual_endpoints = 64;

  void open_context(const ucx_settings& settings) {
    ucp_config_t* config = nullptr;
    ucx_.require_ok(ucx_.config_read(nullptr, nullptr, &config), "cannot read its settings");
    for (const auto& [name, value] : settings) {
      const auto status = ucx_.config_modify(config, name.c_str(), value.c_str());
      if (status == UCS_OK) continue;
      ucx_.config_release(config);
      throw_error(errc::io, "UCX does not accept UCX_{}={}: {}", name, value,
                  ucx_.status_string(status));
    }
    ucp_params_t wanted{};
    wanted.field_mask =
        UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
    wanted.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    wanted.estimated_num_eps = usual_endpoints;
    wanted.name = "parx";
    const auto made = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &wanted, config, &context_);
    ucx_.config_release(config);
    ucx_.require_ok(
        made,
        "cannot start (ucx_info -d lists the transports and devices of this host, which "
        "UCX_TLS and UCX_NET_DEVICES choose from)");
  }
  void open_worker(on_message receive, void* owner) {
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucx_.require_ok(ucx_.worker_create(context_, &how, &worker_), "cannot make a worker");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = receive;
    handler.arg = owner;
    ucx_.require_ok(ucx_.worker_set_am_recv_handler(worker_, &handler), "takes no handler");
    ucx_.require_ok(ucx_.worker_get_efd(worker_, &descriptor_),
                    "has no descriptor to sleep on with these transports");
  }
  void close() noexcept {
    if (worker_ != nullptr) ucx_.worker_destroy(worker_);
    if (context_ != nullptr) ucx_.cleanup(context_);
  }

  const ucx_library& ucx_ = ucx_library::instance();
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace parx::detail
