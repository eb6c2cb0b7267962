// The strategies of a layout with virtual replicas: the micro-batches of a step are this rank's
// replicas, each computed as on a rank of its own (replica_pass.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include <parx/core/function_ref.hpp>
#include <parx/nn/replica_scope.hpp>
#include <parx/parallel/data_parallel.hpp>
#include <parx/parallel/pipelined.hpp>
#include <parx/parallel/replica_pass.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/types/replica_range.hpp>

namespace parx::inline PARX_ABI {

template <typename T, template <typename> typename Wrapper>
class data_parallel_replicas final : public data_parallel_strategy<T, Wrapper> {
  using base = data_parallel_strategy<T, Wrapper>;

 public:
  /// As data_parallel_strategy; the options ask for virtual replicas.
  template <typename Options>
  data_parallel_replicas(any_model<T>& model, process_group& data, Options options, int parts,
                    call_site site)
      : base(model, data, options, parts, site), data_(data), replicas_(options.replicas) {}

  int parts_of(std::optional<std::size_t> rows, batch_use use) override {
    return use == batch_use::step ? parts_of_replicas(rows, own()) : base::parts_of(rows, use);
  }
  /// Ranks of an fsdp have equally many passes: of those that have a replica less the first one is
  /// without samples.
  bool pads_first() override {
    return base::is_sharded && replica_plan(replicas_, data_.rank(), data_.size()).has_fewer();
  }
  nn::tally train(const microbatches<T>& all) override {
    const nn::replica_scope by_replica;
    replica_pass<T> replicas(this->model_);
    const replica_range mine = own();
    const int padding = static_cast<int>(all.count) - mine.size();
    const nn::tally total = this->train_each(all, [&replicas, padding, mine](std::size_t i) {
      const int number = static_cast<int>(i) - padding;
      replicas.begin(number < 0 ? replica_pass<T>::none : mine.first + number);
    });
    replicas.end();
    this->engine().broadcast_buffers();
    return total;
  }

 private:
  [[nodiscard]] replica_range own() const {
    return replicas_of(data_.rank(), data_.size(), replicas_);
  }

  process_group& data_;  // has other ranks after a regroup()
  const int replicas_;
};

template <typename T>
class pipelined_replicas final : public pipelined_strategy<T> {
  using base = pipelined_strategy<T>;

 public:
  /// As pipelined_strategy; .reductions has virtual replicas.
  pipelined_replicas(any_model<T>& model, process_group& stages, pipeline_options options,
                  call_site site)
      : base(model, stages, options, site),
        own_(replicas_of(options.data_parallel->rank(), options.data_parallel->size(),
                         options.reductions.replicas)) {}

  int parts_of(std::optional<std::size_t> rows, batch_use use) override {
    return use == batch_use::step ? parts_of_replicas(rows, own_) : base::parts_of(rows, use);
  }
  nn::tally train(const microbatches<T>& all) override {
    const nn::replica_scope by_replica;
    replica_pass<T> replicas(this->model_);
    // Read at the beginning of each forward of a stage.
    const auto with_input = [this, &replicas, &all](
                                std::size_t i, function_ref<void(const any_input&)> take) {
      replicas.begin(own_.first + static_cast<int>(i));
      all.with_input(i, take);
    };
    const nn::tally total = base::train({all.count, with_input, all.has_samples, all.result});
    replicas.end();
    this->engine().broadcast_buffers();
    return total;
  }

 private:
  const replica_range own_;
};

}  // namespace parx
