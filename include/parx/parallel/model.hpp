// parallel_model: a model in any layout, without its type: what trainers, checkpoints, evaluations
// and generation work on, so that they are compiled once for all layouts. parallel<Model> makes it
// (parallel.hpp).
//
// Every function says who calls it: collective ones are called by all ranks of the job, in the same
// order and with equal arguments. Results are the same on all ranks unless they are said to be of a
// replica, the ranks that together have one copy of the model and the same samples.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/ops/whole.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/whole_value.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/in_call.hpp>
#include <parx/mesh/mesh.hpp>
#include <parx/nn/metrics.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/parallel/joined_rows.hpp>
#include <parx/parallel/layout.hpp>
#include <parx/parallel/part.hpp>
#include <parx/parallel/strategy.hpp>
#include <parx/pipeline/batch.hpp>
#include <parx/pipeline/same_batches.hpp>
#include <parx/reduction/metrics.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

namespace parx::inline PARX_ABI {

/// T: the type of the parameters. Input: what the model's forward takes (nn/model_input.hpp).
template <typename T, typename Input>
class parallel_model : public staged_wrapper {
 public:
  using value_type = T;
  using input_type = Input;

  parallel_model(const parallel_model&) = delete;
  parallel_model& operator=(const parallel_model&) = delete;

  // Training.

  /// Collective: forward and backward of one batch, in layout::microbatches parts. criterion(
  /// logits, part) returns a weighted_loss, and runs on the ranks that have the model's result.
  /// Returns (sum, count) of this replica. The gradient is that of the mean over the whole batch,
  /// of all replicas, whatever the sizes of the parts.
  template <typename Batch, typename Criterion>
  nn::tally forward_backward(const Batch& batch, Criterion&& criterion,
                             call_site site = call_site::current()) {
    require_forward<Batch>();
    using made = std::invoke_result_t<Criterion&, const variable<T>&, const Batch&>;
    static_assert(std::is_same_v<made, weighted_loss<T>>,
                  "the criterion of forward_backward returns a loss as (sum, count): [](auto& "
                  "logits, auto& part) { return parx::nn::cross_entropy(logits, part.labels); }");
    return in_call("forward_backward", site, [&] {
      const std::vector<Batch> parts = split(batch, batch_use::step, site);
      const auto result = [&](std::size_t i, const variable<T>& x) {
        if constexpr (std::is_same_v<made, weighted_loss<T>>) {
          return result_of<T>(criterion(x, parts[i]));
        } else {
          return microbatch_result<T>{};
        }
      };
      return with_parts(parts, result, [&](const auto& all) { return strategy().train(all); });
    });
  }
  /// Collective: forwards of one batch, without gradients. figures(logits, part) returns a
  /// weighted_loss, an nn::tally, or nn::metrics, several of them by name. Returns the tally, or
  /// the metrics, of this replica.
  template <typename Batch, typename Figures>
  auto evaluate(const Batch& batch, Figures&& figures, call_site site = call_site::current()) {
    require_forward<Batch>();
    return in_call("evaluate", site, [&] {
      const std::vector<Batch> parts = split(batch, batch_use::evaluation, site);
      using made = decltype(figures(std::declval<const variable<T>&>(), parts.front()));
      constexpr bool are_named = std::is_convertible_v<made, nn::metrics>;
      nn::metrics sums;
      const auto result = [&](std::size_t i, const variable<T>& x) {
        if constexpr (are_named) {
          nn::add(sums, figures(x, parts[i]));
          return microbatch_result<T>{};
        } else {
          return microbatch_result<T>{result_of<T>(figures(x, parts[i])).figure};
        }
      };
      const nn::tally total =
          with_parts(parts, result, [&](const auto& all) { return strategy().evaluate(all); });
      if constexpr (are_named) {
        process_group* const stages = strategy().stages();
        if (stages != nullptr) broadcast(*stages, sums, strategy().last_stage(), site);
        return sums;
      } else {
        return total;
      }
    });
  }
  /// Collective: the model's result for one batch, without gradients, whole and on all ranks of the
  /// replica, in every layout: of a teacher, say. Micro-batches follow each other along axis 0. The
  /// model's mode stays as it is: module().eval() turns dropout off.
  template <typename Batch>
  [[nodiscard]] tensor<T> outputs(const Batch& batch, call_site site = call_site::current()) {
    std::vector<tensor<T>> made;
    evaluate(
        batch,
        [&](const variable<T>& result, const auto&) {
          made.push_back(whole(result).value().contiguous());
          return nn::tally{};
        },
        site);
    return in_call("outputs", site, [&] {
      return joined_rows(made, strategy().stages(), strategy().last_stage(), site);
    });
  }
  /// A scope in which forward_backward adds gradients up on each rank alone; the first one after it
  /// sums them over the ranks.
  [[nodiscard]] no_sync_scope no_sync() { return strategy().no_sync(); }
  /// Local. The next forward_backward overwrites the gradients.
  void zero_grad() { strategy().zero_grad(); }
  /// Local. Tells all ranks something that this one has noticed (its host goes down), with the
  /// gradients of the next forward_backward.
  void raise_flag() { strategy().raise_flag(); }
  /// Collective. Whether any rank's flag was raised before the last forward_backward.
  [[nodiscard]] bool flag_raised(call_site site = call_site::current()) {
    const bool here = strategy().flag_raised(site);
    return cut_ && strategy().stages() == nullptr ? on_any_rank(tensor_group(), here, site) : here;
  }

