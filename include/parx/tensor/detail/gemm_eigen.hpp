// The matrix product by Eigen.
#pragma once

#include <algorithm>
#include <cstddef>

#include <Eigen/Core>

#include <parx/tensor/pool.hpp>

namespace parx::inline PARX_ABI::detail::eigen {

template <typename T>
using matrix_map = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                              Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename T>
using const_matrix_map =
    Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
               Eigen::Unaligned, Eigen::OuterStride<>>;

// c += alpha a b of a matrix and a vector. Calls what Eigen's expressions expand to, which compiles
// faster.
template <typename Target, typename Left, typename Right, typename T>
void add_vector(Target c, const Left& a, const Right& b, T alpha) {
  Eigen::internal::generic_product_impl<Left, Right, Eigen::DenseShape, Eigen::DenseShape,
                                        Eigen::GemvProduct>::scaleAndAddTo(c, a, b, alpha);
}

/// What a result is added to: the row `values` for each of its rows, or one number for all elements
/// (step 0, and `values` has a register full of it). Null: the old contents of the result.
template <typename T>
struct addend {
  const T* values = nullptr;
  Eigen::Index step = 0;

  /// The addend of the elements from the i-th on.
  [[nodiscard]] addend from(Eigen::Index i) const noexcept {
    return values == nullptr ? addend() : addend{values + i * step, step};
  }
};
template <typename T>
inline constexpr std::size_t register_size = 64 / sizeof(T);
template <typename T>
alignas(64) inline constexpr T zeros[register_size<T>]{};

/// Whether Eigen's kernel reads the old result only through target_mapper, as that of Eigen 3.4
/// does on x86. Others (Eigen 5 with AVX-512, Power) read it through pointers: for them the addend
/// is first written to the result.
#if !EIGEN_VERSION_AT_LEAST(3, 4, 90) && defined(EIGEN_ARCH_x86_64) && EIGEN_ARCH_x86_64
inline constexpr bool kernel_reads_by_mapper = true;
#else
inline constexpr bool kernel_reads_by_mapper = false;
#endif

/// The target of Eigen's kernel, which adds its products to the old result. Reads give the addend
/// instead, so that nobody has to write it to the result first: less memory traffic, by twice the
/// size of the matrix.
template <typename T>
class target_line : public Eigen::internal::BlasLinearMapper<T, Eigen::Index, Eigen::Unaligned> {
  using base = Eigen::internal::BlasLinearMapper<T, Eigen::Index, Eigen::Unaligned>;

 public:
  target_line(T* data, addend<T> before) : base(data), before_(before) {}
  template <typename Packet>
  EIGEN_ALWAYS_INLINE Packet loadPacket(Eigen::Index i) const {
    return Eigen::internal::ploadu<Packet>(before_.values + i * before_.step);
  }

