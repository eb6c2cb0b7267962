// endpoint_listener: listening at a job's endpoint, where that is an address of this host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/parxrun/nodes/job_nodes.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::detail {

/// Whether this host has one of the addresses of `host`.
[[nodiscard]] bool is_own_address(const std::string& host);

/// "; there listens process 71 of this host (nc -l 29400)" where `host` is this one and that is
/// known, else empty.
[[nodiscard]] std::string listener_text(const std::string& host, std::uint16_t port);

/// A socket that listens there; not valid where another node, or another parxrun of this one, is to
/// listen. Throws usage_error where this node is to, and the endpoint is no address of it; errc::io
/// where it cannot, for instance since a process has the port without listening there.
[[nodiscard]] descriptor listen_at_endpoint(const job_nodes& nodes, const environment& env);

}  // namespace parx::detail
