#include <parx/tensor/matmul.hpp>

#include <parx/core/log.hpp>
#include <parx/tensor/detail/instructions.hpp>

#include <boost/test/unit_test.hpp>

#include <string>

#include <messages.hpp>

using parx::detail::vector_level;

BOOST_AUTO_TEST_CASE(the_loss_of_unused_vector_instructions_is_named_in_times) {
  using parx::detail::times_slower;
  BOOST_TEST(times_slower(vector_level::baseline, vector_level::avx512) == 8);
  BOOST_TEST(times_slower(vector_level::baseline, vector_level::avx2) == 4);
  BOOST_TEST(times_slower(vector_level::avx2, vector_level::avx512) == 2);
  BOOST_TEST(times_slower(vector_level::avx512, vector_level::avx512) == 1);
}

// As compiled: with -march=native there is nothing to say, without it there is where AVX2 is.
BOOST_AUTO_TEST_CASE(a_big_product_says_once_that_the_processor_could_do_more) {
  parx::logger::instance().set_level(parx::log_level::warn);
  const parx_test::captured_log log;
  const auto small = parx::tensor<float>::ones({8, 8});
  (void)matmul(small, small);
  BOOST_TEST(log.lines().empty());
  const auto big = parx::tensor<float>::ones({128, 128});
  for (int i = 0; i < 3; ++i) (void)matmul(big, big);
  const bool unused = parx::detail::compiled_level < parx::detail::processor_level();
  BOOST_TEST(log.lines().size() == (unused ? 1U : 0U));
  for (const std::string& line : log.lines()) {
    BOOST_TEST(parx_test::mentions(line, "-march=native"), line);
  }
}
