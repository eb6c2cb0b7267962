#include <parx/types/buffer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>
#include <boost/test/unit_test.hpp>

#include <messages.hpp>

namespace {

using parx::dtype;
using parx_test::message_of;

struct pixel {
  std::uint8_t red, green, blue;
};

// A tensor as another library might have it: pointer and size, and strides.
struct strided {
  std::vector<float> values = std::vector<float>(6);
  bool contiguous = true;
  float* data() { return values.data(); }
  const float* data() const { return values.data(); }
  std::size_t size() const { return values.size(); }
  bool is_contiguous() const { return contiguous; }
};

static_assert(parx::dtype_of<float> == dtype::float32 && parx::dtype_of<double> == dtype::float64);
static_assert(parx::dtype_of<long> == parx::dtype_of<long long>, "by width, not by name");
static_assert(parx::dtype_of<int> == dtype::int32 && parx::dtype_of<unsigned> == dtype::uint32);
static_assert(parx::dtype_of<char> == dtype::int8 && parx::dtype_of<signed char> == dtype::int8);
static_assert(parx::dtype_of<unsigned char> == dtype::uint8);
static_assert(parx::dtype_of<std::byte> == dtype::uint8);
static_assert(!parx::element<bool> && !parx::element<wchar_t> && !parx::element<char16_t>);
static_assert(!parx::element<long double> && !parx::element<void*> && !parx::element<pixel>);

// Readable and writable, as types and as deduced references.
static_assert(parx::mutable_buffer<std::vector<float>&>);
static_assert(parx::buffer<const std::vector<float>&>);
static_assert(!parx::mutable_buffer<const std::vector<float>&>);
static_assert(parx::mutable_buffer<std::span<double>>);
static_assert(parx::buffer<std::span<const double>>);
static_assert(!parx::mutable_buffer<std::span<const double>>);
static_assert(parx::mutable_buffer<std::array<long, 3>&> && parx::mutable_buffer<int (&)[4]>);
static_assert(parx::mutable_buffer<Eigen::MatrixXf&> && parx::buffer<const Eigen::VectorXd&>);
static_assert(parx::mutable_buffer<Eigen::Map<Eigen::MatrixXf>&>);
static_assert(!parx::mutable_buffer<Eigen::Map<const Eigen::MatrixXf>&>);
static_assert(parx::buffer<strided&> && parx::buffer<parx::const_buffer_view>);
static_assert(parx::mutable_buffer<parx::buffer_view> &&
              !parx::mutable_buffer<parx::const_buffer_view>);
static_assert(!parx::buffer<std::vector<bool>&> && !parx::buffer<std::set<int>&>);
static_assert(!parx::buffer<float> && !parx::buffer<float*>);
static_assert(!parx::buffer<std::vector<pixel>&>);
static_assert(parx::mutable_movable_buffer<std::vector<pixel>&>);
static_assert(!parx::mutable_movable_buffer<const std::vector<pixel>&>);
static_assert(!parx::movable_buffer<std::vector<std::string>&>);

}  // namespace

BOOST_AUTO_TEST_CASE(visiting_a_dtype_gives_the_type_that_maps_back_to_it) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < parx::dtype_count; ++i) {
    const auto type = static_cast<dtype>(i);
    parx::visit_dtype(type, [type]<typename T>(std::type_identity<T>) {
      BOOST_TEST((parx::dtype_of<T> == type));
      BOOST_TEST(parx::size_of(type) == sizeof(T));
      BOOST_TEST(parx::is_floating(type) == !std::is_integral_v<T>);
    });
    names.insert(parx::name_of(type));
  }
  BOOST_TEST(names.size() == parx::dtype_count);
  BOOST_TEST(names.count("bfloat16") == 1U);
}

BOOST_AUTO_TEST_CASE(a_number_that_is_no_dtype_is_refused) {
  const auto broken = static_cast<dtype>(200);
  BOOST_TEST(parx::size_of(broken) == 0U);
  BOOST_TEST(parx::name_of(broken) == "unknown");
  BOOST_CHECK_THROW(parx::visit_dtype(broken, [](auto) {}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_view_has_the_pointer_the_count_and_the_type_of_its_buffer) {
  std::vector<std::int16_t> vector(5);
  const parx::buffer_view of_vector = parx::view_of(vector);
  BOOST_TEST(of_vector.data == vector.data());
  BOOST_TEST(of_vector.count == 5U);
  BOOST_TEST(of_vector.bytes() == 10U);
  BOOST_TEST((of_vector.type == dtype::int16));

  const std::array<double, 3> fixed{};
  const parx::const_buffer_view of_array = parx::view_of(fixed);
  BOOST_TEST(of_array.data == fixed.data());
  BOOST_TEST((of_array.type == dtype::float64));

  float plain[4] = {};
  BOOST_TEST(parx::const_view_of(plain).data == static_cast<const void*>(plain));
  BOOST_TEST(parx::const_view_of(plain).count == 4U);

  Eigen::MatrixXf matrix(3, 4);
  BOOST_TEST(parx::view_of(matrix).count == 12U);
  BOOST_TEST(parx::view_of(matrix).data == matrix.data());

  BOOST_TEST(parx::view_of(of_vector).data == vector.data());
}

BOOST_AUTO_TEST_CASE(strided_memory_is_refused_and_whole_columns_of_it_are_not) {
  strided tensor;
  BOOST_TEST(parx::view_of(tensor).count == 6U);
  tensor.contiguous = false;
  BOOST_TEST(message_of([&] { (void)parx::view_of(tensor); }).find("strided") != std::string::npos);

  Eigen::MatrixXf matrix(4, 4);
  auto corner = matrix.block(0, 0, 2, 2);
  BOOST_TEST(message_of([&] { (void)parx::view_of(corner); }).find("gaps") != std::string::npos);
  auto row = matrix.row(1);
  BOOST_CHECK_THROW((void)parx::view_of(row), parx::usage_error);
  auto columns = matrix.middleCols(1, 2);
  BOOST_TEST(parx::view_of(columns).data == matrix.data() + 4);
  auto column = matrix.col(2);
  BOOST_TEST(parx::view_of(column).count == 4U);
  auto part_of_a_column = matrix.col(2).segment(1, 2);
  BOOST_TEST(parx::view_of(part_of_a_column).data == &matrix(1, 2));
}
