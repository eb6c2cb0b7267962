// unstaged_strategy: every rank runs all layers, in a ddp or an fsdp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/loss_scale.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/core/check.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/replica_scope.hpp>
#include <parx/parallel/replica_pass.hpp>
#include <parx/parallel/strategy.hpp>
#include <parx/reduction/replica_tree.hpp>

namespace parx::inline PARX_ABI {

/// Wrapper: ddp or any_fsdp, of the handle of a model.
template <typename T, template <typename> typename Wrapper>
class unstaged_strategy final : public strategy_of_model<T> {
  using base = parallel_strategy<T>;
  using wrapper_type = Wrapper<nn::any_module<T>>;
  static constexpr bool is_sharded = std::is_same_v<wrapper_type, any_fsdp<nn::any_module<T>>>;

 public:
  /// Collective over `data`. `parts` are the micro-batches of a step, unless the options ask for
  /// virtual replicas.
  template <typename Options>
  unstaged_strategy(any_model<T>& model, process_group& data, Options options, int parts,
                    call_site site)
      : strategy_of_model<T>(model),
        replicas_(options.replicas),
        wrapper_(model, data, std::move(options), site),
        parts_(parts) {}

  /// The forwards of an fsdp communicate, so all ranks have equally many, some of them empty.
  int parts_of(std::optional<std::size_t> rows, batch_use use) override {
    if (replicas_ > 0 && use == batch_use::step) {
      return parts_of_replicas(rows, own_replicas());
    }
    return is_sharded ? parts_ : parts_of_rows(rows, parts_).parts;
  }
  /// Ranks of an fsdp have equally many passes.
  bool begins_idle() override {
    const process_group& data = wrapper_.data_group();
    return is_sharded && replicas_ > 0 &&
           replica_plan(replicas_, data.rank(), data.size()).is_short();
  }
  nn::tally train(const microbatches<T>& all) override {
    const double scale = detail::loss_scale_scope::take();
    nn::tally total;
    const auto pass = [&](std::size_t i) {
      microbatch_result<T> made = all.result(i, forward(all, i));
      require(made.loss.has_value(), "the criterion of a step returns a weighted_loss");
      total += made.figure;
      detail::scaled(std::move(*made.loss), scale).backward();
    };
    const auto adding_pass = [&](std::size_t i) {
      if (i + 1 == all.count) return pass(i);
      const no_sync_scope adding = wrapper_.no_sync();
      pass(i);
    };
    if (replicas_ > 0) {
      train_replicas(static_cast<int>(all.count), adding_pass);
    } else {
      for (std::size_t i = 0; i < all.count; ++i) adding_pass(i);
    }
    return total;
  }
  nn::tally evaluate(const microbatches<T>& all) override {
    const no_grad guard;
    nn::tally total;
    for (std::size_t i = 0; i < all.count; ++i) {
      total += all.result(i, forward(all, i)).figure;
    }
    return total;
  }
  no_sync_scope no_sync() override {
    require_no_replicas_to_add_to(replicas_);
    return wrapper_.no_sync();
  }
  void zero_grad() override { wrapper_.zero_grad(); }
  void raise_flag() override { wrapper_.raise_flag(); }
  bool flag_raised(call_site) override { return wrapper_.flag_raised(); }
  reduction_times times() const override { return wrapper_.times(); }
  std::vector<std::size_t> bucket_bytes() const override {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < wrapper_.bucket_count(); ++i) {
      all.push_back(wrapper_.bucket_bytes(i));
    }
    return all;
  }

  void begin_text(std::size_t positions) override {
    this->model().begin_text(positions);
  }
  std::int64_t decode(const any_input& ids, std::size_t,
                      function_ref<std::int64_t(const variable<T>&)> choose) override {
    const no_grad guard;
    return choose(this->model().continue_text(ids));
  }

  parameter_list<T> parameters(call_site site) override {
    parameter_list<T> all(site);
    wrapper_.module().for_each_parameter(
        [&](const std::string&, parameter<T>& each) { all.push_back(each); });
    return all;
  }
  void for_each_parameter(typename base::parameter_visitor visit) override {
    wrapper_.module().for_each_parameter(visit);
  }
  void for_each_buffer(const buffer_visitor<T>& visit) override {
    wrapper_.module().for_each_buffer(visit);
  }
  bool is_elsewhere(const std::string&) const override { return false; }
  shard_place copies(const std::string&) override { return place_in(wrapper_.replica_group()); }
  void before_write() override {
    if constexpr (is_sharded) wrapper_.before_write();
  }
  void broadcast_buffers(call_site site) override { wrapper_.broadcast_buffers(site); }
  process_group* stages() noexcept override { return nullptr; }
  int last_stage() const noexcept override { return 0; }
  bool reads_batches() const noexcept override { return true; }
  void regroup(process_group next) override {
    if constexpr (is_sharded) throw_usage("shards cannot be given to other ranks");
    else wrapper_.regroup(std::move(next));
  }

 private:
  [[nodiscard]] variable<T> forward(const microbatches<T>& all, std::size_t number) {
    variable<T> result;
    all.with_input(number,
                   [&](const any_input& input) { result = this->model().forward(input); });
    return result;
  }
  /// Calls pass(i) for each replica, after one without samples if the step begins so.
  template <typename Pass>
  void train_replicas(int passes, const Pass& pass) {
    const nn::replica_scope by_replica;
    replica_pass<T> replicas(this->model());
    const replica_range mine = own_replicas();
    const int idle = passes - mine.size();
    for (int i = 0; i < passes; ++i) {
      replicas.begin(i < idle ? replica_pass<T>::none : mine.first + i - idle);
      pass(static_cast<std::size_t>(i));
    }
    replicas.end();
    broadcast_buffers(call_site::current());
  }
  [[nodiscard]] replica_range own_replicas() {
    const process_group& data = wrapper_.data_group();
    return replicas_ > 0 ? replicas_of(data.rank(), data.size(), replicas_) : replica_range{};
  }

  const int replicas_;  ///< virtual ones; 0: none
  wrapper_type wrapper_;
  const int parts_;
};

}  // namespace parx
