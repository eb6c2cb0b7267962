// All differentiable operations.
#pragma once

#include <parx/autograd/ops/activation.hpp>
#include <parx/autograd/ops/across.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/attention.hpp>
#include <parx/autograd/ops/average_pool.hpp>
#include <parx/autograd/ops/batch_norm.hpp>
#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/concat.hpp>
#include <parx/autograd/ops/conv2d.hpp>
#include <parx/autograd/ops/dropout.hpp>
#include <parx/autograd/ops/embedding.hpp>
#include <parx/autograd/ops/gated.hpp>
#include <parx/autograd/ops/layer_norm.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/linear_cross_entropy.hpp>
#include <parx/autograd/ops/loss.hpp>
#include <parx/autograd/ops/matmul.hpp>
#include <parx/autograd/ops/pointer.hpp>
#include <parx/autograd/ops/pool.hpp>
#include <parx/autograd/ops/reduce.hpp>
#include <parx/autograd/ops/rms_norm.hpp>
#include <parx/autograd/ops/rotary.hpp>
#include <parx/autograd/ops/softmax.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/autograd/ops/vocabulary.hpp>
