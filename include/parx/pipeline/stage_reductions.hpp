// stage_reductions: sums the gradients of this rank's stages over the data-parallel ranks.
//
// Each stage is in a ddp (or fsdp: stage_wrapper.hpp) of its own. Its sums begin with the stage's
// last backward, or with its REDUCE_GRAD in the table, and are waited for at the end of the step.
// Stages of a rank that share a parameter with each other, or have parameters that other ranks'
// stages use too, are in one ddp: so the ranks that share parameters run their sums in the same
// order, whatever the order of the stages on each.
// Threads: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/core/check.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/times.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/stage_submodule.hpp>
#include <parx/pipeline/stage_wrapper.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class stage_reductions {
 public:
  /// One stage of this rank, and the paths of its modules and parameters in the model.
  struct own_stage {
    int number;
    std::vector<std::string> parts;
  };

  /// Collective over `data` and the reduction groups of the options. is_tied(path) says whether
  /// other ranks use the parameter too. With `sharding`, stages are sharded over `data`. Model and
  /// groups are borrowed.
  stage_reductions(nn::any_module<T> model, const std::vector<own_stage>& stages,
                   process_group& data, const ddp_options& options,
                   const std::optional<fsdp_options>& sharding,
                   function_ref<bool(const std::string&)> is_tied, call_site site) {
    for (const own_stage& each : stages) {
      auto made = std::make_unique<unit>();
      made->stages = {each.number};
      made->parts = each.parts;
      made->counted = each.number;
      stage_submodule<T>(model, each.parts)
          .for_each_parameter([&](const std::string& path, auto& parameter) {
            made->is_tied |= is_tied(path);
            made->shared.push_back(is_tied(path) ? std::string() : path);
            made->parameters.push_back(parameter);
          });
      if (made->shared.empty()) continue;
      std::erase_if(units_, [&](const std::unique_ptr<unit>& before) {
        return made->takes_over(*before);
      });
      units_.push_back(std::move(made));
    }
    for (const auto& each : units_) each->trained_at_first = each->is_trained();
    // By their first stages: an order that is the same on all data-parallel ranks.
    std::sort(units_.begin(), units_.end(),
              [](const auto& a, const auto& b) { return a->stages < b->stages; });
    if (!sharding) groups_.push_back(&data);  // an fsdp reports the times of its own groups
    for (const reduction_group& each : options.reduction_groups) groups_.push_back(&each.group);
    for (const auto& each : units_) {
      ddp_options own = options;
      own.reduction_groups.clear();
      for (const reduction_group& group : options.reduction_groups) {
        const bool is_used = std::any_of(
            each->parameters.begin(), each->parameters.end(),
            [&](const auto& parameter) { return parameter.reduction_group() == group.name; });
        if (is_used) own.reduction_groups.push_back(group);
      }
      each->sums.reset(
          new stage_wrapper<T>(model, each->parts, data, std::move(own), sharding, site));
    }
  }

  /// `actions` are those of this rank.
  void begin_step(std::span<const stage_action> actions) {
    async_before_ = async_seconds();
    for (const auto& each : units_) {
      const auto count = [&actions, &each](auto is_meant) {
        return std::count_if(actions.begin(), actions.end(), [&](const stage_action& a) {
          return is_meant(a.kind) && each->has(a.stage);
        });
      };
      each->backwards_left = count(makes_weight_gradient);
      each->reductions_left =
          count([](stage_work kind) { return kind == stage_work::reduce_gradients; });
    }
  }
  /// Runs `forward` of the stage while the values of its parameters are gathered.
  void around_forward(int stage, function_ref<void()> forward) {
    unit* const of = find(stage);
    if (of == nullptr) return forward();
    of->sums->around_forward(forward);
  }
  /// Runs `backward`, which computes gradients of the stage's parameters, or none if the loss does
  /// not depend on them; starts the sums if it is the last one. `count` is the loss's.
  void around_backward(int stage, double count, function_ref<void()> backward) {
    unit* const of = find(stage);
    if (of == nullptr) return backward();
    const auto counted = [&, this] {
      // A frozen stage has nothing to sum, unless other ranks expect it to take part: those that
      // have another stage with the same parameter, which is trained in its other ones.
      if (!of->is_tied && !of->trained_at_first && !of->is_trained()) return backward();
      of->sums->count_pass(counts(stage) ? count : 0, backward);
    };
    if (--of->backwards_left == 0 && of->reductions_left == 0 && synchronising_) return counted();
    of->sums->without_sums(counted);
  }
  /// The REDUCE_GRAD of the stage.
  void reduce(int stage) {
    unit* const of = find(stage);
    if (of == nullptr) return;
    if (--of->reductions_left == 0 && of->backwards_left == 0 && synchronising_) {
      of->sums->reduce();
    }
  }
  /// Blocks until the sums that have begun are done.
  void finish() {
    for (const auto& each : units_) each->sums->finish();
    communication_ += async_seconds() - async_before_;
  }
  /// Whether backwards of this stage pass the loss's count to the ddp. Of several stages in one ddp
  /// only one does, since the ddp adds counts up.
  [[nodiscard]] bool counts(int stage) const {
    const unit* const of = find(stage);
    return of != nullptr && of->counted == stage;
  }

  /// Whether a forward of some stage here looks up rows of a table that is cut over `data`.
  [[nodiscard]] bool has_cut_tables() const {
    return std::any_of(units_.begin(), units_.end(),
                       [](const auto& each) { return each->sums->has_cut_tables(); });
  }
  [[nodiscard]] bool& synchronising() noexcept { return synchronising_; }
  /// Whether gradients leave this rank in every step, and a flag with them.
  [[nodiscard]] bool carries_flags() const noexcept { return carrier() != nullptr; }
  void raise_flag() noexcept { carrier()->sums->raise_flag(); }
  [[nodiscard]] bool flag_raised() const noexcept { return carrier()->sums->flag_raised(); }
  void broadcast_buffers(call_site site) {
    for (const auto& each : units_) {
      each->sums->for_each_wrapper([&](auto& wrapper) { wrapper.broadcast_buffers(site); });
    }
  }
  void before_write() {
    for (const auto& each : units_) each->sums->before_write();
  }
  /// How many ranks have the same shards as this one (several if stages are sharded within groups
  /// of the data-parallel ranks), and which of them this one is.
  [[nodiscard]] shard_place shard_replica() const {
    for (const auto& each : units_) {
      if (const auto found = each->sums->shard_replica()) return *found;
    }
    return {};
  }
  /// The parameters that this rank's optimizer updates.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    for (const auto& each : units_) each->sums->for_each_parameter(visitor);
  }
  void zero_grad() {
    for (const auto& each : units_) each->sums->zero_grad();
  }
  [[nodiscard]] reduction_times times() const noexcept {
    reduction_times all{.communication = communication_};
    for (const auto& each : units_) {
      each->sums->for_each_wrapper([&](auto& wrapper) { all.waited += wrapper.times().waited; });
      all.communication += each->sums->own_communication();
    }
    return all;
  }
  /// The sizes of all buckets of this rank.
  [[nodiscard]] std::vector<std::size_t> bucket_bytes() const {
    std::vector<std::size_t> all;
    for (const auto& each : units_) {
      each->sums->for_each_wrapper([&](auto& wrapper) {
        for (std::size_t i = 0; i < wrapper.bucket_count(); ++i) {
          all.push_back(wrapper.bucket_bytes(i));
        }
      });
    }
    return all;
  }

 private:
  struct unit {
    std::vector<int> stages{};
    std::vector<std::string> parts{};
    std::vector<std::string> shared{};  // parameters that no other unit may have; "" for tied ones
    std::vector<parameter<T>> parameters{};
    bool is_tied = false;  // other ranks have some of its parameters, too
    bool trained_at_first = true;
    int counted = -1;  // the stage that passes the loss's count
    std::ptrdiff_t backwards_left = 0, reductions_left = 0;
    std::unique_ptr<stage_wrapper<T>> sums;

    [[nodiscard]] bool has(int stage) const {
      return std::find(stages.begin(), stages.end(), stage) != stages.end();
    }
    /// Now: a layer may be frozen or unfrozen between steps.
    [[nodiscard]] bool is_trained() const {
      return std::any_of(parameters.begin(), parameters.end(),
                         [](const auto& each) { return each.requires_grad(); });
    }
    /// Merges `other` into this unit if they share a parameter. Returns whether they do.
    bool takes_over(unit& other) {
      const auto last = other.shared.end();
      if (std::find_first_of(other.shared.begin(), last, shared.begin(), shared.end()) == last) {
        return false;
      }
      stages.insert(stages.begin(), other.stages.begin(), other.stages.end());
      parts.insert(parts.end(), other.parts.begin(), other.parts.end());
      shared.insert(shared.end(), other.shared.begin(), other.shared.end());
      parameters.insert(parameters.end(), other.parameters.begin(), other.parameters.end());
      is_tied |= other.is_tied;
      counted = other.counted;
      return true;
    }
  };
  [[nodiscard]] unit* carrier() const noexcept {
    const auto found = std::find_if(units_.begin(), units_.end(),
                                    [](const auto& each) { return each->trained_at_first; });
    return found == units_.end() ? nullptr : found->get();
  }
  [[nodiscard]] unit* find(int stage) const {
    const auto found = std::find_if(units_.begin(), units_.end(),
                                    [&](const auto& each) { return each->has(stage); });
    return found == units_.end() ? nullptr : found->get();
  }

  /// Counts each group once, however many ddps use it.
  [[nodiscard]] double async_seconds() const {
    double sum = 0;
    for (const process_group* const each : groups_) sum += each->async_seconds();
    return sum;
  }

  std::vector<std::unique_ptr<unit>> units_;
  std::vector<process_group*> groups_;
  double communication_ = 0, async_before_ = 0;
  bool synchronising_ = true;
};

}  // namespace parx
