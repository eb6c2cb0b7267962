// The compiled part of checkpoint, for parx/src.hpp.
#pragma once

#include <parx/checkpoint/detail/checkpoint_folder_impl.hpp>
#include <parx/checkpoint/detail/header_impl.hpp>
#include <parx/checkpoint/detail/input_file_impl.hpp>
#include <parx/checkpoint/detail/manager_impl.hpp>
#include <parx/checkpoint/detail/manifest_impl.hpp>
#include <parx/checkpoint/detail/output_file_impl.hpp>
#include <parx/checkpoint/detail/parts_impl.hpp>
#include <parx/checkpoint/detail/pretrained_impl.hpp>
#include <parx/checkpoint/detail/safetensors_impl.hpp>
#include <parx/checkpoint/detail/saved_checkpoint_impl.hpp>
#include <parx/checkpoint/detail/shard_files_impl.hpp>
#include <parx/checkpoint/detail/shards_impl.hpp>
#include <parx/checkpoint/detail/state_impl.hpp>
#include <parx/checkpoint/detail/whole_file_impl.hpp>
#include <parx/checkpoint/detail/write_together_impl.hpp>
#include <parx/checkpoint/instances.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/sgd.hpp>

namespace parx::inline PARX_ABI::detail {
PARX_CHECKPOINT_INSTANCES()
}  // namespace parx::detail