 private:
  addend<T> before_;
};
template <typename T>
class target_mapper : public Eigen::internal::blas_data_mapper<T, Eigen::Index, Eigen::ColMajor,
                                                               Eigen::Unaligned, 1> {
  using base =
      Eigen::internal::blas_data_mapper<T, Eigen::Index, Eigen::ColMajor, Eigen::Unaligned, 1>;

 public:
  using LinearMapper = target_line<T>;
  target_mapper(T* data, Eigen::Index stride, addend<T> before)
      : base(data, stride), before_(before) {}

  EIGEN_ALWAYS_INLINE LinearMapper getLinearMapper(Eigen::Index i, Eigen::Index j) const {
    T* const line = &base::operator()(i, j);
    return {line, before_.values == nullptr ? addend<T>{line, 1} : before_.from(i)};
  }
  /// For the remaining elements. The kernel adds to each once.
  EIGEN_ALWAYS_INLINE T& operator()(Eigen::Index i, Eigen::Index j) const {
    T& element = base::operator()(i, j);
    if (before_.values != nullptr) element = before_.values[i * before_.step];
    return element;
  }
  template <typename Packet>
  EIGEN_ALWAYS_INLINE Packet gatherPacket(Eigen::Index i, Eigen::Index j) const {
    return before_.values != nullptr
               ? Eigen::internal::pset1<Packet>(before_.values[i * before_.step])
               : base::template gatherPacket<Packet>(i, j);
  }

 private:
  addend<T> before_;
};

/// Memory from the pool for packed operands.
template <typename T>
class packed {
 public:
  explicit packed(Eigen::Index count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        data_(static_cast<T*>(memory_pool::instance().allocate(bytes_))) {}
  ~packed() { memory_pool::instance().deallocate(data_, bytes_); }
  packed(const packed&) = delete;
  packed& operator=(const packed&) = delete;
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

/// c = alpha a b (+ c) of column-major (rows x columns) c, by Eigen's packing and kernel, in
/// Eigen's blocks. Source: Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication
/// (2008).
template <typename T, int LeftOrder, int RightOrder>
void multiply(Eigen::Index rows, Eigen::Index columns, Eigen::Index depth, T alpha, const T* a,
              Eigen::Index lda, const T* b, Eigen::Index ldb, T* c, Eigen::Index ldc,
              addend<T> before) {
  namespace inner = Eigen::internal;
  using index = Eigen::Index;
  using traits = inner::gebp_traits<T, T>;
  using left_mapper = inner::const_blas_data_mapper<T, index, LeftOrder>;
  using right_mapper = inner::const_blas_data_mapper<T, index, RightOrder>;
  inner::gemm_pack_lhs<T, index, left_mapper, traits::mr, traits::LhsProgress,
                       typename traits::LhsPacket4Packing, LeftOrder>
      pack_left;
  inner::gemm_pack_rhs<T, index, right_mapper, traits::nr, RightOrder> pack_right;
  inner::gebp_kernel<T, T, index, target_mapper<T>, traits::mr, traits::nr, false, false> kernel;

  index block_depth = depth, block_rows = rows, block_columns = columns;
  inner::computeProductBlockingSizes<T, T>(block_depth, block_rows, block_columns, index(1));
  // Where the last-level cache is large, Eigen would pack a whole vocabulary matrix, a second copy.
  constexpr index most_packed = (index(8) << 20) / index(sizeof(T));
  if (block_rows * block_depth > most_packed) {
    const index panels = std::max<index>(most_packed / (block_depth * traits::mr), 1);
    block_rows = std::min<index>(block_rows, panels * traits::mr);
  }
  const packed<T> left(block_depth * block_rows);
  const packed<T> right(block_depth * block_columns);
  const left_mapper from_left(a, lda);
  const right_mapper from_right(b, ldb);
  const bool right_stays = block_rows != rows && block_depth == depth && block_columns == columns;
  for (index i = 0; i < rows; i += block_rows) {
    const index height = std::min(block_rows, rows - i);
    for (index k = 0; k < depth; k += block_depth) {
      const index length = std::min(block_depth, depth - k);
      pack_left(left.data(), from_left.getSubMapper(i, k), length, height);
      for (index j = 0; j < columns; j += block_columns) {
        const index width = std::min(block_columns, columns - j);
        if (!right_stays || i == 0) {
          pack_right(right.data(), from_right.getSubMapper(k, j), length, width);
        }
        const target_mapper<T> target(c + i + j * ldc, ldc,
                                       k == 0 ? before.from(i) : addend<T>());
        kernel(target, left.data(), right.data(), height, length, width, alpha);
      }
    }
  }
}

/// Products with a smaller sum of extents are not worth packing: Eigen's own threshold.
inline constexpr std::size_t worth_packing = 20;

/// c += alpha a b for small matrices: element (i, j) of a is a[i * a_down + j * a_right].
template <typename T>
void add_few(std::size_t m, std::size_t n, std::size_t k, T alpha, const T* a, std::size_t a_down,
             std::size_t a_right, const T* b, std::size_t b_down, std::size_t b_right, T* c,
             std::size_t ldc) {
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t p = 0; p < k; ++p) {
      const T factor = alpha * a[i * a_down + p * a_right];
      for (std::size_t j = 0; j < n; ++j) {
        c[i * ldc + j] += factor * b[p * b_down + j * b_right];
      }
    }
  }
}

/// All rows of c become `row`.
template <typename T>
void spread_row(std::size_t m, std::size_t n, const T* row, T* c, std::size_t ldc) {
  for (std::size_t i = 0; i < m; ++i) std::copy_n(row, n, c + i * ldc);
}

/// As parx::gemm: with a `row` of n elements, every row of c is the result plus that row, and
/// `beta` is ignored.
template <typename T>
void gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const T* row = nullptr) {
  using index = Eigen::Index;
  const auto map = [](const T* data, std::size_t rows, std::size_t columns, std::size_t ld) {
    return const_matrix_map<T>(data, static_cast<index>(rows), static_cast<index>(columns),
                               Eigen::OuterStride<>(static_cast<index>(ld)));
  };
  const auto left = transpose_a ? map(a, k, m, lda) : map(a, m, k, lda);
  const auto right = transpose_b ? map(b, n, k, ldb) : map(b, k, n, ldb);
  matrix_map<T> target(c, static_cast<index>(m), static_cast<index>(n),
                       Eigen::OuterStride<>(static_cast<index>(ldc)));
  const bool is_few = m + n + k < worth_packing;
  const bool reads_addend = kernel_reads_by_mapper && !is_few && m > 1 && n > 1 && k > 0;
  addend<T> before;
  if (row != nullptr) {
    if (reads_addend) before = {row, 1};
    else spread_row(m, n, row, c, ldc);
  } else if (beta == T(0)) {
    if (reads_addend) before = {zeros<T>, 0};
    else target.setZero();
  } else if (beta != T(1)) {
    target *= beta;
  }
  if (k == 0) return;
  if (is_few) {
    return add_few(m, n, k, alpha, a, transpose_a ? 1 : lda, transpose_a ? lda : 1, b,
                   transpose_b ? 1 : ldb, transpose_b ? ldb : 1, c, ldc);
  }
  if (n == 1) {
    const auto vector = map(b, k, 1, transpose_b ? 1 : ldb);
    if (transpose_a) add_vector(target.col(0), left.transpose(), vector.col(0), alpha);
    if (!transpose_a) add_vector(target.col(0), left, vector.col(0), alpha);
    return;
  }
  if (m == 1) {
    const auto vector = map(a, k, 1, transpose_a ? lda : 1);
    if (transpose_b) add_vector(target.row(0).transpose(), right, vector.col(0), alpha);
    if (!transpose_b) {
      add_vector(target.row(0).transpose(), right.transpose(), vector.col(0), alpha);
    }
    return;
  }
  // The kernel's matrices are column-major: it computes the transpose of c from those of b and a.
  constexpr int down = Eigen::ColMajor, across = Eigen::RowMajor;
  const auto run = transpose_b
                       ? (transpose_a ? multiply<T, across, across> : multiply<T, across, down>)
                       : (transpose_a ? multiply<T, down, across> : multiply<T, down, down>);
  run(static_cast<index>(n), static_cast<index>(m), static_cast<index>(k), alpha, b,
      static_cast<index>(ldb), a, static_cast<index>(lda), c, static_cast<index>(ldc),
      before);
}

}  // namespace parx::detail::eigen
