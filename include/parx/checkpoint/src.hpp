// The definitions of checkpoint, for parx/src.hpp.
#pragma once

#include <parx/checkpoint/detail/atomic_file_impl.hpp>
#include <parx/checkpoint/detail/checkpoint_folder_impl.hpp>
#include <parx/checkpoint/detail/header_impl.hpp>
#include <parx/checkpoint/detail/input_file_impl.hpp>
#include <parx/checkpoint/detail/manager_impl.hpp>
#include <parx/checkpoint/detail/manifest_impl.hpp>
#include <parx/checkpoint/detail/output_file_impl.hpp>
#include <parx/checkpoint/detail/safetensors_impl.hpp>
#include <parx/checkpoint/detail/shards_impl.hpp>
#include <parx/checkpoint/detail/state_impl.hpp>
#include <parx/checkpoint/detail/whole_file_impl.hpp>
#include <parx/checkpoint/detail/write_together_impl.hpp>
