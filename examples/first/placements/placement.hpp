// placement: types that say how a variable relates to those of the other ranks of an axis.
//
//   type               a rank's value is                    a rank's gradient is
//   replicated<T>      the same on all ranks                a summand of the gradient
//   invariant<T>       the same on all ranks                the gradient, the same on all ranks
//   partial<T>         a summand: the value is the sum      that of the sum
//   sharded<T, dim>    a chunk of axis dim of the whole     that of the chunk
//   varying<T>         its own; there is no whole           its own
//
// These are R, I, P, S(dim) and V of meta-pytorch/spmd_types. Values outside of tensor parallelism
// are invariant; a value that the ranks use for different things is replicated. Only the
// transitions (transitions.hpp) convert one type to another. algebra.hpp has the operations that
// are correct for these types; for all others the compiler says what to write instead. A placement
// only holds a variable, so it costs nothing. Constructing one from a variable is a claim that is
// not checked.
#pragma once

#include <type_traits>
#include <utility>

#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI::tp {

enum class placement { replicated, invariant, partial, sharded, varying };

/// The base of all placements.
template <typename T, placement Kind>
class placed {
 public:
  using value_type = T;
  static constexpr placement kind = Kind;

  /// Declares that `local` has this placement.
  explicit placed(variable<T> local) : local_(std::move(local)) {}

  /// This rank's value.
  [[nodiscard]] const variable<T>& local() const noexcept { return local_; }
  [[nodiscard]] const parx::shape& shape() const noexcept { return local_.shape(); }

  /// For a scalar that is invariant or partial. See variable::backward.
  void backward(const backward_options& options = {},
                call_site site = call_site::current()) const {
    static_assert(Kind != placement::replicated,
                  "a replicated loss counts once per rank: use reduce_from or gather_from with an "
                  "invariant result, and call backward on that");
    static_assert(Kind != placement::sharded && Kind != placement::varying,
                  "a loss is one number: sum what lies here, declare it partial, and "
                  "reduce_from(axis, sum)");
    local_.backward(options, site);
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
/// A negative Dim counts from the end. For a matrix, 1 and -1 are the same axis but two types.
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

/// Whether X is of this kind; if sharded, by any axis.
template <typename X, placement Kind>
inline constexpr bool is = X::kind == Kind;
/// Whether X is a chunk of axis Dim.
template <typename X, int Dim>
inline constexpr bool is_sharded_by = [] {
  if constexpr (X::kind == placement::sharded) return X::dim == Dim;
  return false;
}();

}  // namespace parx::tp
