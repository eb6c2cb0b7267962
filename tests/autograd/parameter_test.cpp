#include <parx/autograd/parameter.hpp>

#include <boost/test/unit_test.hpp>

#include <limits>
#include <vector>

#include <parx/autograd/ops.hpp>

using namespace parx;

namespace {
using rows = std::vector<std::size_t>;
rows touched(const parameter<float>& p) {
  const auto list = p.touched_rows();
  return list ? rows(list->begin(), list->end()) : rows{999};
}
void use_rows(const parameter<float>& table, std::initializer_list<int> indices) {
  sum(embedding(table, tensor<int>::from(indices, {indices.size()}))).backward();
}
}  // namespace

BOOST_AUTO_TEST_CASE(a_bound_gradient_is_overwritten_first_and_added_to_later) {
  const parameter<float> w("w", tensor<float>::ones({3}));
  std::vector<float> bucket(3, std::numeric_limits<float>::quiet_NaN());
  w.bind_grad(bucket);
  sum(w * 2.0F).backward();
  BOOST_TEST(bucket == (std::vector<float>{2, 2, 2}), boost::test_tools::per_element());
  sum(w * 3.0F).backward();
  BOOST_TEST(bucket == (std::vector<float>{5, 5, 5}), boost::test_tools::per_element());
  w.zero_grad();
  BOOST_TEST(bucket[0] == 5.0F);  // nothing is touched
  sum(w * 7.0F).backward();
  BOOST_TEST(bucket == (std::vector<float>{7, 7, 7}), boost::test_tools::per_element());
  BOOST_TEST(w.grad().data() == bucket.data());
}

BOOST_AUTO_TEST_CASE(every_operation_overwrites_a_fresh_bound_gradient) {
  // NaN in the old memory must not come through, whichever operation comes first.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto check = [&](const shape& s, auto&& f) {
    const parameter<float> w("w", tensor<float>::ones(s));
    std::vector<float> bucket(s.size(), nan);
    w.bind_grad(bucket);
    const variable<float> result = f(variable<float>(w));
    result.backward_from(tensor<float>::ones(result.shape()));
    bool clean = true;
    for (const float g : bucket) clean = clean && g == g;
    BOOST_TEST(clean);
  };
  using v = const variable<float>&;
  const variable<float> x = tensor<float>::ones({4, 3});
  check({2, 3}, [&](v w) { return linear(x, w); });
  check({3, 2}, [&](v w) { return matmul(x, w); });
  check({3}, [&](v w) { return x + w; });
  check({3}, [&](v w) { return x * w; });
  check({3}, [&](v w) { return layer_norm(x, w, w); });
  check({4, 3}, [&](v w) { return softmax(w); });
  check({4, 3}, [&](v w) { return slice(w, 0, 1, 2); });
  check({4, 3}, [&](v w) { return sum(w, {0}); });
  check({4, 3}, [&](v w) { return concat({w, x}, 0); });
  check({4, 3}, [&](v w) { return embedding(w, tensor<int>::from({1}, {1})); });
  check({4, 3}, [&](v w) { return cross_entropy(w, tensor<int>::from({1, 0, -100, 2}, {4})).sum; });
  check({1, 1, 4, 4}, [&](v w) { return max_pool2d(w); });
  check({1, 1, 4, 4}, [&](v w) { return conv2d<float>(w, tensor<float>::ones({2, 1, 3, 3})); });
  check({2, 1, 3, 3}, [&](v w) { return conv2d<float>(tensor<float>::ones({1, 1, 4, 4}), w); });
}

BOOST_AUTO_TEST_CASE(binding_keeps_value_and_gradient_and_every_handle_sees_it) {
  const parameter<float> w("w", tensor<float>::from({1, 2}, {2}));
  const variable<float> other_handle = w;
  sum(w * 3.0F).backward();
  std::vector<float> flat(2), bucket(2);
  w.bind_value(flat);
  w.bind_grad(bucket);
  BOOST_TEST(flat[1] == 2.0F);
  BOOST_TEST(bucket[1] == 3.0F);
  flat[0] = 50;
  BOOST_TEST(other_handle.value().at(0) == 50.0F);
  w.unbind();
  flat[0] = -1;
  bucket[0] = -1;
  BOOST_TEST(other_handle.value().at(0) == 50.0F);
  BOOST_TEST(w.grad().at(0) == 3.0F);
  BOOST_CHECK_THROW(w.bind_grad(std::span<float>(flat).first(1)), usage_error);
}

