// tied_stages: the parameters that stages of several ranks use (tied embeddings), and the groups
// over which their gradients are summed: the ranks that use one, with their data-parallel ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/shard_files.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/nn/random_layer.hpp>
#include <parx/reduction/reduction_group.hpp>
#include <parx/pipeline/stage_submodule.hpp>

namespace parx::inline PARX_ABI {

/// Throws usage_error where stages share a layer that draws random numbers: the cut would decide
/// which use of it gets which of them. `parts` are those of each stage.
template <typename Model>
void require_random_layers_apart(Model& model, const std::vector<std::vector<std::string>>& parts,
                                 call_site site) {
  std::map<const nn::random_layer*, std::size_t> first_users;
  model.for_each_module([&](const std::string& path, const nn::module_view& layer) {
    if (layer.noise == nullptr || !layer.noise->draws()) return;
    for (std::size_t stage = 0; stage < parts.size(); ++stage) {
      if (!is_within(path, parts[stage])) continue;
      const std::size_t first = first_users.emplace(layer.noise, stage).first->second;
      require(
          first == stage,
          "pipeline at {}: \"{}\" draws random numbers, and is in stages {} and {}: its numbers "
          "would depend on how the model is cut. Give each block a dropout of its own, beside "
          "the weights that blocks share, or set its probability to 0",
          site, path, first, stage);
    }
  });
}

class tied_stages {
 public:
  /// Notes which ranks of the pipeline use a parameter. Returns whether there are several.
  bool add(const std::string& path, std::vector<int> users) {
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    if (users.size() < 2) return false;
    users_[path] = std::move(users);
    return true;
  }
  /// The gradient of a parameter of several ranks is summed over a group: returns its name.
  [[nodiscard]] std::string summing_group(const std::string& path) {
    const std::vector<int>& users = users_.at(path);
    std::string name = formatted("stages of ranks {}", joined_text(users, "+"));
    users_by_name_[name] = users;
    return name;
  }

  /// Collective. The groups of the parameters that this rank shares with others. `data` are its
  /// data-parallel ranks. They live as long as this object.
  [[nodiscard]] std::vector<reduction_group> groups(process_group& pipeline, process_group& data,
                                                    process_group& job, call_site site) {
    if (users_by_name_.empty()) return {};
    require(data.size() == 1 || &job != &pipeline,
            "pipeline at {}: \"{}\" is tied over stages with {} data-parallel ranks each: name the "
            "group of all ranks in pipeline_options::job, mesh.all()",
            site, users_.begin()->first, data.size());
    // all: for each rank of the pipeline, the job ranks of its data-parallel group.
    const auto replicas = static_cast<std::size_t>(data.size());
    const std::array<int, 1> mine{job.rank()};
    std::vector<int> beside(replicas), all(replicas * static_cast<std::size_t>(pipeline.size()));
    all_gather(data, mine, beside, {}, site);
    all_gather(pipeline, beside, all, {}, site);
    std::vector<reduction_group> made;
    for (const auto& [name, users] : users_by_name_) {
      if (!std::binary_search(users.begin(), users.end(), pipeline.rank())) continue;
      std::vector<int> members;
      for (const int user : users) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(replicas) * user;
        members.insert(members.end(), first, first + static_cast<std::ptrdiff_t>(replicas));
      }
      const auto group = groups_.emplace(name, job.subgroup(members, {.name = name}, site)).first;
      made.push_back({name, group->second});
    }
    return made;
  }

  [[nodiscard]] bool is_shared(const std::string& path) const { return users_.contains(path); }
  /// How many ranks use the parameter, and which of them `rank` is. `name` is its path, or that of
  /// its optimizer state, "path.exp_avg".
  [[nodiscard]] shard_place user_of(const std::string& name, int rank) const {
    for (const auto& [path, users] : users_) {
      if (!is_within(name, {path})) continue;
      const auto here = std::find(users.begin(), users.end(), rank);
      return {static_cast<std::size_t>(here - users.begin()), users.size()};
    }
    return {};
  }

 private:
  std::map<std::string, std::vector<int>> users_;          // ranks of the pipeline, by path
  std::map<std::string, std::vector<int>> users_by_name_;  // of the groups
  std::map<std::string, process_group> groups_;
};

}  // namespace parx
