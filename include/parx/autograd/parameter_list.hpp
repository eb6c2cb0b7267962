// parameter_list: the parameters of a model as a vector, for an optimizer.
//
// It also says where the program asked for them, and whether they are a rank's share of a model:
// the stage of a pipeline may have no parameters (pooling, an activation), a whole model without
// any has usually left out its layers.
#pragma once

#include <memory>
#include <vector>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

enum class parameter_scope {
  model,  ///< all of a model
  share,  ///< those of one rank: maybe none
};

/// The axes (gradient_axis.hpp) over which a norm of the whole model is summed, in the order of the
/// parameters' places; a rank without parameters takes part in these sums too. An axis ends with
/// its wrapper.
using share_axes = std::vector<std::weak_ptr<gradient_axis>>;

template <typename T>
struct parameter_list : std::vector<parameter<T>> {
  explicit parameter_list(call_site asked_at, parameter_scope of = parameter_scope::model)
      : site(asked_at), scope(of) {}

  call_site site;
  parameter_scope scope;
  share_axes axes{};
};

}  // namespace parx