  // Values.

  /// Local. This rank's parts of the parameters, for an optimizer: none of a stage that has none.
  [[nodiscard]] parameter_list<T> parameters(call_site site = call_site::current()) {
    return strategy().parameters(site);
  }
  /// Collective. The values that one process would give the model from this seed, in every layout.
  /// Throws usage_error on all ranks if they were given different seeds.
  void initialize(std::uint64_t seed, call_site site = call_site::current()) {
    require_same("seed", std::to_string(seed), site);
    strategy().before_write();
    std::map<std::string, nn::initializer> starts;
    strategy().for_each_start([&](const std::string& path, const nn::initializer& start) {
      starts.emplace(path, start);
    });
    strategy().for_each_parameter([&](const std::string& path, parameter<T>& part) {
      starts.at(path).fill(part.value(), seed, path, part.spec());
      part.note_change();
    });
    strategy().reseed(seed);
  }
  /// Collective. Calls use(path, tensor<T>) with the whole values of each parameter, one at a time,
  /// in the model's order.
  template <typename Use>
  void for_each_whole_value(Use&& use, call_site site = call_site::current()) {
    std::map<std::string, parameter<T>> parts;
    strategy().for_each_parameter([&](const std::string& path, parameter<T>& part) {
      if (copies(path).index == 0) parts.emplace(path, part);
    });
    strategy().for_each_whole_parameter([&](const std::string& path, parameter<T>& shape) {
      const auto part = parts.find(path);
      const parameter<T>* const here = part == parts.end() ? nullptr : &part->second;
      use(path, detail::whole_value(job_group(), shape.global_shape(), here, site));
    });
  }
  /// Collective. Gives `copy`, a model of the same configuration on each rank, all values. Throws
  /// usage_error on all ranks, before anything is written, unless every copy has the parameters of
  /// this model, of the same shapes, and no others.
  template <typename Other>
  void copy_values_to(Other& copy, call_site site = call_site::current()) {
    std::map<std::string, parameter<T>> to;
    copy.for_each_parameter(
        [&](const std::string& path, parameter<T>& each) { to.emplace(path, each); });
    require_on_all("copy_values_to", difference_from(to), site);
    copy.materialize();
    for_each_whole_value(
        [&](const std::string& path, const tensor<T>& values) {
          to.at(path).value().copy_from(values);
          to.at(path).note_change();
        },
        site);
  }
  /// Collective. A hash of all values, equal in every layout.
  [[nodiscard]] std::uint64_t values_hash(call_site site = call_site::current()) {
    std::uint64_t hash = detail::fnv1a({});
    for_each_whole_value(
        [&](const std::string&, const tensor<T>& whole) { hash = detail::hash_of(whole, hash); },
        site);
    return hash;
  }
  /// Collective. Whether ranks that have the same part of a parameter have the same bits of it:
  /// true unless something other than the optimizer has changed them.
  [[nodiscard]] bool replicas_equal(call_site site = call_site::current()) {
    std::map<std::string, parameter<T>> parts;
    strategy().for_each_parameter(
        [&](const std::string& path, parameter<T>& part) { parts.emplace(path, part); });
    bool is_other = false;
    for_each_whole_value(
        [&](const std::string& path, const tensor<T>& whole) {
          const auto part = parts.find(path);
          if (part == parts.end()) return;
          const T* const here = part->second.value().data();
          part->second.spec().for_each_run([&](const shard_run& run) {
            is_other |= std::memcmp(here + run.local, whole.data() + run.global,
                                    run.length * sizeof(T)) != 0;
          });
        },
        site);
    return !on_any_rank(job_group(), is_other, site);
  }
  /// Collective. Gives the ranks of each stage the buffers of the first of them.
  void broadcast_buffers(call_site site = call_site::current()) {
    strategy().broadcast_buffers(site);
  }

