// pipeline_engine: runs a model whose stages are on the ranks of a group, in the order of a table.
// parx::parallel is its face; this has no types of model and batches, so that it is compiled once.
//
// Each rank only keeps the values of its stages' parameters. The first stage reads the inputs, the
// last the labels, and stages between read masks if they need any.
// Stages add up gradients in the order of the micro-batches, so every schedule but looped BFS gives
// bit-identical results to one rank that accumulates the same micro-batches.
// Each stage is in a ddp over the data-parallel ranks. Its reductions begin with the stage's last
// backward, or with its REDUCE_GRAD in the table, and run in the pipeline's bubble: see
// stage_reductions.hpp. A parameter used by stages of several ranks (tied embeddings) is summed
// over those ranks, so its terms are added in another order than on one rank.
// An error names the stage, the action and the micro-batch, and closes the group on all ranks.
// Threads: one, which uses both groups.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/loss_scale.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/autograd/pinnable.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/warm_up.hpp>
#include <parx/core/formatted.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/loss.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/pipeline/batch_parts.hpp>
#include <parx/pipeline/microbatches.hpp>
#include <parx/pipeline/options.hpp>
#include <parx/pipeline/runner.hpp>
#include <parx/pipeline/same_setup.hpp>
#include <parx/pipeline/simulate.hpp>
#include <parx/pipeline/stage_axes.hpp>
#include <parx/pipeline/stage_marks.hpp>
#include <parx/pipeline/stage_module.hpp>
#include <parx/pipeline/stage_reductions.hpp>
#include <parx/pipeline/stage_submodule.hpp>
#include <parx/pipeline/tables.hpp>
#include <parx/pipeline/tied_stages.hpp>
#include <parx/pipeline/timeline.hpp>
#include <parx/pipeline/validate.hpp>
#include <parx/plan/cut.hpp>
#include <parx/reduction/training_engine.hpp>
#include <parx/tensor/batch.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class pipeline_engine : public training_engine {
 public:
  /// Collective over both groups. Validates the schedule, initializes the parameters of this rank's
  /// stages that have no values, and frees the values of all others. Model and groups are borrowed
  /// and must outlive this object; the model must not move. Throws usage_error for more stages than
  /// blocks and for an invalid table, parx::error (errc::mismatch) if ranks have different tables
  /// or cuts.
  pipeline_engine(nn::any_module<T> model, nn::model_blocks<any_input, T> blocks,
               process_group& group, pipeline_options options, call_site site)
      : model_(model),
        blocks_(std::move(blocks)),
        group_(group),
        options_(std::move(options)),
        site_(site),
        pin_(pin(model_, formatted("pipeline at {}", site))),
        alone_(group.subgroup(std::array{group.rank()}, {.name = "one pipeline stage"}, site)),
        tables_(options_, group_) {
    require_unwrapped(site);
    require_named(site);
    const pipeline_table& first = table();
    if (options_.reductions.replicas > 0) require_replica_order(first);
    const auto stages = static_cast<std::size_t>(first.stages);
    owner_ = first.owners();
    require(blocks_.size() >= stages,
            "pipeline at {}: {} stages need as many blocks, and the model has {}", site, stages,
            blocks_.size());
    cut_ = options_.cut;
    if (cut_.empty()) cut_ = cut_by_weight(weights(), stages);
    check_cut(cut_, stages, blocks_.size());
    require_same_setup(first, cut_, options_.seed, model_.last_seed(), job_group(), site);
    make_stages(site);
    all_carry_flags_ = !on_any_rank(job_group(), !reductions_->carries_flags(), site);
    has_cut_tables_ = on_any_rank(job_group(), reductions_->has_cut_tables(), site);
    open_links();
    runner_.emplace(group_, blocks_, owner_, cut_, *reductions_);
  }
  pipeline_engine(const pipeline_engine&) = delete;
  pipeline_engine& operator=(const pipeline_engine&) = delete;

  /// Collective. Into how many micro-batches a batch of so many rows is split, on all ranks;
  /// nullopt where this rank has no samples.
  [[nodiscard]] int agree_on_parts(std::optional<std::size_t> rows, batch_use use) {
    batch_parts mine = parts_of_rows(rows, options_.microbatches);
    mine.use = use;
    return parx::agree_on_parts(mine, group_, owner_.front(), equal_parts(use), site_);
  }
  /// Collective: forward and backward, or forwards alone, of as many micro-batches on all ranks of
  /// the model, which is not checked. Returns the sum of their figures, equal on all its ranks.
  /// Blocks until the gradients are ready for the optimizer.
  nn::tally run_backward(const microbatches<T>& all) {
    last_table_ = &tables_.of(static_cast<int>(all.count)).table;
    return runner_->run(*last_table_, all, detail::loss_scale_scope::take());
  }
  nn::tally run_forward(const microbatches<T>& all) {
    const no_grad guard;
    last_table_ = &tables_.of(static_cast<int>(all.count)).forwards;
    return runner_->run(*last_table_, all);
  }

  /// Whether this rank needs samples: it has the first or the last stage, or one whose blocks read
  /// the input (masks).
  [[nodiscard]] bool needs_input() const noexcept {
    for (std::size_t s = 0; s < owner_.size(); ++s) {
      if (owner_[s] != group_.rank()) continue;
      if (s + 1 == owner_.size()) return true;
      for (std::size_t b = cut_[s]; b < end_of(s); ++b) {
        if (blocks_[b].reads_input) return true;
      }
    }
    return false;
  }

  /// The parameters of this rank's stages, for an optimizer: none if the stages have none.
  [[nodiscard]] parameter_list<T> parameters(call_site site = call_site::current()) {
    parameter_list<T> all(site, parameter_scope::share);
    all.axes = axes_.all();
    module().for_each_parameter([&](const std::string&, auto& each) { all.push_back(each); });
    return all;
  }
  /// This rank's stages as one module: parameters, or its parts of them, and buffers by their paths
  /// in the model.
  [[nodiscard]] stage_module<T>& module() noexcept { return *module_; }
  [[nodiscard]] const stage_module<T>& module() const noexcept { return *module_; }
  void zero_grad() override { reductions_->zero_grad(); }
  void before_write() override { reductions_->before_write(); }
  /// Whether the stages are sharded over the data-parallel ranks.
  [[nodiscard]] bool is_sharded() const noexcept { return options_.sharding.has_value(); }

  /// Gradient accumulation over several steps: run all but the last one within this scope.
  [[nodiscard]] no_sync_scope no_sync() noexcept override {
    return no_sync_scope(reductions_->synchronising());
  }

  [[nodiscard]] process_group& group() noexcept { return group_; }
  [[nodiscard]] process_group& data_group() noexcept {
    return options_.data_parallel != nullptr ? *options_.data_parallel : alone_;
  }
  [[nodiscard]] process_group& job_group() noexcept {
    return options_.job != nullptr ? *options_.job : group_;
  }
  /// The ranks that have the other parts of the same stages' layers.
  [[nodiscard]] process_group& tensor_group() noexcept {
    return options_.tensor_parallel != nullptr ? *options_.tensor_parallel : alone_;
  }
  /// How many ranks of group() have the parameter, and which of them this one is. The first counts
  /// it in sums over the whole model. `name` is its path, or that of its optimizer state,
  /// "path.exp_avg".
  [[nodiscard]] shard_place user_of(const std::string& name) const {
    return tied_.user_of(name, group_.rank());
  }
  /// Whether the ranks of tensor_group() have different parts of the parameter. `name` is as in
  /// user_of().
  [[nodiscard]] bool is_cut(const std::string& name) const {
    return cut_layers_.contains(name) || cut_layers_.contains(name.substr(0, name.rfind('.')));
  }
  /// How many data-parallel ranks have the same part of the parameter as this one, and which of
  /// them this one is. `name` is as in user_of().
  [[nodiscard]] shard_place replica_of(const std::string& name) {
    if (is_sharded() && !is_within(name, kept_whole_)) return reductions_->shard_replica();
    return place_in(data_group());
  }
  /// A flag raised on any rank of the job reaches all ranks with the gradients of the next step.
  void raise_flag() noexcept override {
    if (reductions_->carries_flags()) reductions_->raise_flag();
    own_flag_ = true;
  }
  /// Collective over the model's ranks; over the job's if some rank has no gradients to send.
  [[nodiscard]] bool flag_raised(call_site site = call_site::current()) override {
    const bool own = std::exchange(own_flag_, false);
    const bool mine = reductions_->carries_flags() ? reductions_->flag_raised() : own;
    return on_any_rank(all_carry_flags_ ? flag_group() : job_group(), mine, site);
  }
  /// Collective over the data-parallel ranks.
  void broadcast_buffers(call_site site = call_site::current()) override {
    reductions_->broadcast_buffers(site);
  }
  [[nodiscard]] reduction_times times() const noexcept override { return reductions_->times(); }
  [[nodiscard]] std::size_t bucket_count() const override {
    return reductions_->bucket_bytes().size();
  }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const override {
    return reductions_->bucket_bytes().at(index);
  }
  [[nodiscard]] const pipeline_table& table() { return tables_.of(options_.microbatches).table; }
  /// The rank of group() that has the last stage.
  [[nodiscard]] int last_rank() const noexcept { return owner_.back(); }
  /// The first block of each stage.
  [[nodiscard]] const std::vector<std::size_t>& cut() const noexcept { return cut_; }
  /// The largest number of micro-batches, in the last step of this rank, that had run forward but
  /// not all of their backward.
  [[nodiscard]] int peak_in_flight() const noexcept { return runner_->peak_in_flight(); }
  /// The measurements of the last step, for measure().
  [[nodiscard]] const stage_runner<T>& runner() const noexcept { return *runner_; }

  /// Collective: the last step as it ran, in seconds from each rank's entry into it. Draw it beside
  /// simulate(table()).
  [[nodiscard]] pipeline_timeline timeline(call_site site = call_site::current()) {
    require(last_table_ != nullptr, "pipeline at {}: timeline() of no step: train one before",
            site_);
    return measured_timeline(*last_table_, runner_->spans(), group_, site);
  }

 private:
  /// The ranks to ask for a flag that has reached the data-parallel ranks of each.
  [[nodiscard]] process_group& flag_group() noexcept {
    if (is_sharded()) return job_group();
    return options_.model_parallel != nullptr ? *options_.model_parallel : group_;
  }
  /// The replicas that need as many micro-batches as this one, or null.
  [[nodiscard]] process_group* equal_parts(batch_use use) {
    const bool is_needed = has_cut_tables_ || needs_equal_parts(options_, use);
    return is_needed && data_group().size() > 1 ? &data_group() : nullptr;
  }
  [[nodiscard]] std::vector<std::string> parts_of(std::size_t stage) const {
    std::vector<std::string> parts;
    for (std::size_t b = cut_[stage]; b < end_of(stage); ++b) {
      parts.insert(parts.end(), blocks_[b].parts.begin(), blocks_[b].parts.end());
    }
    return parts;
  }
  [[nodiscard]] std::size_t end_of(std::size_t stage) const {
    return stage + 1 < cut_.size() ? cut_[stage + 1] : blocks_.size();
  }
  [[nodiscard]] std::vector<double> weights() {
    if (!options_.weights.empty()) {
      require(options_.weights.size() == blocks_.size(),
              "pipeline_options::weights has {} weights for {} blocks", options_.weights.size(),
              blocks_.size());
      return options_.weights;
    }
    std::vector<double> found(blocks_.size());
    model_.for_each_parameter([&](const std::string& path, auto& each) {
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        if (is_within(path, blocks_[b].parts)) found[b] += static_cast<double>(each.size());
      }
    });
    return found;
  }

  /// Collective. Opens the connections between neighbouring stages: a link's first message takes
  /// milliseconds, for which each stage in turn would wait in the first step.
  void open_links() {
    std::vector<int> peers;
    for (std::size_t s = 0; s + 1 < owner_.size(); ++s) {
      const int a = owner_[s], b = owner_[s + 1];
      if (a == b || (a != group_.rank() && b != group_.rank())) continue;
      const int peer = a == group_.rank() ? b : a;
      if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
    }
    warm_up(group_, peers);
  }
  void require_unwrapped(call_site site) {
    model_.for_each_parameter([&](const std::string& path, auto& each) {
      require(each.observer() == nullptr,
              "pipeline at {}: parameter \"{}\" belongs to another wrapper that still lives. "
              "Destroy that one first",
              site, path);
    });
  }

  /// Throws usage_error for a parameter that no block names, which no stage would train, and for a
  /// name that no module, parameter or buffer has.
  void require_named(call_site site) {
    std::vector<std::string> named;
    for (const auto& block : blocks_)
      named.insert(named.end(), block.parts.begin(), block.parts.end());
    std::vector<std::string> paths;
    model_.for_each_parameter([&](const std::string& path, auto&) {
      require(is_within(path, named),
              "pipeline at {}: no block of blocks() names the parameter \"{}\", so no stage would "
              "train it: it belongs to the .parts of the block that uses it",
              site, path);
      paths.push_back(path);
    });
    model_.for_each_buffer([&](const std::string& path, auto&) { paths.push_back(path); });
    model_.for_each_module(
        [&](const std::string& path, const nn::module_view&) { paths.push_back(path); });
    for (const auto& block : blocks_) {
      for (const std::string& part : block.parts) {
        const auto is_of_it = [&](const std::string& path) { return is_in_module(path, part); };
        require(std::any_of(paths.begin(), paths.end(), is_of_it),
                "pipeline at {}: the block \"{}\" names \"{}\" among its .parts, and the model has "
                "no such module, parameter or buffer",
                site, block.name, part);
      }
    }
  }

  void make_stages(call_site site) {
    std::vector<typename stage_reductions<T>::own_stage> stages;
    std::vector<std::string> own;
    std::vector<std::vector<std::string>> all;
    for (std::size_t s = 0; s < owner_.size(); ++s) all.push_back(parts_of(s));
    require_random_layers_apart(model_, all, site);
    for (std::size_t s = 0; s < owner_.size(); ++s) {
      if (owner_[s] != group_.rank()) continue;
      const auto& parts = all[s];
      own.insert(own.end(), parts.begin(), parts.end());
      stages.push_back({static_cast<int>(s), parts});
    }
    own_.emplace(model_, std::move(own));
    model_.materialize_where([&](const std::string& path) { return own_->has(path); },
                             options_.seed);
    model_.for_each_parameter([&](const std::string& path, auto& each) {
      if (!own_->has(path) && each.has_values()) each.forget_values();
      if (!each.spec().is_whole()) cut_layers_.insert(path);
    });
    ddp_options reductions = options_.reductions;
    find_tied();
    for (auto& each : tied_.groups(group_, data_group(), job_group(), site)) {
      reductions.reduction_groups.push_back(each);
    }
    if (is_sharded()) check_sharding(site);
    own_->for_each_parameter([&](const std::string& path, auto& each) {
      if (!each.reduction_group().empty()) kept_whole_.push_back(path);
    });
    const auto is_tied = [&](const std::string& path) { return tied_.is_shared(path); };
    reductions_.emplace(model_, stages, data_group(), reductions, options_.sharding, is_tied, site);
    module_.emplace(*own_, *reductions_);
    note_places();
  }

  /// Notes on this rank's parameters which ranks have other parts and copies of the gradient.
  void note_places() {
    gradient_places layers;
    model_.for_each_parameter([&](const std::string&, auto& each) {
      if (layers.empty()) layers = each.places();
    });
    axes_ = stage_axes(std::move(layers), is_sharded() ? &data_group() : nullptr, group_);
    module_->for_each_parameter([&](const std::string& path, auto& each) {
      marks_.place(each, axes_.places({.layer = tensor_group().rank() == 0 || is_cut(path),
                                       .shard = replica_of(path).index == 0,
                                       .stage = user_of(path).index == 0}));
    });
  }

  /// Finds the parameters that stages of several ranks use. One that has a reduction group of the
  /// user's is not summed again.
  void find_tied() {
    model_.for_each_parameter([&](const std::string& path, auto& each) {
      std::vector<int> users;
      for (std::size_t s = 0; s < owner_.size(); ++s) {
        if (is_within(path, parts_of(s))) users.push_back(owner_[s]);
      }
      std::sort(users.begin(), users.end());
      const auto twice = std::adjacent_find(users.begin(), users.end());
      require(options_.reductions.replicas == 0 || twice == users.end(),
              "pipeline at {}: with virtual replicas the stages of a rank share no parameters, and "
              "\"{}\" is in two of rank {}: take a schedule with one stage a rank, such as 1f1b "
              "without chunks",
              site_, path, twice == users.end() ? 0 : *twice);
      if (!tied_.add(path, std::move(users)) || !each.reduction_group().empty()) return;
      const std::string name = tied_.summing_group(path);
      if (own_->has(path)) marks_.tie(each, name);
    });
  }

  void check_sharding(call_site site) {
    const std::string who = formatted("pipeline at {}", site);
    detail::require_modules(options_.sharding->units, detail::unit_candidates(model_), who);
    require(data_group().size() == 1 || options_.job != nullptr,
            "{}: of sharded stages, name the group of all ranks in pipeline_options::job, "
            "mesh.all()",
            who);
    for (const auto& actions : table().ranks) {
      for (const stage_action& a : actions) {
        require(options_.sharding->stage == 1 || (a.kind != stage_work::backward_inputs &&
                                                  a.kind != stage_work::backward_weights),
                "{}: {} is half of a backward, and zero={} releases gradients or values between "
                "the halves: take zero=1, or a schedule with whole backwards",
                who, to_string(a), options_.sharding->stage);
      }
    }
  }

  nn::any_module<T> model_;
  nn::model_blocks<any_input, T> blocks_;
  process_group& group_;
  const pipeline_options options_;
  const call_site site_;
  const std::shared_ptr<const std::string> pin_;
  process_group alone_;
  pipeline_tables tables_;
  std::vector<int> owner_;
  std::vector<std::size_t> cut_;
  std::optional<stage_submodule<T>> own_;
  std::set<std::string> cut_layers_;     // paths of parameters
  std::vector<std::string> kept_whole_;  // paths of the parameters here that are not sharded
  tied_stages tied_;
  bool own_flag_ = false;        // for a rank without gradients
  // On all ranks of the job, and on any.
  bool all_carry_flags_ = true, has_cut_tables_ = false;
  stage_axes axes_;
  stage_marks<T> marks_;
  std::optional<stage_reductions<T>> reductions_;
  std::optional<stage_module<T>> module_;
  std::optional<stage_runner<T>> runner_;
  const pipeline_table* last_table_ = nullptr;
};

}  // namespace parx
