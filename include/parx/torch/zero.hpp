// torch_zero: ZeRO for a libtorch module: optimizer state, gradients and, on one host, values are
// sharded over the ranks.
//
//   parx::torch_zero zero{*model, world, {.stage = 2}};
//   torch::optim::AdamW optimizer(zero.parameters(), 1e-3);  // this rank's parts
//   auto loss = torch::cross_entropy_loss(model->forward(x), y);
//   loss.backward();
//   zero.clip_grad_norm(1.0);                                // of the whole model
//   zero.step(optimizer);                                    // and all ranks get the new values
//   optimizer.zero_grad();
//
// It is torch_ddp but for the step: backward, no_sync() and the rest are the same, and so are the
// values, but for rounding. A rank steps over about 1 / ranks of the elements, and has the
// optimizer's state of these alone. An optimizer must treat elements one by one, as all of
// libtorch's do but LBFGS. A part has one dimension.
//
// What is sharded, by stage: 1 the optimizer's state; 2 the gradients, too; 3 the values, too, of
// ranks that share memory: the host has one copy of the model. Across hosts every rank has all
// values between two steps in every stage, since libtorch has no hooks before the forward pass of a
// module, where they could be gathered.
//
// Rajbhandari et al.: ZeRO (arXiv 1910.02054).
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>
#undef CHECK

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/core/xxh64.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/fsdp/same_model.hpp>
#include <parx/fsdp/shard_groups.hpp>
#include <parx/fsdp/sharded_units.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/reduction/times.hpp>
#include <parx/torch/file.hpp>
#include <parx/torch/module.hpp>
#include <parx/torch/optimizer_file.hpp>
#include <parx/torch/sharded_leaf.hpp>

namespace parx::inline PARX_ABI {

/// Equal on all ranks, which is checked.
struct torch_zero_options {
  int stage = 2;
  bucket_limits buckets{};  ///< which gradients are summed together
  /// serial: the result does not depend on buckets or on the network.
  reduction_order order = reduction_order::serial;
};

namespace detail {

/// A module of which this rank steps over parts.
class sharded_torch_module final : public torch_module {
 public:
  sharded_torch_module(::torch::nn::Module& model, std::string who)
      : torch_module(model, std::move(who), gradient_kind::strided) {}

  /// Of leaves(), in their order; once.
  [[nodiscard]] std::vector<std::unique_ptr<sharded_parameter>> make_parts() {
    std::vector<std::unique_ptr<sharded_parameter>> parts;
    for (const auto& leaf : leaves()) {
      auto part = std::make_unique<sharded_leaf>(*leaf);
      parts_.push_back(part.get());
      parts.push_back(std::move(part));
    }
    return parts;
  }
  /// The values are what they should be.
  void note_values() { digest_ = digest(); }

  void check_unchanged() const override {
    torch_module::check_unchanged();
    for (const sharded_leaf* const each : parts_) {
      require(each->is_in_place(),
              "{}: parameter \"{}\" was given other memory (by torch::load, set_data()) after the "
              "model was wrapped, and other ranks do not see that: load before wrapping, or by "
              "load(path) of the wrapper, from safetensors",
              who(), each->name());
    }
    require(digest() == digest_,
            "{}: values were changed by something other than step(optimizer) of the wrapper, and "
            "other ranks have not got them. Call zero.step(optimizer), not optimizer.step(), with "
            "an optimizer of zero.parameters(), and load by zero.load(path)",
            who());
  }

 private:
  void step_begins() override {
    for (sharded_leaf* const each : parts_) each->step_begins();
  }
  void step_ended() noexcept override {
    for (sharded_leaf* const each : parts_) each->step_ended();
  }
  [[nodiscard]] std::uint64_t digest() const {
    xxh64 hash;
    for (const sharded_leaf* const each : parts_) {
      const at::Tensor& part = each->part();
      hash.update({static_cast<const std::byte*>(part.data_ptr()), part.nbytes()});
    }
    return hash.value();
  }