  // Ranks.

  /// As it is on these ranks: dp is known, and "auto" has become what was chosen.
  [[nodiscard]] const parx::layout& layout() const noexcept { return layout_; }
  /// The coordinates of this rank.
  struct coordinates {
    int stage = 0, replica = 0, piece = 0;
  };
  [[nodiscard]] coordinates place() const {
    if (!mesh_) return {.replica = world_.rank()};
    return {mesh_->rank("pp"), mesh_->rank("dp"), mesh_->rank("tp")};
  }
  /// All ranks that train the model.
  [[nodiscard]] process_group& job_group() noexcept { return mesh_ ? mesh_->all() : world_; }
  /// The ranks that have other samples: for a sampler, and to sum losses.
  [[nodiscard]] process_group& data_group() noexcept { return mesh_ ? (*mesh_)["dp"] : world_; }
  /// The virtual replicas that this rank computes; without them its own replica alone.
  [[nodiscard]] replica_range replicas() {
    return replicas_of(data_group().rank(), layout_.dp, layout_.replicas);
  }
  /// The ranks that must make the same calls of the model, with the same ids: those of a replica,
  /// all where shards of values are gathered or looked up; null where each rank is by itself.
  [[nodiscard]] process_group* ranks_in_step() {
    if (layout_.zero > 0) return &job_group();
    return mesh_ ? &mesh_->flatten({"pp", "tp"}) : nullptr;
  }
  /// Whether this rank needs samples: the middle stages of a pipeline do not. For a loader's
  /// .fetches.
  [[nodiscard]] bool reads_batches() const { return strategy().reads_batches(); }
  /// Local. How many ranks of the job have the same part of the parameter, or of its optimizer
  /// state "path.exp_avg", and which of them this one is.
  [[nodiscard]] shard_place copies(const std::string& name) {
    const shard_place same = strategy().copies(name);
    return !cut_ || cut_->is_cut(name) ? same : place_within(same, place_in(tensor_group()));
  }

  /// Whether a lost rank's state is on all others: a trainer may go on with them.
  [[nodiscard]] bool keeps_whole_replicas() const noexcept { return layout_.is_ddp(); }
  /// Collective over `next`, the surviving ranks: see ddp::regroup. Throws usage_error unless
  /// keeps_whole_replicas().
  void regroup(process_group next) {
    require(
        keeps_whole_replicas(),
        "parallel at {}: with the layout \"{}\" a part of the model was on the lost rank alone: "
        "load a checkpoint",
        site_, to_string(layout_));
    parx::layout after = layout_;
    after.dp = next.size();
    require_possible(after);
    layout_ = std::move(after);
    strategy().regroup(std::move(next));
  }

  // For checkpoints (checkpoint/distributed_wrapper.hpp) and the trainer (train/wrapped_model.hpp).

