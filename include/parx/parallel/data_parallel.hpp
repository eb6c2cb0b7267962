// data_parallel_strategy: every rank runs all layers, in a ddp or an fsdp.
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
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/parallel/strategy.hpp>

namespace parx::inline PARX_ABI {

/// Wrapper: ddp or any_fsdp, of the handle of a model.
template <typename T, template <typename> typename Wrapper>
class data_parallel_strategy : public parallel_strategy<T> {
  using base = parallel_strategy<T>;
  using wrapper_type = Wrapper<nn::any_module<T>>;

 public:
  /// Collective over `data`. `parts` are the micro-batches of a step.
  template <typename Options>
  data_parallel_strategy(any_model<T>& model, process_group& data, Options options, int parts,
                    call_site site)
      : model_(model),
        wrapper_(model, data, std::move(options), site),
        parts_(parts) {}

  /// The forwards of an fsdp communicate, so all ranks have equally many, some of them empty.
  int parts_of(std::optional<std::size_t> rows, batch_use /*use*/) override {
    return is_sharded ? parts_ : parts_of_rows(rows, parts_).parts;
  }
  bool pads_first() override { return false; }
  nn::tally train(const microbatches<T>& all) override {
    return train_each(all, [](std::size_t) {});
  }
  nn::tally evaluate(const microbatches<T>& all) override {
    const no_grad guard;
    nn::tally total;
    for (std::size_t i = 0; i < all.count; ++i) {
      total += all.result(i, forward(all, i)).figure;
    }
    return total;
  }
  training_engine& engine() noexcept override { return wrapper_; }

  void begin_text(std::size_t positions) override {
    model_.begin_text(positions);
  }
  std::int64_t decode(const any_input& ids, std::size_t,
                      function_ref<std::int64_t(const variable<T>&)> choose) override {
    const no_grad guard;
    return choose(model_.continue_text(ids));
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
  process_group* stages() noexcept override { return nullptr; }
  int last_stage() const noexcept override { return 0; }
  bool needs_input() const noexcept override { return true; }
  void regroup(process_group next) override {
    if constexpr (is_sharded) throw_usage("shards cannot be given to other ranks");
    else wrapper_.regroup(std::move(next));
  }

 protected:
  any_model<T>& model_;
  static constexpr bool is_sharded = std::is_same_v<wrapper_type, any_fsdp<nn::any_module<T>>>;

  /// Calls begin(i) before the forward of each micro-batch.
  nn::tally train_each(const microbatches<T>& all, function_ref<void(std::size_t)> begin) {
    const double scale = detail::loss_scale_scope::take();
    nn::tally total;
    const auto pass = [&, this](std::size_t i) {
      begin(i);
      microbatch_result<T> made = all.result(i, forward(all, i));
      require(made.loss.has_value(), "the criterion of a step returns a weighted_loss");
      total += made.figure;
      detail::scaled(std::move(*made.loss), scale).backward({}, last_call_site());
    };
    for (std::size_t i = 0; i + 1 < all.count; ++i) {
      const no_sync_scope adding = wrapper_.no_sync();
      pass(i);
    }
    if (all.count > 0) pass(all.count - 1);
    return total;
  }

 private:
  [[nodiscard]] variable<T> forward(const microbatches<T>& all, std::size_t number) {
    variable<T> result;
    all.with_input(number,
                   [&](const any_input& input) { result = model_.forward(input); });
    return result;
  }

  wrapper_type wrapper_;
  const int parts_;
};

}  // namespace parx
