// pipelined_strategy: each rank runs some stages of the model, in a pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/models/decoding_cache.hpp>
#include <parx/parallel/strategy.hpp>
#include <parx/pipeline/pipeline_engine.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class pipelined_strategy : public parallel_strategy<T> {
  using base = parallel_strategy<T>;

 public:
  /// Collective over the groups of the options. `stages` has the ranks of a replica that have the
  /// same piece of each layer.
  pipelined_strategy(any_model<T>& model, process_group& stages, pipeline_options options,
                  call_site site)
      : model_(model),
        stages_(stages),
        pipe_(model, model.blocks(), stages, std::move(options), site) {}

  int parts_of(std::optional<std::size_t> rows, batch_use use) override {
    return pipe_.agree_on_parts(rows, use);
  }
  bool pads_first() override { return false; }
  nn::tally train(const microbatches<T>& all) override { return pipe_.run_backward(all); }
  nn::tally evaluate(const microbatches<T>& all) override { return pipe_.run_forward(all); }
  training_engine& engine() noexcept override { return pipe_; }
  pipeline_engine<T>* pipeline() noexcept override { return &pipe_; }

  void begin_text(std::size_t positions) override {
    model_.begin_text_of_blocks(positions);
  }
  /// The token goes to all stages as the figure of an evaluation.
  std::int64_t decode(const any_input& ids, std::size_t positions,
                      function_ref<std::int64_t(const variable<T>&)> choose) override {
    models::decoded_text<T>& text = model_.text_of_blocks();
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
  process_group* stages() noexcept override { return &stages_; }
  int last_stage() const noexcept override { return pipe_.last_rank(); }
  bool needs_input() const noexcept override { return pipe_.needs_input(); }
  void regroup(process_group) override { throw_usage("stages cannot be given other ranks"); }

 protected:
  any_model<T>& model_;

 private:
  process_group& stages_;
  pipeline_engine<T> pipe_;
};

}  // namespace parx
