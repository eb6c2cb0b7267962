// staged_strategy: each rank runs some stages of the model, in a pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/models/decoding_cache.hpp>
#include <parx/nn/replica_scope.hpp>
#include <parx/parallel/replica_pass.hpp>
#include <parx/parallel/strategy.hpp>
#include <parx/pipeline/any_pipeline.hpp>
#include <parx/types/replica_range.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class staged_strategy final : public strategy_of_model<T> {
  using base = parallel_strategy<T>;

 public:
  /// Collective over the groups of the options. `stages` has the ranks of a replica that have the
  /// same piece of each layer. The micro-batches of a step are this rank's virtual replicas if
  /// .reductions has those.
  staged_strategy(any_model<T>& model, process_group& stages, pipeline_options options,
                  call_site site)
      : strategy_of_model<T>(model),
        stages_(stages),
        own_(own_replicas(options)),
        pipe_(model, model.blocks(), stages, std::move(options), site) {}

  int parts_of(std::optional<std::size_t> rows, batch_use use) override {
    if (own_.size() > 0 && use == batch_use::step) return parts_of_replicas(rows, own_);
    return pipe_.agree_on_parts(rows, use);
  }
  bool begins_idle() override { return false; }
  nn::tally train(const microbatches<T>& all) override {
    if (own_.size() == 0) return pipe_.run_backward(all);
    const nn::replica_scope by_replica;
    replica_pass<T> replicas(this->model());
    // Read at the beginning of each forward of a stage.
    const auto with_input = [&](std::size_t i, function_ref<void(const any_input&)> take) {
      replicas.begin(own_.first + static_cast<int>(i));
      all.with_input(i, take);
    };
    const nn::tally total =
        pipe_.run_backward({all.count, with_input, all.has_samples, all.result});
    replicas.end();
    broadcast_buffers(call_site::current());
    return total;
  }
  nn::tally evaluate(const microbatches<T>& all) override { return pipe_.run_forward(all); }
  no_sync_scope no_sync() override {
    require_no_replicas_to_add_to(own_.size());
    return pipe_.no_sync();
  }
  void zero_grad() override { pipe_.zero_grad(); }
  void raise_flag() override { pipe_.raise_flag(); }
  bool flag_raised(call_site site) override { return pipe_.flag_raised(site); }
  reduction_times times() const override { return pipe_.times(); }
  std::vector<std::size_t> bucket_bytes() const override {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < pipe_.bucket_count(); ++i) all.push_back(pipe_.bucket_bytes(i));
    return all;
  }

  void begin_text(std::size_t positions) override {
    this->model().begin_text_of_blocks(positions);
  }
  /// The token goes to all stages as the figure of an evaluation.
  std::int64_t decode(const any_input& ids, std::size_t positions,
                      function_ref<std::int64_t(const variable<T>&)> choose) override {
    models::decoded_text<T>& text = this->model().text_of_blocks();
    const auto with_input = [&](std::size_t, function_ref<void(const any_input&)> take) {
      take(ids);
    };
    const auto holds = [](std::size_t) { return true; };
    const auto result = [&](std::size_t, const variable<T>& logits) {
      return microbatch_result<T>{{static_cast<double>(choose(logits)), 1}};
    };
    const nn::tally chosen = pipe_.run_forward({1, with_input, holds, result});
    text.length += positions;
    return static_cast<std::int64_t>(chosen.sum);
  }

  parameter_list<T> parameters(call_site site) override { return pipe_.parameters(site); }
  void for_each_parameter(typename base::parameter_visitor visit) override {
    pipe_.module().for_each_parameter(visit);
  }
  void for_each_buffer(const buffer_visitor<T>& visit) override {
    pipe_.module().for_each_buffer(visit);
  }
  bool is_elsewhere(const std::string& path) const override {
    return pipe_.module().is_elsewhere(path);
  }
  shard_place copies(const std::string& name) override {
    return place_within(pipe_.user_of(name), pipe_.replica_of(name));
  }
  void before_write() override { pipe_.before_write(); }
  void broadcast_buffers(call_site site) override { pipe_.broadcast_buffers(site); }
  process_group* stages() noexcept override { return &stages_; }
  int last_stage() const noexcept override { return pipe_.last_rank(); }
  bool reads_batches() const noexcept override { return pipe_.reads_batches(); }
  void regroup(process_group) override { throw_usage("stages cannot be given other ranks"); }

 private:
  [[nodiscard]] static replica_range own_replicas(const pipeline_options& options) {
    const int replicas = options.reductions.replicas;
    if (replicas == 0) return {};
    return replicas_of(options.data_parallel->rank(), options.data_parallel->size(), replicas);
  }

  process_group& stages_;
  const replica_range own_;  ///< virtual ones; empty: none
  any_pipeline<T> pipe_;
};

}  // namespace parx
