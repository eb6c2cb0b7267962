// save0: rank 0 writes the model, and every rank learns whether that went well.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include <parx/checkpoint.hpp>
#include <parx/checkpoint/detail/atomic_file.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/descriptor.hpp>

namespace parx {

namespace detail {

/// Collective. Runs `act` on rank 0; where it throws, every rank throws, with rank 0's reason.
template <typename Act>
void on_rank0(process_group& group, call_site site, Act&& act) {
  std::string failure;
  errc code = errc::io;
  if (group.rank() == 0) {
    try {
      std::forward<Act>(act)();
    } catch (const error& reason) {
      failure = reason.what();
      code = reason.code_value();
    } catch (const std::exception& reason) {
      failure = reason.what();
    }
  }
  std::array<std::uint64_t, 2> outcome{failure.size(), static_cast<std::uint64_t>(code)};
  broadcast(group, outcome, {.root = 0}, site);
  if (outcome[0] == 0) return;
  failure.resize(outcome[0]);
  broadcast(group, failure, {.root = 0}, site);
  throw error(static_cast<errc>(outcome[1]), failure);
}

}  // namespace detail

/// Collective. Rank 0 writes the model's parameters to `path` as safetensors: to a temporary name first,
/// so that an older file survives a failure. Every rank throws parx::error where that fails (full disk,
/// no permission); the group stays usable.
template <typename Model>
void save0(process_group& group, Model& model, const std::string& path,
           call_site site = call_site::current()) {
  detail::on_rank0(group, site, [&] { save_state(model, path); });
}

/// Collective. Throws on every rank unless rank 0 can write to `path`: call it before training, not
/// after hours of it.
inline void check_writable0(process_group& group, const std::string& path,
                            call_site site = call_site::current()) {
  detail::on_rank0(group, site, [&] {
    const std::string probe = fmt::format("{}.probe.{}", detail::file_target(path), ::getpid());
    const descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.valid()) {
      throw_error(errc::io, "the model cannot be saved as \"{}\": {}. Give a path in a folder that exists "
                            "and that this user may write to", path, errno_text(errno));
    }
    ::unlink(probe.c_str());
  });
}

}  // namespace parx
