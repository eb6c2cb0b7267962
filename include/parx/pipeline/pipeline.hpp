// pipeline: a model whose stages are on the ranks of a group. Most programs use parx::parallel.
//
//   parx::models::llama<> model{config};                 // shapes alone
//   parx::pipeline pipe{model, mesh["pp"], {.schedule = parx::schedules::zb1p, .microbatches = 8}};
//   parx::optim::adamw opt{pipe.parameters(), {.lr = 3e-4f}};
//   for (auto& batch : loader.epoch(e)) {
//     auto loss = pipe.step(batch, [](auto& logits, auto& b) {
//       return parx::nn::cross_entropy(logits, b.labels);
//     });                                                // (sum, count) on all ranks
//     opt.step();
//   }
//
// Each rank only keeps the values of its stages' parameters. All ranks pass the same batch to
// step(); ranks for which needs_input() is false may pass an empty one. The first stage reads the
// inputs, the last the labels, and stages between read masks if they need any. A loader makes such
// batches: .fetches = pipe.needs_input(). The gradient is that of the mean over the batch,
// whatever the sizes of the micro-batches.
// Stages add up gradients in the order of the micro-batches, so every schedule but looped BFS gives
// bit-identical results to one rank that accumulates the same micro-batches.
// Each stage is in a ddp over the data-parallel ranks. Its reductions begin with the stage's last
// backward, or with its REDUCE_GRAD in the table, and run in the pipeline's bubble: see
// stage_reductions.hpp. A parameter used by stages of several ranks (tied embeddings) is summed
// over those ranks, so its terms are added in another order than on one rank.
// An error names the stage, the action and the micro-batch, and closes the group on all ranks.
// Threads: one, which uses both groups.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/loss.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/pipeline/any_pipeline.hpp>
#include <parx/pipeline/batch.hpp>
#include <parx/pipeline/batch_parts.hpp>
#include <parx/pipeline/instances.hpp>
#include <parx/pipeline/microbatches.hpp>
#include <parx/pipeline/options.hpp>

namespace parx::inline PARX_ABI {

template <typename Model, typename Input, typename T>
class pipeline : public any_pipeline<T> {
 public:
  /// Collective over both groups. Validates the schedule, initializes the parameters of this rank's
  /// stages that have no values, and frees the values of all others. Model and groups are borrowed
  /// and must outlive this object; the model must not move. Throws usage_error for more stages than
  /// blocks and for an invalid table, parx::error (errc::mismatch) if ranks have different tables
  /// or cuts.
  pipeline(Model& model, nn::model_blocks<Input, T> blocks, process_group& group,
           pipeline_options options = {}, call_site site = call_site::current())
      : any_pipeline<T>(nn::any_module<T>(model), nn::without_type(std::move(blocks)), group,
                        std::move(options), site),
        model_(model) {}
  /// For a model whose blocks() need no argument.
  explicit pipeline(Model& model, process_group& group, pipeline_options options = {},
                    call_site site = call_site::current())
      : pipeline(model, model.blocks(), group, std::move(options), site) {}

  /// Collective: one batch, forward and backward, in options.microbatches parts, or as many as it
  /// has rows if those are fewer. loss_function(logits, micro-batch) returns a weighted_loss; it is
  /// called on the rank of the last stage. Returns the loss of this pipeline's batch, equal on all
  /// its ranks. Blocks until the gradients are ready for the optimizer.
  template <typename Batch, typename Loss>
  nn::tally step(const Batch& batch, Loss&& loss_function) {
    const std::vector<Batch> parts = split(batch, batch_use::step);
    return run_step(std::span<const Batch>(parts), loss_function);
  }
  /// The same for a batch that is already split, into any number of parts, or at most those of
  /// options.table.
  template <typename Batch, typename Loss>
  nn::tally step(std::span<const Batch> microbatches, Loss&& loss_function) {
    this->require_agreed(microbatches.size(), batch_use::step);
    return run_step(microbatches, loss_function);
  }

  /// Collective: runs only forwards, and records nothing for backward. `figure`(logits,
  /// micro-batch) returns a weighted_loss or a tally (nn::accuracy).
  template <typename Batch, typename Figure>
  nn::tally evaluate(const Batch& batch, Figure&& figure) {
    const std::vector<Batch> parts = split(batch, batch_use::evaluation);
    return run_forwards(std::span<const Batch>(parts), figure);
  }
  template <typename Batch, typename Figure>
  nn::tally evaluate(std::span<const Batch> microbatches, Figure&& figure) {
    this->require_agreed(microbatches.size(), batch_use::evaluation);
    return run_forwards(microbatches, figure);
  }

  /// The model. This rank only has the values of module().
  [[nodiscard]] Model& whole_model() noexcept { return model_; }

 private:
  template <typename Batch>
  [[nodiscard]] std::vector<Batch> split(const Batch& batch, batch_use use) {
    return split_rows(batch, this->agree_on_parts(rows_of(batch), use));
  }
  template <typename Batch, typename Loss>
  nn::tally run_step(std::span<const Batch> parts, Loss& loss_function) {
    this->compare(parts);
    return with_parts(parts, loss_function,
                      [&](const microbatches<T>& all) { return this->run_backward(all); });
  }
  template <typename Batch, typename Figure>
  nn::tally run_forwards(std::span<const Batch> parts, Figure& figure) {
    return with_parts(parts, figure,
                      [&](const microbatches<T>& all) { return this->run_forward(all); });
  }
  template <typename Batch, typename Criterion, typename Use>
  static nn::tally with_parts(std::span<const Batch> parts, Criterion& criterion, const Use& use) {
    const auto result = [&](std::size_t i, const variable<T>& x) {
      return result_of<T>(criterion(x, parts[i]));
    };
    return with_microbatches<T, Input>(parts, result, use);
  }

  Model& model_;
};

namespace detail {

template <typename Model>
concept has_blocks = requires(Model& model) { model.blocks(); };

/// The element type of blocks() of a model, or a compile-time error that says what is missing.
template <typename Model>
[[nodiscard]] auto block_of() {
  if constexpr (has_blocks<Model>) {
    return typename decltype(std::declval<Model&>().blocks())::value_type{};
  } else {
    static_assert(has_blocks<Model>,
                  "a model that is cut into stages is a nn::sequential, one of parx's own, or has "
                  "blocks(), which returns its forward pass in pieces: see nn/blocks.hpp");
  }
}

}  // namespace detail

template <typename Model>
pipeline(Model&, process_group&, pipeline_options = {})
    -> pipeline<Model, typename decltype(detail::block_of<Model>())::input_type,
                typename decltype(detail::block_of<Model>())::value_type>;

}  // namespace parx
