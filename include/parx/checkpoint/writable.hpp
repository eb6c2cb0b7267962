// require_writable: whether a file can be written, asked before the hours that make its contents.
#pragma once

#include <unistd.h>

#include <string>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/atomic_file.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI {

/// Collective. Throws errc::io on every rank unless rank 0 can write to `path`.
inline void require_writable(process_group& group, const std::string& path,
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
