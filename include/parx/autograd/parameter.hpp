// parameter<T>: a named leaf. Modules consist of them; wrappers and optimizers work on them.
//
// It knows its shape before it has memory. Values come later, from initialize() or the first call
// of its module, a checkpoint, or a wrapper; reading them before is a usage_error. A wrapper that
// gives this rank only a part of it says which (keep_part) before there are values.
//
// Value and gradient may be in memory that a wrapper owns: bind_value and bind_grad (a flat FSDP
// unit, a DDP bucket). All handles of a parameter see the change. A handle, like variable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/autograd/parameter_handle.hpp>
#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI {

/// A gradient that is zero outside `rows` (axis 0, ascending). Only these rows of `values` may be
/// written.
template <typename T>
struct row_gradient {
  tensor<T> values;
  std::span<const std::size_t> rows;
};

template <typename T>
class parameter : public variable<T>,
                  public row_sparse_parameter,
                  public placed_parameter,
                  public freezable_parameter,
                  public grouped_parameter {
 public:
  parameter() noexcept = default;
  /// Of this shape, without values.
  parameter(std::string name, const parx::shape& whole)
      : parameter(std::move(name), tensor<T>::without_memory(whole)) {}
  parameter(std::string name, tensor<T> value) : variable<T>(value.contiguous(), gradient::wanted) {
    rename(std::move(name));
    leaf("parameter").spec = shard_spec::whole(this->shape());
  }

  [[nodiscard]] const std::string& name() const { return leaf("name").name; }
  void rename(std::string name) const { leaf("rename").name = std::move(name); }

  /// A frozen parameter gets no gradient: it is a constant to operations.
  void freeze() const { leaf("freeze").requires_grad = false; }
  void unfreeze() const { leaf("unfreeze").requires_grad = true; }

  /// Names the group of ranks over which a wrapper sums its gradient, see
  /// reduction/reduction_group.hpp; empty for the wrapper's own. To be called before wrapping;
  /// throws usage_error after it.
  void reduce_over(std::string group) const {
    require(observer() == nullptr,
            "parameter \"{}\" has been wrapped already: call reduce_over(\"{}\") before", name(),
            group);
    leaf("reduce_over").reduction_group = std::move(group);
  }
  [[nodiscard]] const std::string& reduction_group() const {
    return leaf("reduction_group").reduction_group;
  }

  /// The ranks that have other parts or copies of its gradient, as wrappers have noted them.
  [[nodiscard]] const gradient_places& places() const { return leaf("places").places; }
  void set_places(gradient_places places) const {
    leaf("set_places").places = std::move(places);
  }

  // The part of it on this rank. shape(), values and gradient are those of the part.

  /// All of it, unless keep_part() was called.
  [[nodiscard]] const shard_spec& spec() const { return leaf("spec").spec; }
  [[nodiscard]] const parx::shape& global_shape() const { return spec().global_shape(); }
  /// From now on this rank has only `part` of the parameter, and of its values, if there are any.
  /// Its gradient is dropped. Throws usage_error when `part` is of another global shape, or would
  /// have values that are not on this rank.
  void keep_part(const shard_spec& part) const {
    const detail::leaf<T>& before = leaf("keep_part");
    require(part.global_shape() == global_shape(), "parameter \"{}\" of {} cannot be cut to {}",
            name(), before.spec.text(), part.text());
    require(!stays() || part == spec(),
            "the values of parameter \"{}\" stay in the caller's memory: it cannot be cut to {}",
            name(), part.text());
    require(before.observer == nullptr,
            "parameter \"{}\" belongs to a wrapper already: cut it before it is wrapped", name());
    const tensor<T> values = has_values() ? part_of_values(part) : tensor<T>();
    watch_reads(nullptr);
    have(part);
    if (values.defined()) this->shared().value = values;
  }
  /// The inverse: it is all of the parameter again, without values, gradient and places.
  void become_whole() const {
    watch_reads(nullptr);
    have(shard_spec::whole(global_shape()));
    set_places({});
  }

  // Memory.

  [[nodiscard]] bool has_values() const noexcept { return this->shared().value.defined(); }
  /// value(), with uninitialised memory where there is none yet: the caller then writes all of it.
  [[nodiscard]] const tensor<T>& allocate() const {
    if (!has_values()) this->shared().value = tensor<T>::empty(this->shape());
    return this->value();
  }

  /// From now on the value is in `memory`, which the caller keeps alive until the next bind_value,
  /// unbind or the parameter's end. Existing values are copied there; without any, the contents of
  /// `memory` become the value. Throws usage_error when the sizes differ.
  void bind_value(std::span<T> memory) const {
    const tensor<T> bound = tensor<T>::wrap(memory, this->shape());
    if (stays()) {
      require(
          memory.data() == this->shared().value.data(),
          "the values of parameter \"{}\" stay in the caller's memory: no wrapper can move them",
          name());
      return;
    }
    if (has_values()) bound.copy_from(this->value());
    this->shared().value = bound;
  }
  /// The values are in `memory`, of the caller, from now on: wrappers neither move nor drop them.
  void stay_in(std::span<T> memory) const {
    bind_value(memory);
    leaf("stay_in").stays = true;
  }
  [[nodiscard]] bool stays() const { return leaf("stays").stays; }
  /// Releases the memory of the values: it has none until it gets others.
  void forget_values() const {
    if (!stays()) this->shared().value = tensor<T>::without_memory(this->shape());
  }
  /// Gradients go to `memory` from now on; an existing gradient is copied there. The same lifetime.
  void bind_grad(std::span<T> memory) const { leaf("bind_grad").bind(memory); }
  /// The same for memory that is all zero; drops an existing gradient. Where embeddings are the
  /// only users, only the rows of a batch are written: untouched pages take no physical memory.
  void bind_zeroed_grad(std::span<T> memory) const { leaf("bind_zeroed_grad").bind_zeroed(memory); }
  /// The gradient returns to memory of its own. Without memory for that, there is none any more.
  void unbind_grad() const noexcept { leaf("unbind_grad").unbind(); }
  /// Value and gradient return to memory of their own. Without memory for that, there are none any
  /// more.
  void unbind() const noexcept {
    unbind_grad();
    if (stays() || !has_values()) return;
    try {
      if (!this->value().is_unique()) this->shared().value = this->value().clone();
    } catch (const std::bad_alloc&) {
      forget_values();
    }
  }

  /// Says that a step has changed the value: backward refuses graphs that used the earlier one. An
  /// optimizer calls it, and so should code of your own that writes values during training.
  void note_change() const {
    leaf("note_change").changed_at = detail::node_base::next_sequence();
    if (backward_observer* const wrapper = observer())
      wrapper->value_changed(leaf("note_change").observer_index);
  }

  // Gradient.

  /// Some backward since zero_grad() has contributed, or assume_grad() was called.
  [[nodiscard]] bool has_grad() const { return leaf("has_grad").has_gradient(); }
  /// Says that the bound memory now has the gradient, written by a wrapper (an all-reduced bucket,
  /// even if this rank did not use the parameter). Needed after every write by anything but
  /// operations.
  void assume_grad() const { leaf("assume_grad").assume_written(); }
  /// The rows (axis 0, ascending) with contributions since zero_grad(); all other rows are zero.
  /// nullopt where that is not known: a user other than an embedding contributed, or grad() was
  /// called, whose result may be written anywhere. Valid until the next backward.
  [[nodiscard]] std::optional<std::span<const std::size_t>> touched_rows() const {
    return leaf("touched_rows").rows();
  }

  /// The gradient with its touched_rows(). Unlike grad(), it keeps track of the touched rows.
  [[nodiscard]] std::optional<row_gradient<T>> row_grad() const {
    const auto rows = touched_rows();
    if (!rows) return std::nullopt;
    return row_gradient<T>{leaf("row_grad").gradient, *rows};
  }
  /// For a wrapper that adds the contributions of other ranks: adds `rows` to touched_rows() and
  /// returns the gradient's memory. A row that was not touched before is zero.
  [[nodiscard]] tensor<T> add_rows(std::span<const std::size_t> rows) const {
    return leaf("add_rows").row_memory(rows);
  }
  /// For a wrapper that will write rows of an absent gradient before it calls add_rows(): makes the
  /// memory zero. Does nothing to an existing gradient.
  void clear_rows() const { leaf("clear_rows").clear_absent(); }
  /// A hint that embeddings will be its users (nn::embedding gives it), so that a wrapper can
  /// handle its gradient apart from others. touched_rows() says what really happened.
  void expect_row_grad() const { leaf("expect_row_grad").expects_rows = true; }
  [[nodiscard]] bool expects_row_grad() const { return leaf("expects_row_grad").expects_rows; }

  /// Says that weight decay is not meant for it, as layers do of their biases, and norms of all
  /// that they have: see optim::decay_groups.
  void exempt_from_decay() const { leaf("exempt_from_decay").is_without_decay = true; }
  [[nodiscard]] bool is_exempt_from_decay() const {
    return leaf("is_exempt_from_decay").is_without_decay;
  }

  /// Says that each row (axis 0) is that of a word or a position, as nn::embedding does: a file may
  /// have more or fewer of them, see state_match::common_rows.
  void mark_table() const { leaf("mark_table").is_table = true; }
  [[nodiscard]] bool is_table() const { return leaf("is_table").is_table; }

  /// Where the program has clipped this gradient; line 0 where it has not, or something has been
  /// added to it since.
  void note_clipped(call_site site) const { leaf("note_clipped").clipped_at = site; }
  [[nodiscard]] call_site clipped_at() const { return leaf("clipped_at").clipped_at; }

  // Postponed updates: see deferred_updates.

  /// Until stop_deferring(), each read of the value has `updates` settled first. Those of another
  /// optimizer are settled now.
  void defer(deferred_updates<T>* updates) const {
    if (this->shared().deferred == updates) return;
    (void)this->value();
    this->shared().deferred = updates;
  }
  /// Settles and removes `updates` if they are registered. To be called before they are destroyed.
  void stop_deferring(const deferred_updates<T>* updates) const noexcept {
    if (this->shared().deferred != updates) return;
    (void)this->value();
    this->shared().deferred = nullptr;
  }
  /// From now on each read of the value calls a wrapper's `reads` first, instead of postponed
  /// updates; nullptr: none any more. Does not apply earlier ones.
  void watch_reads(deferred_updates<T>* reads) const noexcept { this->shared().deferred = reads; }
  /// Whether only the handles of this parameter can read the value's memory.
  [[nodiscard]] bool may_defer() const noexcept { return this->shared().value.is_unique(); }

  // Observation.

  /// Reports to `observer` from the next backward on, under `index`. Replaces an earlier observer.
  /// The observer must detach before it is destroyed.
  void attach(backward_observer* observer, std::size_t index) const {
    leaf("attach").observer = observer;
    leaf("attach").observer_index = index;
  }
  void detach_observer() const { leaf("detach_observer").observer = nullptr; }
  [[nodiscard]] backward_observer* observer() const { return leaf("observer").observer; }
  [[nodiscard]] std::size_t observer_index() const { return leaf("observer_index").observer_index; }

 private:
  using variable<T>::leaf;

  /// A copy of the values of `part`, which lies within this rank's part.
  [[nodiscard]] tensor<T> part_of_values(const shard_spec& part) const {
    const tensor<T> from = this->value();
    tensor<T> to = tensor<T>::empty(part.shape());
    std::size_t copied = 0;
    for_each_common_run(spec(), part, [&](std::size_t at, std::size_t target, std::size_t length) {
      std::copy_n(from.data() + at, length, to.data() + target);
      copied += length;
    });
    require(copied == part.size(), "parameter \"{}\": this rank has {}, which cannot be cut to {}",
            name(), spec().text(), part.text());
    return to;
  }
  /// Becomes `part` of the parameter, without values.
  void have(const shard_spec& part) const {
    const detail::leaf<T>& before = leaf("have");
    auto after = detail::counted<detail::node<T>>(new detail::leaf<T>(part.shape()));
    auto& now = static_cast<detail::leaf<T>&>(*after);
    now.name = before.name;
    now.requires_grad = before.requires_grad;
    now.expects_rows = before.expects_rows && !part.is_flat();
    now.spec = part;
    now.is_without_decay = before.is_without_decay;
    now.is_table = before.is_table;
    now.reduction_group = before.reduction_group;
    now.places = before.places;
    this->shared().node = std::move(after);
    this->shared().value = tensor<T>::without_memory(part.shape());
  }
};

}  // namespace parx
