// distributed_wrapper: a wrapper of a model of which each rank keeps a part: parx::parallel, fsdp,
// pipeline. distributed_state.hpp saves and loads it. It names the base and has
//
//   process_group& job_group();      // the ranks that save and load together
//   module();                        // this rank's part of the model, for save_state
//   void before_save(site);          // called on all ranks before anything is saved
//   void require_resumable(site);    // throws if an optimizer and module() are not the whole state
//   void before_write();             // called before parameters are overwritten
//   static constexpr std::string_view keeps;  // "an fsdp keeps a shard of the parameters"
//   sharding sharded_over(wrapper);  // which rank writes what; a function in its namespace
#pragma once

#include <concepts>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// module() has a part of each parameter.
struct distributed_wrapper {};
/// module() has the parameters of some stages, and is a shared_state (state.hpp) that knows the
/// names of the others; whole_model() has the names and shapes of all.
struct staged_wrapper : distributed_wrapper {};

template <typename Wrapper>
concept distributed = std::derived_from<Wrapper, distributed_wrapper>;

}  // namespace parx
