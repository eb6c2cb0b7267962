// sharded_parameter: a parameter of a model under fsdp, twice: the whole, as the model's operations
// use it, and the part which lies here, as optimizers, clipping and checkpoints do.
//
// The whole keeps its shape, and is at one address for good; its values can be read while its unit
// computes (open), and are a usage_error that names it otherwise. The part has the parameter's name
// and says by its spec which elements it is. Where layers are cut over other ranks (tensor
// parallel), what lies here of the parameter stands for the whole, and the part is a part of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/fsdp/row_table.hpp>
#include <parx/nn/init.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI::detail {

/// Of any element type.
class sharded_parameter {
 public:
  sharded_parameter(const sharded_parameter&) = delete;
  sharded_parameter& operator=(const sharded_parameter&) = delete;
  virtual ~sharded_parameter() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Of the whole; which part of the model's parameter that is, says spec().
  [[nodiscard]] const shape& extents() const noexcept { return extents_; }
  [[nodiscard]] const shard_spec& spec() const noexcept { return spec_; }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] std::size_t whole_bytes() const noexcept {
    return extents_.size() * size_of(type_);
  }

  [[nodiscard]] virtual bool is_trained() const = 0;
  // The values that the model came with.
  [[nodiscard]] virtual bool has_values() const = 0;
  [[nodiscard]] virtual const void* values() const = 0;

  /// From now on the whole is at `whole`, without memory maybe, and the part at `part`. What values
  /// the model came with is dropped. `unit` is what errors call the unit.
  virtual void place(std::byte* whole, std::byte* part, const shard_spec& spec,
                     std::string unit) = 0;
  /// Instead of place(): this rank's part are rows. See row_table for the groups.
  virtual row_table_part& cut_by_rows(const row_groups& groups, call_site site) = 0;
  /// Whether the values of the whole may be read.
  virtual void open() noexcept = 0;
  virtual void close() noexcept = 0;

  [[nodiscard]] virtual bool has_whole_grad() const = 0;
  virtual void bind_whole_grad(std::byte* memory) const = 0;
  /// Its gradient is in memory of its own, if there is one.
  virtual void unbind_whole_grad() const = 0;
  /// Somebody has written its memory, and it holds no gradient.
  virtual void forget_whole_grad() const = 0;
  [[nodiscard]] virtual bool has_part_grad() const = 0;
  virtual void bind_part_grad(std::byte* memory) const = 0;
  virtual void assume_part_grad() const = 0;
  /// Of both.
  virtual void zero_grad() const = 0;

  virtual void attach(backward_observer& whole, backward_observer& part,
                      std::size_t index) const = 0;

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
  }
  ~sharded_parameter_of() override {
    table_.reset();
    open();
    whole_.zero_grad();
    whole_.unbind_grad();
    whole_.detach_observer();
    whole_.forget_values();
    part_.detach_observer();
    part_.unbind();
  }

  [[nodiscard]] const parameter<T>& whole() const noexcept { return whole_; }
  [[nodiscard]] parameter<T>& part() noexcept { return part_; }

  /// The first values of the part: those of the whole with this seed.
  void fill_part(const nn::initializer& start, std::uint64_t seed) const {
    start.fill(part_.value(), seed, this->name(), part_.spec());
  }

  [[nodiscard]] bool is_trained() const override { return part_.requires_grad(); }
  [[nodiscard]] bool has_values() const override { return whole_.has_values(); }
  [[nodiscard]] const void* values() const override { return whole_.value().data(); }

  void place(std::byte* whole, std::byte* part, const shard_spec& spec,
             std::string unit) override {
    unit_ = std::move(unit);
    part_.keep_part(spec);
    part_.bind_value({reinterpret_cast<T*>(part), spec.size()});
    whole_.forget_values();
    whole_.bind_value({reinterpret_cast<T*>(whole), whole_.shape().size()});
    close();
  }
  row_table_part& cut_by_rows(const row_groups& groups, call_site site) override {
    table_.reset(new row_table<T>(groups, whole_, part_, site));
    return *table_;
  }
  void open() noexcept override { whole_.watch_reads(nullptr); }
  void close() noexcept override { whole_.watch_reads(this); }

  [[nodiscard]] bool has_whole_grad() const override { return whole_.has_grad(); }
  void bind_whole_grad(std::byte* memory) const override {
    whole_.bind_grad({reinterpret_cast<T*>(memory), whole_.shape().size()});
  }
  void unbind_whole_grad() const override { whole_.unbind_grad(); }
  void forget_whole_grad() const override {
    whole_.assume_grad();  // what was known of its rows is no longer true
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
  void attach(backward_observer& whole, backward_observer& part,
              std::size_t index) const override {
    whole_.attach(&whole, index);
    part_.attach(&part, index);
  }

 private:
  // A read of the whole while it is closed.
  void settle(const tensor<T>& /*value*/) override { refuse(); }
  void settle(const tensor<T>& /*value*/, std::span<const std::size_t> /*rows*/) override {
    refuse();
  }
  void refuse() const {
    throw_usage(
        "parameter \"{}\" {} is sharded by fsdp: its values are here while {} computes, and this "
        "read is outside of that. Call the module itself, module(x), not its forward(x); read "
        "values under `auto whole = fsdp.gathered(parameter);` on all ranks; and call methods of "
        "the model other than forward in fsdp.call([&] {{ ... }})",
        this->name(), to_string(whole_.shape()), unit_);
  }

  const parameter<T> whole_;
  parameter<T> part_;
  std::string unit_;
  std::unique_ptr<row_table<T>> table_;
};

}  // namespace parx::detail
