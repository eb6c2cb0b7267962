#include <parx/autograd/parameter_handle.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/autograd.hpp>

namespace {

/// The least that a wrapper needs, with a record of what it was asked to do.
struct record {
  std::vector<double> values = {1, 2, 3, 4, 5, 6};
  std::span<double> grad;
  std::string calls;
};
struct plain_parameter {
  using value_type = double;
  record* state;

  std::span<double> value() const { return state->values; }
  std::vector<long> shape() const { return {3, 2}; }
  void bind_grad(std::span<double> memory) const { state->grad = memory; }
  void unbind() const { state->calls += "unbind "; }
  bool has_grad() const { return !state->grad.empty(); }
  void assume_grad() const { state->calls += "assume "; }
  void zero_grad() const { state->calls += "zero "; }
  void attach(parx::backward_observer*, std::size_t index) const {
    state->calls += "attach" + std::to_string(index) + " ";
  }
  void detach_observer() const { state->calls += "detach "; }
  parx::backward_observer* observer() const { return nullptr; }
  std::string reduction_group() const { return "of experts"; }
  // It does not declare this, so nobody calls it.
  std::optional<std::span<const std::size_t>> touched_rows() const { return std::nullopt; }
};
struct grouped_parameter : plain_parameter, parx::grouped_parameter {};

struct user_module {
  record first, second;
  void for_each_parameter(auto&& visitor) {
    plain_parameter a{&first};
    grouped_parameter b{{&second}, {}};
    visitor(std::string("a"), a);
    visitor(std::string("b"), b);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_handle_knows_name_type_and_shape_and_passes_calls_on) {
  user_module model;
  const auto handles = parx::parameter_handles(model);
  BOOST_TEST_REQUIRE(handles.size() == 2U);
  const parx::parameter_handle& a = *handles[0];
  BOOST_TEST(a.name() == "a");
  BOOST_TEST((a.type() == parx::dtype::float64));
  BOOST_TEST((a.shape() == parx::shape{3, 2}));
  BOOST_TEST(a.count() == 6U);
  BOOST_TEST(a.bytes() == 48U);
  BOOST_TEST(a.rows() == 3U);
  BOOST_TEST(static_cast<double*>(a.value())[5] == 6);
  std::vector<double> memory(6);
  BOOST_TEST(!a.has_grad());
  a.bind_grad(memory.data());
  BOOST_TEST(a.has_grad());
  BOOST_TEST((model.first.grad.data() == memory.data() && model.first.grad.size() == 6U));
  a.attach(nullptr, 7);
  a.assume_grad();
  a.zero_grad();
  a.detach_observer();
  a.unbind();
  BOOST_TEST(model.first.calls == "attach7 assume zero detach unbind ");
}

BOOST_AUTO_TEST_CASE(optional_parts_are_those_that_a_class_declares) {
  user_module model;
  const auto handles = parx::parameter_handles(model);
  BOOST_TEST(handles[0]->row_gradient() == nullptr);  // it has touched_rows() of its own
  BOOST_TEST(handles[0]->reduction_group() == "");
  BOOST_TEST(handles[1]->reduction_group() == "of experts");
}

BOOST_AUTO_TEST_CASE(a_parameter_of_autograd_has_rows) {
  using parx::tensor;
  const parx::parameter<float> p("p", tensor<float>::full({4, 2}, 3));
  const auto handle = parx::make_parameter_handle("model.p", p);
  BOOST_TEST_REQUIRE(handle->row_gradient() != nullptr);
  const parx::row_gradient_part& rows = *handle->row_gradient();
  BOOST_TEST(!rows.expects_row_grad());
  p.expect_row_grad();
  BOOST_TEST(rows.expects_row_grad());
  const std::size_t row[] = {2};
  BOOST_TEST(rows.add_rows(row) != nullptr);
  BOOST_TEST_REQUIRE(rows.touched_rows().has_value());
  BOOST_TEST((*rows.touched_rows())[0] == 2U);
}

BOOST_AUTO_TEST_CASE(a_parameter_whose_shape_is_not_that_of_its_values_is_refused) {
  record state;
  state.values.resize(5);
  const auto handle = parx::make_parameter_handle("short", plain_parameter{&state});
  BOOST_CHECK_EXCEPTION((void)handle->value(), parx::usage_error, [](const auto& refused) {
    return std::string_view(refused.what()).find("\"short\" has 5 values") !=
           std::string_view::npos;
  });
}
