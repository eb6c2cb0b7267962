// sharded_parameter: two views of a parameter under fsdp: the whole, which the model's operations
// use, and this rank's part, which optimizers, clipping and checkpoints use.
//
// The whole keeps its shape and its address. Its values can be read while its unit computes (it is
// open). A read at other times asks closed_reads to open it; where that refuses, the read is a
// usage_error that names the parameter. The part has the parameter's name, and its spec says which
// elements it has. If the layer is already cut over other ranks (tensor parallelism), "the whole"
// is this rank's part of the layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/init.hpp>
#include <parx/reduction/rows/replica_row_table.hpp>
#include <parx/reduction/rows/row_table.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI::detail {

/// Notified of reads of parameters whose unit is not open.
class closed_reads {
 public:
  /// Opens the unit of this parameter for the module that computes; false if none does.
  [[nodiscard]] virtual bool open_unit_of(std::size_t parameter) = 0;

 protected:
  ~closed_reads() = default;
};

/// The interface, independent of the element type.
class sharded_parameter {
 public:
  sharded_parameter(const sharded_parameter&) = delete;
  sharded_parameter& operator=(const sharded_parameter&) = delete;
  virtual ~sharded_parameter() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The shape of the whole, and which part of the model's parameter the whole is.
  [[nodiscard]] const shape& extents() const noexcept { return extents_; }
  [[nodiscard]] const shard_spec& spec() const noexcept { return spec_; }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] std::size_t whole_bytes() const noexcept {
    return extents_.size() * size_of(type_);
  }

  /// Whether the part gets gradients: the whole was not frozen, or has been unfrozen since.
  [[nodiscard]] virtual bool is_trained() const = 0;
  /// Whether the whole is frozen now, and gets no gradient here.
  [[nodiscard]] virtual bool is_frozen() const = 0;
  // The values that the model came with.
  [[nodiscard]] virtual bool has_values() const = 0;
  [[nodiscard]] virtual void* values() const = 0;
  /// Whether they stay in the caller's memory: parameter::stay_in.
  [[nodiscard]] virtual bool stays() const = 0;

  /// Puts the whole at `whole`, which may have no memory yet, and the part at `part`. Drops the
  /// values that the model came with. `unit` is the unit's name in errors.
  virtual void place(std::byte* whole, std::byte* part, const shard_spec& spec,
                     std::string unit) = 0;
  /// Instead of place(), for a table: this rank's part is some of its rows.
  virtual any_row_table& cut_by_rows(const row_groups& groups, call_site site) = 0;
  /// Allows reads of the whole.
  virtual void open() noexcept = 0;
  /// From now on a read of the whole asks the reads that it is attached to.
  virtual void close() noexcept = 0;

  [[nodiscard]] virtual bool has_whole_grad() const = 0;
  virtual void bind_whole_grad(std::byte* memory) const = 0;
  /// Moves the gradient, if there is one, to memory of the parameter's own.
  virtual void unbind_whole_grad() const = 0;
  virtual void unbind_part_grad() const = 0;
  /// The bound memory no longer holds a gradient: something else was written there.
  virtual void forget_whole_grad() const = 0;
  [[nodiscard]] virtual bool has_part_grad() const = 0;
  virtual void bind_part_grad(std::byte* memory) const = 0;
  virtual void assume_part_grad() const = 0;
  /// Of the whole and of the part.
  virtual void zero_grad() const = 0;
  /// The whole has another value, because a step has changed the part.
  virtual void note_change() const = 0;
  /// The part was frozen with the whole, which has been unfrozen.
  virtual void unfreeze_part() const = 0;

  virtual void attach(backward_observer& whole, backward_observer& part, closed_reads& reads,
                      std::size_t index) = 0;
  /// The parts are spread over `axis`, within those over which the layer is cut already.
  virtual void spread_over(std::shared_ptr<gradient_axis> axis) = 0;

 protected:
  sharded_parameter(std::string name, const shard_spec& whole, dtype type)
      : name_(std::move(name)), spec_(whole), extents_(whole.shape()), type_(type) {}

 private:
  std::string name_;
  shard_spec spec_;
  shape extents_;
  dtype type_;
};

template <typename T>
class sharded_parameter_of final : public sharded_parameter, private deferred_updates<T> {
 public:
  sharded_parameter_of(const std::string& name, parameter<T> whole)
      : sharded_parameter(name, whole.spec(), dtype_of<T>), whole_(std::move(whole)),
        part_(name, whole_.global_shape()) {
    if (!whole_.requires_grad()) part_.freeze();
    if (whole_.is_exempt_from_decay()) part_.exempt_from_decay();
    if (whole_.is_table()) part_.mark_table();
  }
  ~sharded_parameter_of() override {
    table_.reset();
    open();
    whole_.zero_grad();
    whole_.unbind_grad();
    whole_.detach_observer();
    whole_.forget_values();
    part_.detach_observer();
    part_.set_places({});
    part_.unbind();
  }

