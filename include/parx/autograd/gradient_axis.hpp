// gradient_axis: ranks that have different parts of a model's gradients, or copies of the same
// part, as what computes one number from all gradients sees them.
//
// What gives ranks different parts notes its axis on the parameters: parallelize() that of cut
// layers, an fsdp that of its shards, a pipeline that of its stages. A parameter may have several.
// optim::grad_norm, optim::clip_grad_norm and amp::grad_scaler read them, so that their
// results are those of the whole model in every layout. An abstract interface, because autograd and
// optim know no process groups.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

class gradient_axis {
 public:
  virtual ~gradient_axis() = default;
  /// Collective over the ranks of the axis: replaces each number by its sum over them. `site` is
  /// the line of the user's program, for errors. Throws parx::error where communication fails.
  virtual void add_up(std::span<std::int64_t> numbers, call_site site) = 0;
};

/// A parameter on an axis.
struct gradient_place {
  std::shared_ptr<gradient_axis> axis;
  /// Whether this rank counts its part in sums over the axis: of the ranks that have the same part,
  /// one does.
  bool counts = true;
};

/// The places of one parameter. Sums are taken over the first axis first. Empty where this rank has
/// all of the gradient.
using gradient_places = std::vector<gradient_place>;

}  // namespace parx
