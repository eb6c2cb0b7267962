// torch_module: a libtorch module as a distributed_module of parx's wrappers. It tells the wrapper
// of every backward pass of libtorch's engine, however the pass was started.
//
// A leaf's gradient is final for a pass when its AccumulateGrad node has run, which all uses of the
// parameter meet in. A hook before the first such node begins the pass: the engine knows by then
// which nodes the pass will run, so a parameter that it does not reach needs no search. A hook
// behind each node copies the gradient into the wrapper's memory and makes grad() a view of that.
// The pass ends in a callback that the engine runs behind the last node, and destroys without
// running it when the pass fails.
//
// libtorch adds a pass to the gradient of earlier ones until zero_grad(). Means over ranks cannot
// be added to before they are summed, so what an earlier step left in grad() is set aside while the
// pass is summed, and added again at its end. zero_grad() may reset gradients or fill them with
// zeros.
//
// Threads: as the module; backward may be called by any one thread at a time.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#undef CHECK

#include <parx/autograd/observer.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/torch/dtype.hpp>
#include <parx/torch/leaf.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::detail {

/// A shared_ptr of a module, or what TORCH_MODULE defines.
template <typename Holder>
concept holds_torch_module = requires(Holder& holder) {
  requires std::derived_from<std::remove_cvref_t<decltype(*holder)>, ::torch::nn::Module>;
};

/// Collective: all ranks get rank 0's elements, in memory of any strides.
inline void send_from_rank_0(const at::Tensor& tensor, process_group& group, call_site site) {
  const at::NoGradGuard guard;
  at::Tensor memory = tensor.contiguous();
  broadcast(group, std::span(static_cast<std::byte*>(memory.data_ptr()), memory.nbytes()),
            {.root = 0}, site);
  if (!memory.is_same(tensor)) tensor.detach().copy_(memory);
}
inline void send_buffers(const ::torch::nn::Module& model, process_group& group, call_site site) {
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) send_from_rank_0(item.value(), group, site);
  }
}

class torch_module {
 public:
  /// `who` begins errors. Throws usage_error for a parameter that parx cannot sum, by its name.
  /// Gradients of embeddings made with .sparse(true) have the layout `of_tables`.
  torch_module(::torch::nn::Module& model, std::string who, gradient_kind of_tables)
      : model_(model), who_(std::move(who)) {
    std::unordered_set<const void*> tables;
    const auto look_at = [&tables](const ::torch::nn::Module& module) {
      const auto* const table = module.as<::torch::nn::EmbeddingImpl>();
      if (table == nullptr || !table->options.sparse()) return;
      tables.insert(table->weight.unsafeGetTensorImpl());
    };
    look_at(model);
    for (const auto& module : model.modules(/*include_self=*/false)) look_at(*module);
    std::unordered_set<const void*> seen;  // a shared parameter has several names
    for (const auto& item : model.named_parameters()) {
      const at::Tensor& parameter = item.value();
      const void* const identity = parameter.unsafeGetTensorImpl();
      known_.push_back(identity);
      if (!seen.insert(identity).second) continue;
      require_sendable(parameter, "parameter \"" + item.key() + "\"", who_);
      if (!parameter.requires_grad()) {
        frozen_.emplace_back(item.key(), parameter);
        continue;
      }
      require(dtype_of_torch(parameter.scalar_type()).has_value(),
              "{}: parameter \"{}\" has elements of type {}; parx sums float, double, Half and "
              "BFloat16: convert the model before wrapping, or make it a buffer",
              who_, item.key(), at::toString(parameter.scalar_type()));
      const bool is_table = tables.contains(identity);
      follow(item.key(), parameter, is_table ? of_tables : gradient_kind::strided);
    }
    require(!leaves_.empty(),
            "{}: the model has no parameter that gets gradients: name its layers by "
            "register_module() and its tensors by register_parameter(), and leave some unfrozen",
            who_);
  }
  torch_module(const torch_module&) = delete;
  torch_module& operator=(const torch_module&) = delete;
  virtual ~torch_module() = default;

