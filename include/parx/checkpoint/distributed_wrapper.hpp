// distributed_wrapper: a wrapper of a model over ranks: parx::parallel, ddp, fsdp.
// save.hpp saves and loads it. It names one of the bases below and has
//
//   process_group& job_group();          // the ranks that save and load together
//   module();                            // this rank's part of the model, for save_state
//   void before_save(site);              // called on all ranks before anything is saved
//   void before_write();                 // called before parameters are overwritten
//   std::string reason_to_stop_at_loss();  // why a lost rank's state is gone; empty if others have
//                                          // all of it
#pragma once

#include <concepts>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// module() has a part of each parameter. A function in the namespace of the wrapper says which:
///   sharding sharded_over(wrapper);
struct distributed_wrapper {};
/// module() has the parameters of some stages, and is a shared_state (state.hpp) that knows the
/// names of the others; whole_model() has the names and shapes of all.
struct pipelined_wrapper : distributed_wrapper {};
/// module() is the whole model, on each rank, so that rank 0 writes it. What its gradient hook
/// keeps besides is in hook_state(), a std::vector<hook_memory>.
struct whole_wrapper : distributed_wrapper {};

template <typename Wrapper>
concept distributed = std::derived_from<Wrapper, distributed_wrapper>;

}  // namespace parx
