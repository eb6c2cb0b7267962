// tensor<T>: a view of shared storage: a pointer, a shape and strides.
//
// A tensor is a handle, like std::span and std::shared_ptr in one: copying it copies no elements,
// and const protects the handle, not the elements. slice, select, transpose, permute, reshape of
// contiguous data, squeeze, unsqueeze and expand are views of the same memory. Threads: handles may
// be copied on any thread; writing elements needs synchronisation.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/cut_rows.hpp>
#include <parx/tensor/detail/loop_nest.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/storage.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class tensor {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);

 public:
  using value_type = T;

  /// Not a tensor yet: defined() is false, size() is 0.
  tensor() noexcept = default;
  /// The same with a shape, for memory that comes later.
  [[nodiscard]] static tensor without_memory(const parx::shape& s) {
    tensor result;
    result.shape_ = s;
    result.strides_ = contiguous_strides(s);
    return result;
  }

  // Factories. All return contiguous tensors.

  /// Uninitialised elements. Throws out_of_memory, as all factories do.
  [[nodiscard]] static tensor empty(const parx::shape& s) {
    tensor result;
    result.storage_ = storage::allocate(byte_count(s, sizeof(T)));
    result.data_ = static_cast<T*>(result.storage_.data());
    result.shape_ = s;
    result.strides_ = contiguous_strides(s);
    return result;
  }
  [[nodiscard]] static tensor full(const parx::shape& s, T value) {
    tensor result = empty(s);
    std::fill_n(result.data_, s.size(), value);
    return result;
  }
  [[nodiscard]] static tensor zeros(const parx::shape& s) { return full(s, T{}); }
  [[nodiscard]] static tensor ones(const parx::shape& s) { return full(s, T(1)); }
  [[nodiscard]] static tensor scalar(T value) { return full({}, value); }
  /// A copy of `values`, row by row. Throws usage_error when their number is not s.size().
  [[nodiscard]] static tensor from(std::span<const T> values, const parx::shape& s,
                                   call_site site = call_site::current()) {
    if (values.size() != s.size()) [[unlikely]] refuse_values(values.size(), s, site);
    tensor result = empty(s);
    std::copy(values.begin(), values.end(), result.data_);
    return result;
  }
  [[nodiscard]] static tensor from(std::initializer_list<T> values, const parx::shape& s,
                                   call_site site = call_site::current()) {
    return from(std::span<const T>(values.begin(), values.size()), s, site);
  }
  /// The same for numbers of another type, each converted to T.
  template <typename Values>
    requires(!std::convertible_to<const Values&, std::span<const T>>)
  [[nodiscard]] static tensor from(const Values& values, const parx::shape& s,
                                   call_site site = call_site::current()) {
    constexpr bool are_numbers = requires { static_cast<T>(*std::begin(values)); };
    static_assert(are_numbers,
                  "the values of a tensor are one flat range of numbers, row by row: "
                  "from(std::vector<float>(rows * columns), {rows, columns})");
    tensor result = empty(s);
    if constexpr (are_numbers) {
      const auto count = static_cast<std::size_t>(std::distance(std::begin(values),
                                                                std::end(values)));
      if (count != s.size()) [[unlikely]] refuse_values(count, s, site);
      std::transform(std::begin(values), std::end(values), result.data_,
                     [](const auto& each) { return static_cast<T>(each); });
    }
    return result;
  }
  /// first, first + step, first + 2 step, ...
  [[nodiscard]] static tensor iota(const parx::shape& s, T first = T(0), T step = T(1)) {
    tensor result = empty(s);
    for (std::size_t i = 0; i < s.size(); ++i) {
      result.data_[i] = static_cast<T>(first + static_cast<T>(i) * step);
    }
    return result;
  }
  /// A view of memory that `owner` keeps alive; without one the caller does, longer than all copies
  /// of the tensor.
  [[nodiscard]] static tensor wrap(std::span<T> memory, const parx::shape& s,
                                   std::shared_ptr<const void> owner = nullptr,
                                   call_site site = call_site::current()) {
    if (memory.size() != s.size()) [[unlikely]] refuse_values(memory.size(), s, site);
    tensor result;
    result.storage_ = storage::wrap(memory.data(), memory.size_bytes(), std::move(owner));
    result.data_ = memory.data();
    result.shape_ = s;
    result.strides_ = contiguous_strides(s);
    return result;
  }

  /// Extents without braces: a compile-time error that says what to do.
  template <std::integral... Extents>
  [[nodiscard]] static tensor empty(Extents...) {
    return explain_extents<Extents...>();
  }
  template <std::integral... Extents>
  [[nodiscard]] static tensor zeros(Extents...) {
    return explain_extents<Extents...>();
  }
  template <std::integral... Extents>
  [[nodiscard]] static tensor ones(Extents...) {
    return explain_extents<Extents...>();
  }

  // Properties.

  [[nodiscard]] bool defined() const noexcept { return data_ != nullptr; }
  [[nodiscard]] const parx::shape& shape() const noexcept { return shape_; }
  [[nodiscard]] const parx::strides& strides() const noexcept { return strides_; }
  [[nodiscard]] std::size_t rank() const noexcept { return shape_.rank(); }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return defined() ? shape_.size() : 0; }
  /// The extent of an axis; negative axes count from the end.
  [[nodiscard]] std::size_t extent(int axis) const { return shape_[resolve_axis(axis, shape_)]; }
  [[nodiscard]] bool is_contiguous() const noexcept {
    std::size_t step = 1;
    for (std::size_t axis = shape_.rank(); axis-- > 0;) {
      if (shape_[axis] != 1 && strides_[axis] != step) return size() == 0;
      step *= shape_[axis];
    }
    return true;
  }
  /// Whether no other tensor shares the memory.
  [[nodiscard]] bool is_unique() const noexcept { return storage_.unique(); }
  [[nodiscard]] bool shares_memory_with(const tensor& other) const noexcept {
    return storage_.same_as(other.storage_);
  }
  /// Identifies the memory: see storage::id.
  [[nodiscard]] std::uint64_t memory_id() const noexcept { return storage_.id(); }

  // Elements.

  /// Throws usage_error where there are no elements to read though the shape says so.
  void require_values() const {
    if (data_ == nullptr && shape_.size() > 0) [[unlikely]]
      refuse_undefined();
  }
  /// The first element; the others follow by strides().
  [[nodiscard]] T* data() const noexcept { return data_; }
  /// All elements in order. Throws usage_error unless the tensor is contiguous.
  [[nodiscard]] std::span<T> span(call_site = call_site::current()) const {
    require(is_contiguous(),
            "a tensor of shape {} that is a strided view has no span: call contiguous()",
            to_string(shape_));
    return {data_, size()};
  }
  // A contiguous tensor is a contiguous range, hence a buffer for every collective.
  [[nodiscard]] T* begin() const { return span().data(); }
  [[nodiscard]] T* end() const { return begin() + size(); }

  /// One element by its index on every axis, checked.
  template <typename... Index>
  requires(std::is_integral_v<Index>&&...) [[nodiscard]] T& at(Index... index) const {
    require(defined(), "a tensor that is not defined() has no elements: a gradient is absent "
                       "until a backward pass has reached it, and after zero_grad() or a step");
    require(sizeof...(Index) == rank(), "{} indices for a tensor of shape {}", sizeof...(Index),
            to_string(shape_));
    std::size_t axis = 0;
    std::size_t offset = 0;
    const auto step = [&](std::size_t i) {
      require(i < shape_[axis], "index {} on axis {} is outside a tensor of shape {}", i, axis,
              to_string(shape_));
      offset += i * strides_[axis++];
    };
    (step(static_cast<std::size_t>(index)), ...);
    return data_[offset];
  }
  /// For x(i, j) and x[i], which cannot be an element and a row: a compile-time error that says
  /// what to do.
  template <typename... Index>
  [[nodiscard]] T& operator()(Index... /*index*/) const {
    static_assert(sizeof...(Index) > max_rank,
                  "an element of a tensor is x.at(i, j), a row x.select(0, i), and all elements "
                  "are x.span()");
    return *data_;
  }
  template <typename Index>
  [[nodiscard]] T& operator[](Index index) const {
    return (*this)(index);
  }
  /// The one element of a tensor of size 1.
  [[nodiscard]] T item(call_site = call_site::current()) const {
    require(size() == 1, "item() needs a tensor of one element, this one has shape {}",
            to_string(shape_));
    return *data_;
  }

  void fill(T value) const {
    require(defined() || shape_.size() == 0, "fill() of a tensor of shape {} without memory",
            to_string(shape_));
    const detail::loop_nest<1> nest(shape_, {strides_});
    const std::size_t step = nest.run_step()[0];
    nest.for_each_run_by_threads([&](const auto& offset, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) data_[offset[0] + i * step] = value;
    });
  }
  /// Copies the elements of `source`, which must have the same shape.
  void copy_from(const tensor& source, call_site = call_site::current()) const;

  // Views: no element is copied.

  /// The part [begin, end) of an axis.
  [[nodiscard]] tensor slice(int axis, std::size_t begin, std::size_t end,
                             call_site = call_site::current()) const {
    const std::size_t at_axis = resolve_axis(axis, shape_);
    require(begin <= end && end <= shape_[at_axis],
            "slice [{}, {}) of axis {} is outside a tensor of shape {}; indices count from 0",
            static_cast<std::ptrdiff_t>(begin), static_cast<std::ptrdiff_t>(end), axis,
            to_string(shape_));
    tensor result = *this;
    result.data_ += begin * strides_[at_axis];
    result.shape_[at_axis] = end - begin;
    return result;
  }
  /// One index of an axis; the axis disappears.
  [[nodiscard]] tensor select(int axis, std::size_t index, call_site = call_site::current()) const {
    const std::size_t at_axis = resolve_axis(axis, shape_);
    require(index < shape_[at_axis],
            "index {} of axis {} is outside a tensor of shape {}; indices count from 0",
            static_cast<std::ptrdiff_t>(index), axis, to_string(shape_));
    tensor result = *this;
    result.data_ += index * strides_[at_axis];
    return result.drop_axis(at_axis);
  }
  [[nodiscard]] tensor transpose(int first_axis = -2, int second_axis = -1,
                                 call_site = call_site::current()) const {
    const std::size_t a = resolve_axis(first_axis, shape_);
    const std::size_t b = resolve_axis(second_axis, shape_);
    tensor result = *this;
    std::swap(result.shape_[a], result.shape_[b]);
    std::swap(result.strides_[a], result.strides_[b]);
    return result;
  }
  /// Axis i of the result is axis order[i] of this tensor.
  [[nodiscard]] tensor permute(std::span<const int> order, call_site = call_site::current()) const {
    require(order.size() == rank(), "a permutation of {} axes for a tensor of shape {}",
            order.size(), to_string(shape_));
    tensor result = *this;
    unsigned seen = 0;
    for (std::size_t axis = 0; axis < order.size(); ++axis) {
      const std::size_t source = resolve_axis(order[axis], shape_);
      require((seen & (1U << source)) == 0, "axis {} appears twice in a permutation of shape {}",
              source, to_string(shape_));
      seen |= 1U << source;
      result.shape_[axis] = shape_[source];
      result.strides_[axis] = strides_[source];
    }
    return result;
  }
  [[nodiscard]] tensor permute(std::initializer_list<int> order,
                               call_site = call_site::current()) const {
    return permute(std::span<const int>(order.begin(), order.size()));
  }
  /// Removes an axis of extent 1.
  [[nodiscard]] tensor squeeze(int axis, call_site = call_site::current()) const {
    const std::size_t at_axis = resolve_axis(axis, shape_);
    require(shape_[at_axis] == 1,
            "axis {} of a tensor of shape {} cannot be squeezed: its extent is not 1", axis,
            to_string(shape_));
    return tensor(*this).drop_axis(at_axis);
  }
  /// Adds an axis of extent 1 before `axis` (-1: after the last).
  [[nodiscard]] tensor unsqueeze(int axis, call_site = call_site::current()) const {
    const int count = static_cast<int>(rank()) + 1;
    const int at_axis = axis < 0 ? axis + count : axis;
    require(at_axis >= 0 && at_axis < count, "axis {} cannot be added to a tensor of shape {}",
            axis, to_string(shape_));
    tensor result = *this;
    const auto position = static_cast<std::size_t>(at_axis);
    for (std::size_t i = rank(); i > position; --i) result.strides_[i] = strides_[i - 1];
    result.strides_[position] = position < rank() ? shape_[position] * strides_[position] : 1;
    result.shape_.insert(position, 1);
    return result;
  }
  /// Repeats axes of extent 1, and adds axes in front, without copying. Throws usage_error naming
  /// both shapes when this shape does not broadcast to `to`.
  [[nodiscard]] tensor expand(const parx::shape& to, call_site = call_site::current()) const {
    require(to.rank() >= rank() && broadcast_shapes(shape_, to) == to,
            "a tensor of shape {} cannot be expanded to {}", to_string(shape_), to_string(to));
    tensor result = *this;
    result.strides_ = detail::broadcast_strides(shape_, strides_, to);
    result.shape_ = to;
    return result;
  }

  // Tensor parallelism: see cut_rows.hpp.

  /// Notes that other ranks have the other values of each row. For the layer that has allocated it.
  void note_cut(std::shared_ptr<const cut_rows> how) const { storage_.note_cut(std::move(how)); }
  /// Notes it for a tensor with one value for each of `source`. Nothing if the rows are whole.
  template <typename U>
  void note_cut_of(const tensor<U>& source) const {
    if (source.cut() != nullptr) [[unlikely]] detail::pass_cut_on(source, *this);
  }
  /// How rows are cut that are in this memory; null where all are whole, as far as is known. Views
  /// and copies know it.
  [[nodiscard]] const cut_rows* cut() const noexcept { return storage_.cut(); }
  [[nodiscard]] std::shared_ptr<const cut_rows> shared_cut() const noexcept {
    return storage_.shared_cut();
  }

  // Views where the strides allow it, contiguous copies otherwise.

  /// The same elements in the same order in another shape; one extent may be `infer`. A view when
  /// the tensor is contiguous, else a copy.
  [[nodiscard]] tensor reshape(const parx::shape& wanted, call_site = call_site::current()) const {
    const parx::shape to = resolve_reshape(shape_, wanted);
    tensor result = contiguous();
    result.shape_ = to;
    result.strides_ = contiguous_strides(to);
    return result;
  }
  /// A shape without braces: a compile-time error that says what to do.
  template <std::integral First, std::integral... More>
  tensor reshape(First, More...) const {
    static_assert(std::is_void_v<First>, "a shape goes in braces: x.reshape({2, parx::infer})");
    return *this;
  }
  /// Joins the axes from `first_axis` to the last: (n, c, h, w) becomes (n, c h w) for axis 1.
  [[nodiscard]] tensor flatten(int first_axis = 0, call_site = call_site::current()) const {
    if (rank() == 0) return reshape({1});
    const std::size_t first = resolve_axis(first_axis, shape_);
    parx::shape to(std::span<const std::size_t>(shape_.begin(), first));
    std::size_t rest = 1;
    for (std::size_t axis = first; axis < rank(); ++axis) rest *= shape_[axis];
    to.push_back(rest);
    return reshape(to);
  }
  /// This tensor when it is contiguous, else a contiguous copy.
  [[nodiscard]] tensor contiguous() const { return is_contiguous() ? *this : clone(); }

  // Copies.

  [[nodiscard]] tensor clone() const {
    tensor result = empty(shape_);
    result.copy_from(*this);
    result.note_cut_of(*this);
    return result;
  }
  /// Every element converted to U; contiguous.
  template <typename U>
  [[nodiscard]] tensor<U> cast() const {
    tensor<U> result = tensor<U>::empty(shape_);
    const detail::loop_nest<2> nest(shape_, {contiguous_strides(shape_), strides_});
    const auto step = nest.run_step();
    U* const target = result.data();
    nest.for_each_run_by_threads([&, this](const auto& offset, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        target[offset[0] + i * step[0]] = static_cast<U>(data_[offset[1] + i * step[1]]);
      }
    });
    result.note_cut_of(*this);
    return result;
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse_undefined() {
    throw_usage(
        "a tensor that is not defined() has no values: it was declared without them, or is a "
        "gradient that no backward pass has reached");
  }
  [[noreturn, gnu::noinline]] static void refuse_values(std::size_t count, const parx::shape& s,
                                                        call_site site) {
    throw_usage("tensor at {}: {} values do not fill a tensor of shape {}, which has {}", site,
                count, to_string(s), s.size());
  }
  template <typename... Extents>
  [[nodiscard]] static constexpr tensor explain_extents() {
    static_assert(sizeof...(Extents) > max_rank, "a shape goes in braces: zeros({2, 3})");
    return {};
  }
  [[nodiscard]] tensor& drop_axis(std::size_t axis) noexcept {
    for (std::size_t i = axis; i + 1 < rank(); ++i) strides_[i] = strides_[i + 1];
    shape_.erase(axis);
    return *this;
  }

  storage storage_;
  T* data_ = nullptr;
  parx::shape shape_;
  parx::strides strides_{};
};

template <typename T>
void tensor<T>::copy_from(const tensor& source, call_site) const {
  require(shape_ == source.shape_, "a tensor of shape {} cannot be copied into one of shape {}",
          to_string(source.shape_), to_string(shape_));
  source.require_values();
  const detail::loop_nest<2> nest(shape_, {strides_, source.strides_});
  const auto step = nest.run_step();
  nest.for_each_run_by_threads([&](const auto& offset, std::size_t count) {
    T* const to = data_ + offset[0];
    const T* const from = source.data_ + offset[1];
    if (step[0] == 1 && step[1] == 1) {
      std::copy_n(from, count, to);
    } else {
      for (std::size_t i = 0; i < count; ++i) to[i * step[0]] = from[i * step[1]];
    }
  });
}

}  // namespace parx
