// stage_axes: the axes of ranks on which the gradients of a pipeline's stages lie.
#pragma once

#include <memory>
#include <utility>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/reduction/group_axis.hpp>

namespace parx::inline PARX_ABI {

/// Which copies of a parameter this rank has: the first of each kind counts it.
struct stage_counts {
  bool layer;  ///< of the ranks among which layers are cut
  bool shard;  ///< of the data-parallel ranks
  bool stage;  ///< of the stages that share it
};

class stage_axes {
 public:
  stage_axes() = default;
  /// `layers` are the places of a parameter of the model, as parallelize() has noted them; `shards`
  /// the data-parallel ranks if stages are sharded over them, else null. Borrowed.
  stage_axes(gradient_places layers, process_group* shards, process_group& stages)
      : layers_(std::move(layers)) {
    if (shards != nullptr && shards->size() > 1) shards_ = std::make_shared<group_axis>(*shards);
    if (stages.size() > 1) stages_ = std::make_shared<group_axis>(stages);
  }

  [[nodiscard]] gradient_places places(const stage_counts& counts) const {
    gradient_places found = layers_;
    for (gradient_place& each : found) each.counts = counts.layer;
    if (shards_) found.push_back({shards_, counts.shard});
    if (stages_) found.push_back({stages_, counts.stage});
    return found;
  }
  [[nodiscard]] share_axes all() const {
    share_axes axes;
    for (const gradient_place& each : places({})) axes.push_back(each.axis);
    return axes;
  }

 private:
  gradient_places layers_;
  std::shared_ptr<gradient_axis> shards_, stages_;
};

}  // namespace parx