BOOST_AUTO_TEST_CASE(assume_grad_makes_what_a_wrapper_wrote_the_gradient) {
  const parameter<float> w("w", tensor<float>::ones({2}));
  std::vector<float> bucket{4, 5};
  w.bind_grad(bucket);
  BOOST_TEST(!w.has_grad());
  w.assume_grad();
  BOOST_TEST(w.grad().at(1) == 5.0F);
}

BOOST_AUTO_TEST_CASE(an_embedding_reports_the_rows_it_touched_and_all_others_are_zero) {
  const parameter<float> table("table", tensor<float>::ones({6, 2}));
  use_rows(table, {4, 1, 4});
  BOOST_TEST((touched(table) == rows{1, 4}));
  use_rows(table, {2});
  BOOST_TEST((touched(table) == rows{1, 2, 4}));
  const std::vector<float> expected{0, 0, 1, 1, 1, 1, 0, 0, 2, 2, 0, 0};
  BOOST_TEST(table.grad().span() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(rows_of_an_earlier_step_are_zero_again) {
  const parameter<float> table("table", tensor<float>::ones({6, 2}));
  std::vector<float> bucket(12, std::numeric_limits<float>::quiet_NaN());
  table.bind_grad(bucket);
  for (int step = 0; step < 4; ++step) {
    table.zero_grad();
    use_rows(table, {step, step + 1});
    for (int row = 0; row < 6; ++row) {
      BOOST_TEST(bucket[static_cast<std::size_t>(2 * row)] ==
                 (row == step || row == step + 1 ? 1.0F : 0.0F));
    }
  }
}

BOOST_AUTO_TEST_CASE(only_rows_that_were_touched_before_are_cleared) {
  const parameter<float> table("table", tensor<float>::ones({6, 2}));
  std::vector<float> bucket(12, -1.0F);
  table.bind_grad(bucket);
  use_rows(table, {0});
  bucket[11] = 77;  // against the contract: shows that row 5 is left alone
  table.zero_grad();
  use_rows(table, {1});
  BOOST_TEST(bucket[0] == 0.0F);
  BOOST_TEST(bucket[2] == 1.0F);
  BOOST_TEST(bucket[11] == 77.0F);
}

BOOST_AUTO_TEST_CASE(memory_that_others_may_have_written_is_cleared_whole) {
  const parameter<float> table("table", tensor<float>::ones({6, 2}));
  std::vector<float> bucket(12, -1.0F);
  table.bind_grad(bucket);
  use_rows(table, {0});
  bucket[11] = 77;  // another rank's row
  table.assume_grad();
  BOOST_TEST(!table.touched_rows().has_value());
  table.zero_grad();
  use_rows(table, {1});
  BOOST_TEST(bucket[11] == 0.0F);
  // Whoever got hold of the gradient may write it, too.
  table.grad().at(5, 1) = 78;
  table.zero_grad();
  use_rows(table, {1});
  BOOST_TEST(bucket[11] == 0.0F);
  BOOST_TEST((touched(table) == rows{1}));
}

BOOST_AUTO_TEST_CASE(a_dense_contribution_ends_row_sparsity_until_zero_grad) {
  const parameter<float> table("table", tensor<float>::ones({3, 2}));
  use_rows(table, {0});
  sum(table * 1.0F).backward();
  BOOST_TEST(!table.touched_rows().has_value());
  use_rows(table, {2});
  const std::vector<float> expected{2, 2, 1, 1, 2, 2};
  BOOST_TEST(table.grad().span() == expected, boost::test_tools::per_element());
  table.zero_grad();
  use_rows(table, {2});
  BOOST_TEST((touched(table) == rows{2}));
  const std::vector<float> after{0, 0, 0, 0, 1, 1};
  BOOST_TEST(table.grad().span() == after, boost::test_tools::per_element());
}
