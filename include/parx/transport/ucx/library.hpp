// ucx_library: the functions of libucp, loaded when a job first asks for UCX.
//
// Not linked: libucs installs signal handlers and memory hooks when it is loaded, and a context
// costs milliseconds, which only a program that uses UCX should pay. The library stays loaded until
// the process ends, because its hooks do. What UCX should do otherwise than by default is said
// through its own variables before that; those that the user has set remain.
#pragma once

#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <type_traits>

#include <parx/core/error.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

struct ucx_library {
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_get_version_string) get_version_string = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_query) worker_query = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_ep_print_info) ep_print_info = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx = nullptr;
  decltype(&::ucp_am_data_release) am_data_release = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;

  /// Throws errc::io where the library cannot be loaded.
  [[nodiscard]] static const ucx_library& instance() {
    static const ucx_library loaded;
    return loaded;
  }
  /// Throws errc::io for a status that is no success.
  void require_ok(ucs_status_t status, const char* what) const {
    if (status != UCS_OK) throw_error(errc::io, "UCX {}: {}", what, status_string(status));
  }

 private:
  static constexpr const char* file = "libucp.so.0";

  ucx_library() {
    ask_for("UCX_ERROR_SIGNALS", "");         // the program's own handlers stay
    ask_for("UCX_LOG_FILE", "stderr");        // by default UCX writes into the program's output
    if (uses_tcp(std::getenv("UCX_TLS"))) {   // else UCX would warn of unused variables
      ask_for("UCX_TCP_TX_SEG_SIZE", "64k");  // by default 8k: as many times the system calls
      // A connection that was cut is found by the kernel, in some 3 s instead of 28.
      ask_for("UCX_TCP_KEEPIDLE", "1s");
      ask_for("UCX_TCP_KEEPINTVL", "1s");
      ask_for("UCX_TCP_KEEPCNT", "3");
    }
    void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      throw_error(errc::io,
                  "PARX_TRANSPORT=ucx: {} cannot be loaded ({}); install UCX (Debian: libucx0), or "
                  "do without PARX_TRANSPORT",
                  file, why != nullptr ? why : "the reason is unknown");
    }
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          ::dlsym(library, name));  // also in libucs, on which it depends
      if (function == nullptr) {
        throw_error(errc::io, "PARX_TRANSPORT=ucx: {} has no {}; parx needs UCX 1.11 or later",
                    file, name);
      }
    };
    find("ucp_config_read", config_read);
    find("ucp_config_modify", config_modify);
    find("ucp_config_release", config_release);
    find("ucp_init_version", init_version);
    find("ucp_cleanup", cleanup);
    find("ucp_get_version_string", get_version_string);
    find("ucp_worker_create", worker_create);
    find("ucp_worker_destroy", worker_destroy);
    find("ucp_worker_query", worker_query);
    find("ucp_worker_release_address", worker_release_address);
    find("ucp_worker_get_efd", worker_get_efd);
    find("ucp_worker_arm", worker_arm);
    find("ucp_worker_progress", worker_progress);
    find("ucp_worker_set_am_recv_handler", worker_set_am_recv_handler);
    find("ucp_ep_create", ep_create);
    find("ucp_ep_close_nbx", ep_close_nbx);
    find("ucp_ep_print_info", ep_print_info);
    find("ucp_am_send_nbx", am_send_nbx);
    find("ucp_am_recv_data_nbx", am_recv_data_nbx);
    find("ucp_am_data_release", am_data_release);
    find("ucp_request_check_status", request_check_status);
    find("ucp_request_free", request_free);
    find("ucs_status_string", status_string);
  }
  [[nodiscard]] static bool uses_tcp(const char* allowed) {
    if (allowed == nullptr) return true;
    const auto transports = split_at(allowed, ',');
    return std::find_if(transports.begin(), transports.end(), [](std::string_view each) {
             return each == "tcp" || each == "all" || each.starts_with('^');
           }) != transports.end();
  }
  static void ask_for(const char* name, const char* value) { ::setenv(name, value, 0); }
};

}  // namespace parx::detail
