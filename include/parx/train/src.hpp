// The compiled part of train, for parx/src.hpp.
#pragma once

#include <parx/train/detail/state_impl.hpp>
#include <parx/train/detail/trainer_base_impl.hpp>