  void before_save(call_site /*site*/) const noexcept {}
  [[nodiscard]] std::string reason_to_stop_at_loss() const {
    if (keeps_whole_replicas()) return {};
    return "a parallel model keeps a part of the model on each rank, and a lost rank's is gone";
  }
  /// Call this on all ranks before parameters are written by anything other than an optimizer or
  /// load().
  void before_write() { strategy().before_write(); }
  [[nodiscard]] parallel_part<T, Input>& module() {
    (void)strategy();
    return *part_;
  }
  [[nodiscard]] parallel_shapes<T, Input>& whole_model() {
    (void)strategy();
    return *shapes_;
  }
  [[nodiscard]] reduction_times times() const { return strategy().times(); }
  [[nodiscard]] std::size_t bucket_count() const { return strategy().bucket_bytes().size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const {
    return strategy().bucket_bytes().at(index);
  }

  /// See parx::generate.
  [[nodiscard]] parallel_strategy<T, Input>& strategy() const {
    require(strategy_ != nullptr,
            "parallel at {}: unwrap() has ended this: use the model itself, or wrap it again",
            site_);
    return *strategy_;
  }
  /// The layers' cut; null where tp is 1.
  [[nodiscard]] const parallelized* cut() const noexcept { return cut_ ? &*cut_ : nullptr; }

 protected:
  /// Collective over `world`, which is borrowed. choose() makes a layout of "auto".
  parallel_model(process_group& world, parx::layout how, function_ref<parx::layout()> choose,
                 call_site site)
      : layout_(std::move(how)), site_(site), world_(world) {
    require_same("layout", to_string(layout_), site);
    if (layout_.is_automatic) {  // hosts may differ in memory: rank 0's choice counts
      std::string chosen = world.rank() == 0 ? to_string(choose()) : "";
      broadcast_object(world, chosen, {.root = 0}, site);
      layout_ = parx::layout::parse(chosen);
    }
    require_possible(layout_);
    const int cut = layout_.pp * layout_.tp;
    const std::string text = to_string(layout_);
    require(world.size() % cut == 0,
            "layout \"{}\" at {}: pp={} times tp={} needs a multiple of {} ranks, and the job has "
            "{}",
            text, site, layout_.pp, layout_.tp, cut, world.size());
    require(layout_.dp == remaining_ranks || layout_.dp * cut == world.size(),
            "layout \"{}\" at {}: it has {} ranks, and the job has {}: leave dp= out, and it takes "
            "what is left",
            text, site, layout_.dp * cut, world.size());
    layout_.dp = world.size() / cut;
    require_possible(layout_);
    const std::vector<mesh_axis> axes{{"pp", layout_.pp}, {"dp", layout_.dp}, {"tp", layout_.tp}};
    if (layout_.hybrid) require_even_hosts(mesh_layout(axes, world.hosts(), site));
    if (cut > 1) mesh_.emplace(world, axes, site);
  }
  void set_strategy(std::unique_ptr<parallel_strategy<T, Input>> made) {
    strategy_ = std::move(made);
    part_.emplace(*strategy_);
    shapes_.emplace(*strategy_);
  }
  /// The model has whole layers again, and no wrapper.
  void end() {
    strategy_.reset();
    cut_.reset();
  }

  parx::layout layout_;
  const call_site site_;
  process_group& world_;
  std::optional<mesh<>> mesh_;  // none where all ranks have other samples
  std::optional<parallelized> cut_;

 private:
  [[nodiscard]] process_group& tensor_group() { return cut_->axis().group(); }

  /// Collective. Throws on all ranks, with the texts of two that differ.
  void require_same(const char* what, const std::string& mine, call_site site) {
    const std::uint64_t digest[] = {detail::fnv1a(mine)};
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world_.size()));
    all_gather(world_, digest, all, {}, site);
    const auto other = std::find_if(all.begin(), all.end(),
                                    [&](std::uint64_t each) { return each != all.front(); });
    if (other == all.end()) return;
    std::string first = mine, different = mine;
    const int rank = static_cast<int>(other - all.begin());
    broadcast_object(world_, first, {.root = 0}, site);
    broadcast_object(world_, different, {.root = rank}, site);
    throw_usage(
        "parallel at {}: rank {} was given the {} \"{}\", rank 0 \"{}\": give all ranks the same",
        site, rank, what, different, first);
  }

