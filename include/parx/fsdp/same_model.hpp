// require_same_model: all ranks of a group wrap one model, and wrap it alike.
#pragma once

#include <string>
#include <string_view>

#include <parx/comm/process_group.hpp>
#include <parx/comm/rank_comparison.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

/// Collective. `text` lists a rank's model and options, one a line. Throws errc::mismatch on all
/// ranks, with the lines that differ, where the texts do; `who` wraps the model.
inline void require_same_model(process_group& group, const std::string& text, std::string_view who,
                               call_site site) {
  if (const auto found = compare_over(group, text, site)) {
    throw_error(errc::mismatch,
                "{} on group \"{}\": rank {} differs from rank 0. All ranks must build the same "
                "model, and wrap it alike:{}",
                who, group.name(), found->rank, found->text);
  }
}

}  // namespace parx::detail