  [[nodiscard]] parameter<T>& part() noexcept { return part_; }

  /// Initializes the part to its elements of what `start` would give the whole with this seed.
  void fill_part(const nn::initializer& start, std::uint64_t seed) const {
    start.fill(part_.value(), seed, this->name(), part_.spec());
  }

  [[nodiscard]] bool is_trained() const override { return part_.requires_grad(); }
  [[nodiscard]] bool is_frozen() const override { return !whole_.requires_grad(); }
  [[nodiscard]] bool has_values() const override { return whole_.has_values(); }
  [[nodiscard]] void* values() const override { return whole_.value().data(); }
  [[nodiscard]] bool stays() const override { return whole_.stays(); }

  void place(std::byte* whole, std::byte* part, const shard_spec& spec,
             std::string unit) override {
    unit_ = std::move(unit);
    part_.keep_part(spec);
    part_.bind_value({reinterpret_cast<T*>(part), spec.size()});
    whole_.forget_values();
    whole_.bind_value({reinterpret_cast<T*>(whole), whole_.shape().size()});
    close();
  }
  any_row_table& cut_by_rows(const row_groups& groups, call_site site) override {
    if (groups.virtual_replicas == 0) table_.reset(new row_table<T>(groups, whole_, part_, site));
    else table_.reset(new replica_row_table<T>(groups, whole_, part_, site));
    return *table_;
  }
  void open() noexcept override { whole_.watch_reads(nullptr); }
  void close() noexcept override { whole_.watch_reads(this); }

  [[nodiscard]] bool has_whole_grad() const override { return whole_.has_grad(); }
  void bind_whole_grad(std::byte* memory) const override {
    whole_.bind_grad({reinterpret_cast<T*>(memory), whole_.shape().size()});
  }
  void unbind_whole_grad() const override { whole_.unbind_grad(); }
  void unbind_part_grad() const override { part_.unbind_grad(); }
  void forget_whole_grad() const override {
    whole_.assume_grad();  // discards the recorded rows, which are out of date
    whole_.zero_grad();
  }
  [[nodiscard]] bool has_part_grad() const override { return part_.has_grad(); }
  void bind_part_grad(std::byte* memory) const override {
    part_.bind_grad({reinterpret_cast<T*>(memory), part_.shape().size()});
  }
  void assume_part_grad() const override { part_.assume_grad(); }
  void zero_grad() const override {
    whole_.zero_grad();
    part_.zero_grad();
  }
  void note_change() const override { whole_.note_change(); }
  void unfreeze_part() const override { part_.unfreeze(); }
  void attach(backward_observer& whole, backward_observer& part, closed_reads& reads,
              std::size_t index) override {
    whole_.attach(&whole, index);
    part_.attach(&part, index);
    reads_ = &reads;
    index_ = index;
  }
  void spread_over(std::shared_ptr<gradient_axis> axis) override {
    gradient_places places = whole_.places();
    if (axis != nullptr) places.push_back({std::move(axis)});
    part_.set_places(std::move(places));
  }

 private:
  // deferred_updates: called on a read of the whole while it is closed.
  void settle(const tensor<T>& /*value*/) override { open_for_a_read(); }
  void settle(const tensor<T>& /*value*/, std::span<const std::size_t> /*rows*/) override {
    open_for_a_read();
  }
  void open_for_a_read() {
    if (reads_ != nullptr && reads_->open_unit_of(index_)) return;
    throw_usage(
        "parameter \"{}\" {} is sharded: its values are here while {} computes, and this "
        "read is outside of that. Call the module itself, module(x), not its forward(x); save with "
        "parx::save of what wraps it; read values by for_each_whole_value() of a parallel model, "
        "or under `auto whole = wrapper.gathered(parameter);` of an fsdp, on all ranks; and call "
        "methods of the model other than forward in call([&] {{ ... }}) of an fsdp",
        this->name(), to_string(whole_.shape()), unit_);
  }

  const parameter<T> whole_;
  parameter<T> part_;
  std::string unit_;
  closed_reads* reads_ = nullptr;
  std::size_t index_ = 0;
  std::unique_ptr<row_table<T>> table_;
};

}  // namespace parx::detail