  /// Calls visitor(name, torch_parameter<T>&) for each parameter that gets gradients.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    for (const auto& leaf : leaves_) {
      switch (leaf->parameter.scalar_type()) {
        case at::kFloat:
          visit<float>(visitor, *leaf);
          break;
        case at::kDouble:
          visit<double>(visitor, *leaf);
          break;
        case at::kBFloat16:
          visit<bfloat16>(visitor, *leaf);
          break;
        case at::kHalf:
          visit<float16>(visitor, *leaf);
          break;
        default:  // refused
          break;
      }
    }
  }
  /// Those without gradients, with their names.
  [[nodiscard]] const std::vector<std::pair<std::string, at::Tensor>>& frozen() const noexcept {
    return frozen_;
  }
  /// The others.
  [[nodiscard]] const std::vector<std::unique_ptr<torch_leaf>>& leaves() const noexcept {
    return leaves_;
  }
  [[nodiscard]] const std::string& who() const noexcept { return who_; }

  /// loss.backward() for a loss that is the mean over `count` samples, or whose samples nobody has
  /// counted. Where it reaches no parameter, this rank takes part in the sums without a gradient;
  /// throws usage_error where no rank's loss reaches one.
  void backward(const at::Tensor& loss, std::optional<double> count, call_site site) {
    require(count.value_or(1) >= 0, "{}: backward at {}: the number of samples is not negative: {}",
            who_, site, count.value_or(1));
    require(loss.numel() == 1,
            "{}: backward at {}: a loss is one number, and this tensor has {}: take its mean()",
            who_, site, loss.numel());
    check_unchanged();
    const restored_count restored{*this};
    count_ = count;
    passes_ = 0;
    if (loss.requires_grad()) {
      if (!count) loss.backward();
      else if (*count > 0) loss.backward(at::full_like(loss, *count));
    }
    if (passes_ == 0 && observer() != nullptr) {
      running_pass pass(*this);
      begin({});
      pass.complete();
      require(
          has_gradients_ || count == 0 || observer()->adds_passes_up(),
          "{}: backward at {}: no rank's loss reaches a parameter of the model: it is detached, "
          "was computed under NoGradGuard, or by other parameters than the wrapped model's",
          who_, site);
    }
  }

  /// All parameters and buffers with shapes and types, one a line, to be compared over ranks.
  [[nodiscard]] std::string description() const {
    std::string text;
    const auto line = [&text](const std::string& name, const at::Tensor& of,
                              std::string_view what) {
      text += formatted("{} [{}] {}{}\n", name, joined_text(of.sizes()),
                        at::toString(of.scalar_type()), what);
    };
    for (const auto& leaf : leaves_) line(leaf->name, leaf->parameter, "");
    for (const auto& [name, parameter] : frozen_) line(name, parameter, ", frozen");
    for (const auto& item : model_.named_buffers()) {
      if (item.value().defined()) line(item.key(), item.value(), ", a buffer");
    }
    return text;
  }

  /// Throws usage_error where a parameter is no longer the one whose gradients are followed.
  virtual void check_unchanged() const {
    for (const auto& leaf : leaves_) check_unchanged(*leaf);
    for (const auto& [name, parameter] : frozen_) {
      require(
          !parameter.requires_grad(),
          "{}: parameter \"{}\" was frozen when the model was wrapped and wants a gradient now, "
          "which would stay on this rank: wrap the model again",
          who_, name);
    }
    std::size_t next = 0;
    for (const at::Tensor& each : model_.parameters()) {
      require(next < known_.size() && each.unsafeGetTensorImpl() == known_[next],
              "{}: the model's parameter [{}], number {}, is not the one that it had when it was "
              "wrapped. A layer was replaced or added, whose gradients would stay on this rank: "
              "wrap the model again, and make an optimizer of its parameters",
              who_, joined_text(each.sizes()), next);
      ++next;
    }
  }

 protected:
  /// Before the gradients of earlier passes are set aside, and after they have been added again.
  virtual void step_begins() {}
  virtual void step_ended() noexcept {}

 private:
  void check_unchanged(const torch_leaf& leaf) const {
    require(
        !leaf.parameter.requires_grad() ||
            ::torch::autograd::impl::try_get_grad_accumulator(leaf.parameter) == leaf.accumulator,
        "{}: parameter \"{}\" was converted (to(), double(), half()) or read by torch::load() "
        "after the model was wrapped, so its gradients would stay on this rank: convert the model "
        "first, and load it first, or by parx::load_torch()",
        who_, leaf.name);
  }

  using engine_nodes = std::unordered_set<::torch::autograd::Node*>;

  /// Runs before an accumulator writes.
  struct before_first final : ::torch::autograd::FunctionPreHook {
    explicit before_first(torch_module& of) : module(of) {}
    ::torch::autograd::variable_list operator()(
        const ::torch::autograd::variable_list& grads) override {
      module.enter();
      return grads;
    }
    torch_module& module;
  };
  /// In the engine's callback, which is copied: abandons the pass unless complete() ran.
  class running_pass {
   public:
    explicit running_pass(torch_module& of) : module_(of) {}
    running_pass(const running_pass&) = delete;
    running_pass& operator=(const running_pass&) = delete;
    ~running_pass() {
      if (!is_complete_) module_.abandon();
    }
    void complete() {
      module_.end();
      is_complete_ = true;
    }

   private:
    torch_module& module_;
    bool is_complete_ = false;
  };
  struct restored_count {
    torch_module& module;
    ~restored_count() { module.count_.reset(); }
  };

  void follow(const std::string& name, const at::Tensor& parameter, gradient_kind kind) {
    torch_leaf& leaf = *leaves_.emplace_back(std::make_unique<torch_leaf>(name, parameter, kind));
    leaf.accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
    for (const auto& hook : leaf.accumulator->pre_hooks()) {
      require(dynamic_cast<const before_first*>(hook.get()) == nullptr,
              "{}: parameter \"{}\" belongs to another wrapper that still lives: destroy "
              "that one first, or use it instead of a second one",
              who_, name);
    }
    // Of the tensor, so it runs after a conversion, too, when the accumulator is another one.
    leaf.check =
        parameter.register_hook([this, &leaf](const at::TensorBase&) { check_unchanged(leaf); });
    auto first = std::make_unique<before_first>(*this);
    leaf.pre_hook = first.get();
    leaf.accumulator->add_pre_hook(std::move(first));
    using ::torch::autograd::variable_list;
    leaf.post_hook =
        leaf.accumulator->add_post_hook(std::make_unique<::torch::autograd::utils::LambdaPostHook>(
            [this, &leaf](const variable_list& outputs, const variable_list& inputs) {
              ready(leaf, inputs.at(0));
              return outputs;
            }));
  }

  template <typename T>
  static void visit(auto& visitor, torch_leaf& leaf) {
    if (leaf.is_table) {
      torch_table<T> handle(leaf);
      visitor(leaf.name, handle);
    } else {
      torch_parameter<T> handle(leaf);
      visitor(leaf.name, handle);
    }
  }

  /// The wrapper's, the same for all leaves; null without one.
  [[nodiscard]] backward_observer* observer() const noexcept { return leaves_.front()->observer; }

  /// A gradient is about to be written: begins the pass if it is the first.
  void enter() {
    if (observer() == nullptr) return;
    const engine_nodes* const nodes = ::torch::autograd::get_current_graph_task_nodes_in_graph();
    if (is_running_) {
      require(nodes == nodes_,
              "{}: a backward pass began inside another one whose sums have begun (as by "
              "checkpointing behind the first gradient), and the wrapper sums one at a time",
              who_);
      return;
    }
    check_unchanged();
    require(!at::GradMode::is_enabled(),
            "{}: backward with create_graph: gradients that were summed over ranks "
            "have no graph. Use torch::autograd::grad for a penalty, and backward() for the whole "
            "loss",
            who_);
    begin(reached_by(*nodes));
    is_running_ = true;
    nodes_ = nodes;
    ++passes_;
    // Made in place: a copy that dies would abandon the pass.
    const auto pass = std::make_shared<running_pass>(*this);
    ::torch::autograd::Engine::get_default_engine().queue_callback([pass] { pass->complete(); });
  }

  /// The leaves that the running pass will reach, by the observer's indices, which ascend.
  [[nodiscard]] std::vector<std::size_t> reached_by(const engine_nodes& nodes) const {
    const auto* const executed = ::torch::autograd::get_current_graph_task_exec_info();
    std::vector<std::size_t> reached;
    for (const auto& leaf : leaves_) {
      ::torch::autograd::Node* const node = leaf->accumulator.get();
      bool runs = nodes.contains(node);
      if (executed != nullptr && !executed->empty()) {  // backward of some inputs only
        const auto found = executed->find(node);
        runs = found != executed->end() && found->second.should_execute();
      }
      if (runs) reached.push_back(leaf->index);
    }
    return reached;
  }

  void begin(const std::vector<std::size_t>& reached) {
    const at::NoGradGuard guard;
    if (observer()->adds_passes_up()) {
      drop_what_was_dropped();
    } else {
      step_begins();
      for (const auto& leaf : leaves_) leaf->set_grad_aside();
    }
    require(step_counts_.value_or(count_.has_value()) == count_.has_value(),
            "{}: in one step there was backward(loss, count) and loss.backward(), whose loss would "
            "weigh as one sample. Give the count in all passes of a step or in none",
            who_);
    static_cast<void>(observer()->wanted());
    observer()->begin_backward({.count = count_.value_or(1),
                                .reached = reached,
                                .of = gradient_of::sum,
                                .counted = count_ ? sample_count::given : sample_count::assumed});
    step_counts_ = count_.has_value();
  }

  /// Under no_sync(), where zero_grad() between two passes may have filled gradients with zero:
  /// the samples before it do not count.
  void drop_what_was_dropped() {
    bool had_grads = false;
    for (const auto& leaf : leaves_) {
      if (!leaf->is_filled) continue;
      had_grads = true;
      if (leaf->has_grad() && !leaf->was_zeroed()) return;
    }
    if (!had_grads) return;
    require(
        ++drops_ < 2,
        "{}: gradients of passes under no_sync() were dropped twice, without a pass that sums "
        "them over the ranks. If optimizer.step() came before, each rank has trained alone: let "
        "the result of no_sync() go before the last backward pass of a step",
        who_);
    for (const auto& leaf : leaves_) {
      leaf->drop_grad();
      leaf->set_aside.reset();
    }
    step_counts_.reset();
  }

  /// The gradient of this leaf is final in this pass, which has contributed this much.
  void ready(torch_leaf& leaf, const at::Tensor& contribution) {
    if (leaf.observer == nullptr) return;
    const at::NoGradGuard guard;
    at::Tensor& grad = leaf.parameter.mutable_grad();
    if (leaf.is_table && contribution.layout() == at::kSparse) {
      leaf.take_rows(contribution);
    } else {
      if (grad.layout() != at::kStrided) grad = grad.to_dense();
      leaf.rows.reset();
      if (leaf.view.defined() && !leaf.shows_view()) leaf.view.copy_(grad);
    }
    if (leaf.view.defined()) grad = leaf.view;
    leaf.is_filled = true;
    leaf.version = grad._version();
    leaf.observer->leaf_ready(leaf.index);
  }

  void end() {
    is_running_ = false;
    observer()->end_backward();
    if (observer()->adds_passes_up()) return;
    const at::NoGradGuard guard;
    drops_ = 0;
    step_counts_.reset();
    has_gradients_ = std::any_of(leaves_.begin(), leaves_.end(),
                                 [](const auto& leaf) { return leaf->stepped.grad().defined(); });
    for (const auto& leaf : leaves_) {
      if (leaf->is_table && leaf->shows_view()) leaf->show_rows();
      leaf->add_what_was_set_aside();
    }
    step_ended();
  }

  /// Leaves the gradients as the failed pass found them.
  void abandon() noexcept {
    is_running_ = false;
    step_counts_.reset();
    for (const auto& leaf : leaves_) {
      leaf->drop_grad();
      leaf->stepped.mutable_grad() = std::move(leaf->set_aside);
      leaf->set_aside.reset();
    }
    step_ended();
    if (observer() != nullptr) observer()->abandon_backward();
  }

  const ::torch::nn::Module& model_;
  const std::string who_;
  std::vector<const void*> known_;  ///< the model's parameters
  std::vector<std::unique_ptr<torch_leaf>> leaves_;
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  const engine_nodes* nodes_ = nullptr;  ///< of the running pass, by which it is known
  bool is_running_ = false;
  std::size_t passes_ = 0;
  bool has_gradients_ = false;  ///< any parameter, from the last sums
  int drops_ = 0;  ///< since the last sums
  std::optional<double> count_;      ///< samples of the running pass, where they are counted
  std::optional<bool> step_counts_;  ///< whether the passes of this step so far have counted
};

}  // namespace parx::detail