  std::vector<sharded_leaf*> parts_;
  std::uint64_t digest_ = 0;
};

}  // namespace detail

template <std::derived_from<::torch::nn::Module> Model>
class torch_zero {
 public:
  /// Collective over `group`. Checks that all ranks have the same parameters and options (throws
  /// errc::mismatch with the difference otherwise) and gives all of them rank 0's values and
  /// buffers. `model` and `group` are borrowed. The parameters keep all values, in this object's
  /// memory until it is destroyed. Throws usage_error for parameters that parx cannot sum, by name,
  /// and while another wrapper of the model exists.
  explicit torch_zero(Model& model, process_group& group, torch_zero_options options = {},
                      call_site site = call_site::current())
      : model_(model), group_(group), module_(model, formatted("torch_zero at {}", site)) {
    require(options.stage >= 1 && options.stage <= 3,
            "{}: .stage is 1 (optimizer state), 2 (and gradients) or 3 (and values), not {}",
            module_.who(), options.stage);
    require(options.stage < 3 || group.shares_memory(),
            "{}: .stage = 3 is for ranks that share memory: across hosts the values of a layer "
            "would be gathered before its forward pass, for which libtorch has no hook. Take "
            ".stage = 2, or parx's own modules and parx::fsdp",
            module_.who());
    unit_plan plan = plan_of(options);
    require_alike(plan, options, site);
    const std::size_t units = plan.units().size();
    units_.reset(new detail::sharded_units(
        group, make_shard_groups(group, {}, site), std::move(plan), module_.make_parts(),
        {.stage = options.stage, .prefetch = units, .order = options.order}, module_.who(), site));
    for (const auto& [name, parameter] : module_.frozen()) {
      detail::send_from_rank_0(parameter, group_, site);
    }
    broadcast_buffers(site);
    open();
  }
  template <detail::holds_torch_module Holder>
  explicit torch_zero(Holder& model, process_group& group, torch_zero_options options = {},
                      call_site site = call_site::current())
      : torch_zero(*model, group, options, site) {}

  /// model.forward(inputs...), of a model that nothing else has changed since.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    module_.check_unchanged();
    return model_.forward(std::forward<Inputs>(inputs)...);
  }
  /// As those of torch_ddp.
  void backward(const at::Tensor& loss, double count, call_site site = call_site::current()) {
    module_.backward(loss, count, site);
  }
  void backward(const at::Tensor& loss, call_site site = call_site::current()) {
    module_.backward(loss, std::nullopt, site);
  }

  /// This rank's parts of the parameters that get gradients, in the model's order: leaves, which
  /// share memory with the parameters. A part may have no elements.
  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> parts;
    for (const auto& leaf : module_.leaves()) parts.push_back(leaf->stepped);
    return parts;
  }
  /// The parts of some, for a group of an optimizer with options of its own:
  /// zero.parameters(model->head->parameters()). Leaves out frozen ones. Throws usage_error for a
  /// tensor that is no parameter of the model.
  [[nodiscard]] std::vector<at::Tensor> parameters(const std::vector<at::Tensor>& some) const;

  /// Collective. Scales the gradients so that their norm, as one vector of the whole model, is at
  /// most `max_norm`, and returns what it was: torch::nn::utils::clip_grad_norm_, which knows only
  /// one rank's parts.
  double clip_grad_norm(double max_norm, call_site site = call_site::current());

  /// Collective. optimizer.step(), after which all ranks have the new values. `optimizer` has
  /// tensors of parameters() alone; several optimizers may share them. Throws usage_error for
  /// another, and where gradients were only added up under no_sync().
  void step(::torch::optim::Optimizer& optimizer, call_site site = call_site::current());

  /// Collective. load_torch(module(), path): as there.
  void load(const std::string& path, call_site site = call_site::current()) {
    write([&] { load_torch(model_, path, site); });
  }
  /// Collective. The state of an optimizer of parameters() as if it were of the model's whole
  /// parameters: rank 0 writes the file that torch::save(optimizer, path) writes in one process.
  void save_optimizer(const ::torch::optim::Optimizer& optimizer, const std::string& path,
                      call_site site = call_site::current()) {
    detail::save_whole_optimizer(optimizer, path, module_.leaves(), units_->plan(), group_, site);
  }
  /// Local; call it on all ranks. Reads such a file, on any number of ranks. As torch::load does,
  /// it leaves options (the learning rate) alone.
  void load_optimizer(::torch::optim::Optimizer& optimizer, const std::string& path) {
    detail::load_optimizer_parts(optimizer, path, module_.leaves(), units_->plan(), group_.rank());
  }

  /// While the result lives, passes add up on this rank; the first one after it sums them.
  no_sync_scope no_sync() noexcept { return no_sync_scope(units_->reducer().synchronising()); }
  /// Resets all gradients. Those of libtorch's modules and optimizers do as well.
  void zero_grad() { units_->zero_grad(); }
  /// Collective. Copies rank 0's buffers to all ranks.
  void broadcast_buffers(call_site site = call_site::current()) {
    detail::send_buffers(model_, group_, site);
  }

  /// As torch_ddp's.
  void raise_flag() noexcept { units_->reducer().raise_flag(); }
  [[nodiscard]] bool flag_raised() noexcept { return units_->reducer().flag_raised(); }
  [[nodiscard]] reduction_times times() const noexcept { return units_->reducer().times(); }

  [[nodiscard]] Model& module() noexcept { return model_; }
  [[nodiscard]] process_group& group() noexcept { return group_; }

 private:
  [[nodiscard]] unit_plan plan_of(const torch_zero_options& options) const;
  void require_alike(const unit_plan& plan, const torch_zero_options& options, call_site site);

  /// Makes the values of all parts readable, which the ranks have written.
  void open() {
    for (std::size_t unit = 0; unit < units_->plan().units().size(); ++unit) units_->open(unit);
    module_.note_values();
  }
  /// Collective. Runs f, which writes values of this rank's parts.
  void write(auto f) {
    for (std::size_t unit = units_->plan().units().size(); unit-- > 0;) units_->close(unit);
    units_->about_to_write();
    std::exception_ptr failure;  // other ranks may not have failed, and open theirs
    try {
      f();
    } catch (...) {
      failure = std::current_exception();
    }
    open();
    if (failure) std::rethrow_exception(failure);
  }

  Model& model_;
  process_group& group_;
  detail::sharded_torch_module module_;
  std::unique_ptr<detail::sharded_units> units_;
};

