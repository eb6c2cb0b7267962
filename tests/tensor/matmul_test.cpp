#include <parx/tensor/matmul.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

using parx::op;
using parx::shape;
using parx::tensor;

namespace {
// Integer-valued, so that every order of summation gives the same bits.
template <typename T>
tensor<T> whole_numbers(const shape& s, int start) {
  const auto t = tensor<T>::empty(s);
  for (std::size_t i = 0; i < s.size(); ++i) {
    t.data()[i] = static_cast<T>((static_cast<int>(i) * 7 + start) % 13 - 6);
  }
  return t;
}
}  // namespace

using element_types = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(gemm_is_exact_for_every_transposition_factor_and_leading_dimension, T,
                              element_types) {
  for (const std::size_t m : {1U, 3U, 17U, 40U}) {
    for (const std::size_t n : {1U, 5U, 33U}) {
      for (const std::size_t k : {0U, 1U, 8U, 29U}) {
        for (const op a_as : {op::plain, op::transposed}) {
          for (const op b_as : {op::plain, op::transposed}) {
            for (const T beta : {T(0), T(1), T(3)}) {
              const std::size_t lda = (a_as == op::plain ? k : m) + 2,
                                ldb = (b_as == op::plain ? n : k) + 3, ldc = n + 1;
              const auto a = whole_numbers<T>({(a_as == op::plain ? m : k) * lda}, 1);
              const auto b = whole_numbers<T>({(b_as == op::plain ? k : n) * ldb}, 5);
              const auto c = whole_numbers<T>({m * ldc}, 3);
              const auto before = c.clone();
              if (beta == T(0)) c.fill(std::numeric_limits<T>::quiet_NaN());
              gemm(a_as, b_as, m, n, k, T(2), a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
              bool same = true;
              for (std::size_t i = 0; i < m; ++i) {
                for (std::size_t j = 0; j < n; ++j) {
                  T sum = beta == T(0) ? T(0) : beta * before.data()[i * ldc + j];
                  for (std::size_t l = 0; l < k; ++l) {
                    sum += T(2) *
                           (a_as == op::plain ? a.data()[i * lda + l] : a.data()[l * lda + i]) *
                           (b_as == op::plain ? b.data()[l * ldb + j] : b.data()[j * ldb + l]);
                  }
                  same = same && c.data()[i * ldc + j] == sum;
                }
              }
              BOOST_TEST(same, m << "x" << n << "x" << k);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_row_stands_in_for_all_old_rows, T, element_types) {
  for (const std::size_t m : {1U, 3U, 17U, 130U}) {
    for (const std::size_t n : {1U, 5U, 33U, 100U}) {
      for (const std::size_t k : {0U, 1U, 29U, 700U}) {
        for (const op b_as : {op::plain, op::transposed}) {
          const std::size_t ldb = b_as == op::plain ? n : k, ldc = n + 1;
          const auto a = whole_numbers<T>({m * k}, 1);
          const auto b = whole_numbers<T>({n * k}, 5);
          const auto row = whole_numbers<T>({n}, 2);
          const auto c = tensor<T>::full({m * ldc}, std::numeric_limits<T>::quiet_NaN());
          gemm(op::plain, b_as, m, n, k, T(2), a.data(), k, b.data(), ldb, T(0), c.data(), ldc,
               row.data());
          bool same = true;
          for (std::size_t i = 0; i < m; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
              T sum = row.data()[j];
              for (std::size_t l = 0; l < k; ++l) {
                sum += T(2) * a.data()[i * k + l] *
                       b.data()[b_as == op::plain ? l * n + j : j * k + l];
              }
              same = same && c.data()[i * ldc + j] == sum;
            }
          }
          BOOST_TEST(same, m << "x" << n << "x" << k);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(batches_are_broadcast_and_strided_operands_are_multiplied_as_they_are) {
  const auto a = whole_numbers<float>({3, 5, 2, 4}, 1).permute({1, 0, 2, 3});  // (5, 3, 2, 4)
  const auto b = whole_numbers<float>({3, 6, 4}, 2).transpose();               // (3, 4, 6)
  const auto c = matmul(a, b);
  BOOST_TEST((c.shape() == shape{5, 3, 2, 6}));
  for (std::size_t n = 0; n < 5; ++n) {
    for (std::size_t h = 0; h < 3; ++h) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t j = 0; j < 6; ++j) {
          float sum = 0;
          for (std::size_t l = 0; l < 4; ++l) sum += a.at(n, h, i, l) * b.at(h, l, j);
          BOOST_TEST(c.at(n, h, i, j) == sum);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_batch_times_one_matrix_equals_the_products_of_its_parts) {
  const auto a = whole_numbers<float>({3, 2, 4}, 1), b = whole_numbers<float>({4, 5}, 2);
  const auto c = matmul(a, b);
  for (std::size_t n = 0; n < 3; ++n) {
    const auto part = matmul(a.select(0, n), b);
    BOOST_TEST(c.select(0, n).span() == part.span(), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(operands_with_no_dense_axis_are_copied_and_still_right) {
  const auto a = whole_numbers<float>({4, 6, 2}, 1).select(2, 1),
             b = whole_numbers<float>({6, 3}, 2);
  const auto expected = matmul(a.clone(), b);
  const auto got = matmul(a, b);
  BOOST_TEST(got.span() == expected.span(), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(matrices_that_do_not_fit_are_named) {
  BOOST_CHECK_EXCEPTION((void)matmul(tensor<float>::zeros({2, 3}), tensor<float>::zeros({4, 5})),
                        parx::usage_error, [](const auto& e) {
                          const std::string text = e.what();
                          return text.find("(2, 3)") != std::string::npos &&
                                 text.find("(4, 5)") != std::string::npos;
                        });
  BOOST_CHECK_THROW((void)matmul(tensor<float>::zeros({3}), tensor<float>::zeros({3, 5})),
                    parx::usage_error);
}
