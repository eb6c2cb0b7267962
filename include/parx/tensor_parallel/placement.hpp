// placement: what a variable is over the ranks of one axis, as its type.
//
//   type               a rank has                           the gradient here is
//   replicated<T>      the same as all                      a summand of it
//   invariant<T>       the same as all                      all of it, the same on all ranks
//   partial<T>         a summand: the value is their sum    that of the sum
//   sharded<T, dim>    a chunk of axis dim of the whole     that of the chunk
//   varying<T>         its own; there is no whole           its own
//
// These are R, I, P, S(dim) and V of meta-pytorch/spmd_types. What a model does outside of the
// axis is invariant; replicated is what ranks use for different things. Only the transitions
// (transitions.hpp) lead from one type to another; algebra.hpp has the operations that keep the
// meaning, and says of the others what to write instead. A placement is a variable and nothing
// else: it costs nothing. Making one of a variable declares what lies here, which nobody checks.
#pragma once

#include <type_traits>
#include <utility>

#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI::tp {

enum class placement { replicated, invariant, partial, sharded, varying };

/// What all placements have.
template <typename T, placement Kind>
class placed {
 public:
  using value_type = T;
  static constexpr placement kind = Kind;

  /// Declares what `local` is.
  explicit placed(variable<T> local) : local_(std::move(local)) {}

  /// What lies here.
  [[nodiscard]] const variable<T>& local() const noexcept { return local_; }
  [[nodiscard]] const parx::shape& shape() const noexcept { return local_.shape(); }

  /// Of a scalar that is invariant, or a part of a sum. See variable::backward.
  void backward(const backward_options& options = {}) const {
    static_assert(Kind != placement::replicated,
                  "a replicated loss counts once per rank: use reduce_from or gather_from with an "
                  "invariant result, and call backward on that");
    static_assert(Kind != placement::sharded && Kind != placement::varying,
                  "a loss is one number: sum what lies here, declare it partial, and "
                  "reduce_from(axis, sum)");
    local_.backward(options);
  }

 private:
  variable<T> local_;
};

template <typename T>
class replicated : public placed<T, placement::replicated> {
  using placed<T, placement::replicated>::placed;
};
template <typename T>
class invariant : public placed<T, placement::invariant> {
  using placed<T, placement::invariant>::placed;
};
template <typename T>
class partial : public placed<T, placement::partial> {
  using placed<T, placement::partial>::placed;
};
template <typename T>
class varying : public placed<T, placement::varying> {
  using placed<T, placement::varying>::placed;
};
/// Dim counts from the end where it is negative; 1 and -1 of a matrix are two types.
template <typename T, int Dim>
class sharded : public placed<T, placement::sharded> {
 public:
  static constexpr int dim = Dim;
  using placed<T, placement::sharded>::placed;
};

template <typename T>
replicated(const variable<T>&) -> replicated<T>;
template <typename T>
invariant(const variable<T>&) -> invariant<T>;
template <typename T>
partial(const variable<T>&) -> partial<T>;
template <typename T>
varying(const variable<T>&) -> varying<T>;

namespace detail {

template <typename T, placement Kind>
void takes_placed(const placed<T, Kind>&);

}  // namespace detail

template <typename X>
concept placed_type = requires(const X& x) {
  detail::takes_placed(x);
};

/// Whether X is of this kind; of a sharded one whatever its axis.
template <typename X, placement Kind>
inline constexpr bool is = X::kind == Kind;
/// Whether X is a chunk of axis Dim.
template <typename X, int Dim>
inline constexpr bool is_sharded_by = [] {
  if constexpr (X::kind == placement::sharded) return X::dim == Dim;
  return false;
}();

}  // namespace parx::tp
