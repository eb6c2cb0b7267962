// typed_pipeline: a pipeline_engine with the types of its model and batches, for tests of the
// engine alone: with groups, blocks and options that parx::parallel has no words for.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/pipeline/microbatches.hpp>
#include <parx/pipeline/pipeline_engine.hpp>
#include <parx/tensor/batch.hpp>

/// The first `count` blocks, of which the last names what the others use: their parameters have to
/// be somewhere.
template <typename Input, typename T>
parx::nn::model_blocks<Input, T> first_blocks(parx::nn::model_blocks<Input, T> all,
                                              std::size_t count) {
  for (std::size_t b = count; b < all.size(); ++b) {
    all[count - 1].parts.insert(all[count - 1].parts.end(), all[b].parts.begin(),
                                all[b].parts.end());
  }
  all.resize(count);
  return all;
}

template <typename Model, typename Input, typename T>
class typed_pipeline : public parx::pipelined_wrapper, public parx::pipeline_engine<T> {
 public:
  typed_pipeline(Model& model, parx::nn::model_blocks<Input, T> blocks, parx::process_group& group,
                 parx::pipeline_options options = {},
                 parx::call_site site = parx::call_site::current())
      : parx::pipeline_engine<T>(parx::nn::any_module<T>(model),
                                 parx::nn::without_type(std::move(blocks)), group,
                                 std::move(options), site),
        model_(model) {}
  explicit typed_pipeline(Model& model, parx::process_group& group,
                          parx::pipeline_options options = {},
                          parx::call_site site = parx::call_site::current())
      : typed_pipeline(model, model.blocks(), group, std::move(options), site) {}

  template <typename Batch, typename Loss>
  parx::nn::tally step(const Batch& batch, Loss&& loss_function) {
    return with_parts(batch, parx::batch_use::step, loss_function,
                      [&](const auto& all) { return this->run_backward(all); });
  }
  template <typename Batch, typename Figure>
  parx::nn::tally evaluate(const Batch& batch, Figure&& figure) {
    return with_parts(batch, parx::batch_use::evaluation, figure,
                      [&](const auto& all) { return this->run_forward(all); });
  }

  // As a trainer and checkpoints ask.
  [[nodiscard]] Model& whole_model() noexcept { return model_; }
  void before_save(parx::call_site /*site*/) const noexcept {}
  [[nodiscard]] std::string reason_to_stop_at_loss() const { return "a stage is gone"; }

 private:
  template <typename Batch, typename Criterion, typename Use>
  parx::nn::tally with_parts(const Batch& batch, parx::batch_use use, Criterion& criterion,
                             const Use& run) {
    const std::vector<Batch> parts =
        parx::split_rows(batch, this->agree_on_parts(parx::rows_of(batch), use));
    const auto result = [&](std::size_t i, const parx::variable<T>& x) {
      return parx::result_of<T>(criterion(x, parts[i]));
    };
    return parx::with_microbatches<T, Input>(std::span<const Batch>(parts),
                                             parx::call_site::current(), result, run);
  }

  Model& model_;
};

template <typename Model>
using block_of = typename decltype(std::declval<Model&>().blocks())::value_type;

template <typename Model>
typed_pipeline(Model&, parx::process_group&, parx::pipeline_options = {})
    -> typed_pipeline<Model, typename block_of<Model>::input_type,
                      typename block_of<Model>::value_type>;

/// Copies of a parameter are on the data-parallel ranks of a stage, on stages that share it, and,
/// if it is not cut, on the tensor-parallel ranks.
template <typename Model, typename Input, typename T>
[[nodiscard]] parx::sharding sharded_over(typed_pipeline<Model, Input, T>& pipe) {
  const parx::shard_place all = place_in(pipe.job_group()), cut = place_in(pipe.tensor_group());
  return {.file = all,
          .copies =
              [cut, &pipe](const std::string& name, const parx::shard_spec&) {
                const auto same = place_within(pipe.user_of(name), pipe.replica_of(name));
                return pipe.is_cut(name) ? same : place_within(same, cut);
              },
          .others = all,
          .buffers = place_within(place_in(pipe.data_group()), cut)};
}