template <detail::holds_torch_module Holder>
torch_zero(Holder&, process_group&, torch_zero_options = {})
    -> torch_zero<std::remove_cvref_t<decltype(*std::declval<Holder&>())>>;

template <std::derived_from<::torch::nn::Module> Model>
std::vector<at::Tensor> torch_zero<Model>::parameters(const std::vector<at::Tensor>& some) const {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& each : some) {
    const auto is_it = [&](const auto& leaf) { return leaf->parameter.is_same(each); };
    const auto found = std::find_if(module_.leaves().begin(), module_.leaves().end(), is_it);
    if (found != module_.leaves().end()) parts.push_back((*found)->stepped);
    else
      require(!each.requires_grad(), "{}: a tensor {} is none of the model's parameters",
              module_.who(), joined_text(each.sizes()));
  }
  return parts;
}

template <std::derived_from<::torch::nn::Module> Model>
double torch_zero<Model>::clip_grad_norm(double max_norm, call_site site) {
  units_->reducer().before_step();
  const at::NoGradGuard guard;
  double squares = 0;
  for (const auto& leaf : module_.leaves()) {
    const at::Tensor& grad = leaf->stepped.grad();
    if (grad.defined()) squares += std::pow(grad.norm(2, at::kDouble).template item<double>(), 2);
  }
  all_reduce(group_, std::span(&squares, 1), {.order = reduction_order::serial}, site);
  const double norm = std::sqrt(squares), factor = max_norm / (norm + 1e-6);
  for (const auto& leaf : module_.leaves()) {
    at::Tensor& grad = leaf->stepped.mutable_grad();
    if (grad.defined() && !(factor >= 1)) grad.mul_(factor);
  }
  return norm;
}

template <std::derived_from<::torch::nn::Module> Model>
void torch_zero<Model>::step(::torch::optim::Optimizer& optimizer, call_site site) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& each : group.params()) {
      const auto is_it = [&](const auto& leaf) { return leaf->stepped.is_same(each); };
      require(std::any_of(module_.leaves().begin(), module_.leaves().end(), is_it),
              "{}: step at {}: the optimizer has a tensor [{}] that is not one of this rank's "
              "parts: make it of zero.parameters(), not of model->parameters()",
              module_.who(), site, joined_text(each.sizes()));
    }
  }
  require(dynamic_cast<::torch::optim::LBFGS*>(&optimizer) == nullptr,
          "{}: step at {}: LBFGS needs the whole gradient as one vector, and a rank has a part: "
          "use it with torch_ddp",
          module_.who(), site);
  module_.check_unchanged();
  units_->reducer().before_step();
  write([&] { optimizer.step(); });
}

template <std::derived_from<::torch::nn::Module> Model>
unit_plan torch_zero<Model>::plan_of(const torch_zero_options& options) const {
  std::vector<unit_parameter> parameters;
  std::vector<bucket_parameter> sizes;
  for (const auto& leaf : module_.leaves()) {
    const dtype type = dtype_of_torch(leaf->parameter.scalar_type()).value();
    parameters.push_back({leaf->name, {}, type, parx::shape(std::span(leaf->shape))});
    sizes.push_back({type, leaf->parameter.nbytes()});
  }
  // A bucket is a unit, by a number before the names of its parameters.
  const std::vector<bucket_plan> buckets = assign_buckets(sizes, options.buckets);
  std::vector<std::string> units;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    units.push_back(std::to_string(i));
    for (const bucket_item& each : buckets[buckets.size() - 1 - i].items) {
      parameters[each.parameter].name = formatted("{}.{}", i, parameters[each.parameter].name);
    }
  }
  return {parameters, units, static_cast<std::size_t>(group_.size())};
}

template <std::derived_from<::torch::nn::Module> Model>
void torch_zero<Model>::require_alike(const unit_plan& plan, const torch_zero_options& options,
                                      call_site site) {
  const std::string wrapped = formatted("stage {}, {} buckets, order {}\n", options.stage,
                                        plan.flats().size(), static_cast<int>(options.order));
  detail::require_same_model(group_, wrapped + module_.description(), module_.who(), site);
}

}  // namespace parx