  /// Collective. Throws on all ranks the fault of the first rank that has one; "" is none.
  void require_on_all(const char* what, const std::string& fault, call_site site) {
    const std::uint8_t mine[] = {static_cast<std::uint8_t>(!fault.empty())};
    std::vector<std::uint8_t> all(static_cast<std::size_t>(world_.size()));
    all_gather(world_, mine, all, {}, site);
    const auto first = std::find(all.begin(), all.end(), 1);
    if (first == all.end()) return;
    const int rank = static_cast<int>(first - all.begin());
    std::string told = fault;
    broadcast_object(world_, told, {.root = rank}, site);
    throw_usage("{} at {}: on rank {} {}", what, site, rank, told);
  }
  /// In what these parameters differ from those of the model; "" if in nothing.
  [[nodiscard]] std::string difference_from(const std::map<std::string, parameter<T>>& others) {
    std::string fault;
    std::size_t found = 0;
    strategy().for_each_whole_parameter([&](const std::string& path, parameter<T>& each) {
      const auto other = others.find(path);
      if (other != others.end()) ++found;
      if (!fault.empty()) return;
      const std::string shape = to_string(each.global_shape());
      if (other == others.end()) {
        fault = formatted("the copy has no parameter \"{}\" of {}", path, shape);
      } else if (other->second.shape() != each.global_shape()) {
        fault = formatted("the copy's \"{}\" is {}, and the model's {}", path,
                          to_string(other->second.shape()), shape);
      }
    });
    if (!fault.empty() || found == others.size()) return fault;
    std::map<std::string, parameter<T>> left = others;
    strategy().for_each_whole_parameter(
        [&](const std::string& path, parameter<T>&) { left.erase(path); });
    return formatted("the copy has {} parameters that the model has not, such as \"{}\"",
                     left.size(), left.begin()->first);
  }
  /// All ranks look at the groups of all, and come to the same result.
  void require_even_hosts(const mesh_layout& grid) const {
    const std::vector<int> hosts = world_.hosts();
    const std::size_t dp = grid.axis("dp");
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (grid.coordinate(rank, dp) != 0) continue;
      std::vector<int> of_line;
      for (const int other : grid.line(rank, std::span(&dp, 1))) {
        of_line.push_back(hosts[static_cast<std::size_t>(other)]);
      }
      require(detail::are_even(of_line),
              "layout \"{}\" at {}: hybrid shards the model over the ranks of each host that have "
              "other samples, and their numbers differ from host to host: start equally many ranks "
              "on all hosts, or take fsdp",
              to_string(layout_), site_);
    }
  }

  template <typename Batch>
  static consteval void require_forward() {
    static_assert(!std::is_same_v<Input, no_input> || std::is_void_v<Batch>,
                  "a raw_module has no forward pass that parx knows: compute its gradients between "
                  "begin_backward(count) and end(), see ddp/raw.hpp, and its figures yourself");
  }

  template <typename Batch>
  [[nodiscard]] std::vector<Batch> split(const Batch& batch, batch_use use, call_site site) {
    if constexpr (is_batch_of_tensors<Batch>) {
      const int count = strategy().parts_of(rows_of(batch), use);
      auto parts = count == 1 ? std::vector<Batch>{batch} : split_rows(batch, count);
      if (use == batch_use::step && strategy().begins_idle()) {
        parts.insert(parts.begin(), rows_between(batch, 0, 0));
      }
      if constexpr (requires(Batch& part) { part.trim_padding(); }) {
        if (use == batch_use::step && layout_.replicas > 0) {
          for (Batch& part : parts) part.trim_padding();
        }
      }
      compare(std::span<const Batch>(parts), site);
      return parts;
    } else {
      const int count = strategy().parts_of(std::nullopt, use);
      require(count == 1,
              "parallel at {}: a batch that is no aggregate of tensors cannot be split into {} "
              "micro-batches",
              site, count);
      return {batch};
    }
  }
  /// The ranks of a replica need the same samples.
  template <typename Batch>
  void compare(std::span<const Batch> parts, call_site site) {
    if (!mesh_ || !comparing_.is_next()) return;
    if (!reads_batches()) parts = {};
    require_same_batches("parallel", parts, mesh_->flatten({"pp", "tp"}), site);
  }
  template <typename Batch, typename Result, typename Use>
  static nn::tally with_parts(const std::vector<Batch>& parts, const Result& result, Use use) {
    const auto input = [&](std::size_t i) -> Input { return input_of<Input>(parts[i]); };
    const auto holds = [&](std::size_t i) { return has_samples(parts[i]); };
    return use(microbatches<Input, T>{parts.size(), input, holds, result});
  }

  std::unique_ptr<parallel_strategy<T, Input>> strategy_;
  std::optional<parallel_part<T, Input>> part_;
  std::optional<parallel_shapes<T, Input>> shapes_;
  steps_that_compare comparing_;
};

}  // namespace parx
