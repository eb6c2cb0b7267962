// parallel_strategy: all in which layouts differ, as a parallel model sees it. What concerns the
// model alone is any_model's.
//
// One object for a model, of one of two kinds: every rank runs all layers (data_parallel.hpp: in a
// ddp or an fsdp), or a rank runs some stages (pipelined.hpp). Layers that are cut over ranks are
// no strategy: they are cut before. Its functions are virtual, so that a trainer, checkpoints and
// evaluations are compiled once for all layouts; they are called some times a step.
// All ranks of the job call them in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <parx/autograd/model_buffer.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/loss.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/parallel/any_model.hpp>
#include <parx/pipeline/batch_parts.hpp>
#include <parx/pipeline/microbatches.hpp>
#include <parx/reduction/training_engine.hpp>

namespace parx::inline PARX_ABI {

/// Visitors of the buffers of a model, by their types.
template <typename T>
struct buffer_visitor {
  function_ref<void(const std::string&, model_buffer<T>&)> values;
  function_ref<void(const std::string&, model_buffer<std::int64_t>&)> numbers;

  void operator()(const std::string& path, model_buffer<T>& buffer) const { values(path, buffer); }
  void operator()(const std::string& path, model_buffer<std::int64_t>& buffer) const {
    numbers(path, buffer);
  }
};

template <typename T>
class pipeline_engine;

template <typename T>
class parallel_strategy {
 public:
  using parameter_visitor = function_ref<void(const std::string&, parameter<T>&)>;

  parallel_strategy() = default;
  parallel_strategy(const parallel_strategy&) = delete;
  parallel_strategy& operator=(const parallel_strategy&) = delete;
  virtual ~parallel_strategy() = default;

  // Steps.

  /// The number of micro-batches of a batch of so many rows, nullopt where this rank has no
  /// samples; equal on the ranks of a replica, and on all where values are gathered.
  [[nodiscard]] virtual int parts_of(std::optional<std::size_t> rows, batch_use use) = 0;
  /// Whether a step begins with a micro-batch without rows, before those of parts_of().
  [[nodiscard]] virtual bool pads_first() = 0;
  /// Forward and backward. (sum, count) of this replica, on all its ranks.
  virtual nn::tally train(const microbatches<T>& all) = 0;
  /// Forwards alone. The figures of this replica, on all its ranks.
  virtual nn::tally evaluate(const microbatches<T>& all) = 0;
  /// What computes and sums the gradients.
  [[nodiscard]] virtual training_engine& engine() noexcept = 0;
  /// The same where it runs stages, else null.
  [[nodiscard]] virtual pipeline_engine<T>* pipeline() noexcept { return nullptr; }

  // Generation by a language model.

  /// Makes caches for so many positions of one text; 0: frees them.
  virtual void begin_text(std::size_t positions) = 0;
  /// One forward over so many `ids`, which follow those before. choose() is called with the logits
  /// where they are; all ranks get what it returns.
  [[nodiscard]] virtual std::int64_t decode(
      const any_input& ids, std::size_t positions,
      function_ref<std::int64_t(const variable<T>&)> choose) = 0;

  // This rank's part of the model.

  [[nodiscard]] virtual parameter_list<T> parameters(call_site site) = 0;
  virtual void for_each_parameter(parameter_visitor visit) = 0;
  virtual void for_each_buffer(const buffer_visitor<T>& visit) = 0;
  /// Whether only other ranks have the parameter or buffer of this path.
  [[nodiscard]] virtual bool is_elsewhere(const std::string& path) const = 0;
  /// Of the ranks that have the same piece of a layer: how many have the same part of the
  /// parameter, or of its optimizer state, and which of them this one is.
  [[nodiscard]] virtual shard_place copies(const std::string& name) = 0;
  /// The ranks of a replica that have other stages; null where each runs all layers.
  [[nodiscard]] virtual process_group* stages() noexcept = 0;
  /// The one of stages() that has the model's result.
  [[nodiscard]] virtual int last_stage() const noexcept = 0;
  [[nodiscard]] virtual bool needs_input() const noexcept = 0;

  /// Collective over `next`: see ddp::regroup. For a strategy whose ranks all have the whole model.
  virtual void regroup(process_group next) = 0;
};

}  // namespace parx
