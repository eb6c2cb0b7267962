// save0: rank 0 writes the model, and every rank learns whether it succeeded.
#pragma once

#include <unistd.h>

#include <concepts>
#include <string>
#include <type_traits>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI {

/// Collective. Rank 0 writes the model's parameters to `path` as safetensors, under a temporary
/// name first, so that an older file survives a failure. Every rank throws parx::error if that
/// fails (full disk, no permission); the group stays usable.
template <typename Model>
void save0(process_group& group, Model& model, const std::string& path,
           call_site site = call_site::current()) {
  detail::agree_on_rank0(&group, site, [&] { save_state(model, path, {}, site); });
}

/// For wrong arguments: a compile-time error that names the right ones.
template <typename Model>
  requires(!std::convertible_to<Model&, const process_group&>)
void save0(Model&, const std::string&, call_site = {}) {
  static_assert(std::is_void_v<Model>,
                "all ranks save together: save0(world, model, \"model.safetensors\")");
}
template <typename Model>
  requires(!std::convertible_to<Model&, const std::string&>)
void save0(process_group&, const std::string&, Model&, call_site = {}) {
  static_assert(std::is_void_v<Model>, "the order is save0(world, model, \"model.safetensors\")");
}

/// Collective. Throws on every rank unless rank 0 can write to `path`. Call it before training, so
/// that save0 does not fail after hours of it.
inline void check_writable0(process_group& group, const std::string& path,
                            call_site site = call_site::current()) {
  detail::agree_on_rank0(&group, site, [&] {
    const detail::temporary_file probe = detail::make_temporary(detail::file_target(path));
    if (!probe.file.valid()) {
      throw_error(errc::io,
                  "\"{}\" cannot be written: {}. Give a path in a folder that exists and that this "
                  "user may write to",
                  path, errno_text(probe.reason));
    }
    ::unlink(probe.name.c_str());
  });
}

}  // namespace parx
