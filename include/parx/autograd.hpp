// The autograd chapter: variables, parameters, backward and the differentiable operations.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/autocast.hpp>
#include <parx/autograd/backward_options.hpp>
#include <parx/autograd/border.hpp>
#include <parx/autograd/checkpoint.hpp>
#include <parx/autograd/distributed_module.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/gradcheck.hpp>
#include <parx/autograd/instances.hpp>           // IWYU pragma: export
#include <parx/autograd/loss.hpp>
#include <parx/autograd/model_buffer.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/autograd/observer.hpp>
#include <parx/autograd/ops.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_handle.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/autograd/pinnable.hpp>
#include <parx/autograd/print.hpp>
#include <parx/autograd/split_backward.hpp>
#include <parx/autograd/variable.hpp>
