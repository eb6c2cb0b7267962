#include <parx/store.hpp>

#include <store/store_claims.hpp>

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using store_claims::soon;

void claims_over_tcp(parx::store_dialect dialect) {
  parx::tcp_store_server server({.legacy_dialect = dialect == parx::store_dialect::torch_2_1
                                                       ? parx::store_dialect::torch_2_1
                                                       : parx::store_dialect::torch_1_13});
  parx::tcp_store a({.port = server.port(), .dialect = dialect});
  parx::tcp_store b({.port = server.port(), .dialect = dialect});
  store_claims::hold_for({a, b});
}

}  // namespace

BOOST_AUTO_TEST_CASE(hash_store_does_what_every_store_must) {
  parx::hash_store store;
  store_claims::hold_for({store, store});
}

BOOST_AUTO_TEST_CASE(prefix_store_does_what_every_store_must) {
  parx::hash_store base;
  parx::prefix_store a("job/1", base);
  parx::prefix_store b("job/1", base);
  store_claims::hold_for({a, b});
}

BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_1_13) {
  claims_over_tcp(parx::store_dialect::torch_1_13);
}
BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_2_1) {
  claims_over_tcp(parx::store_dialect::torch_2_1);
}
BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_2_2) {
  claims_over_tcp(parx::store_dialect::torch_2_2);
}
BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_2_5) {
  claims_over_tcp(parx::store_dialect::torch_2_5);
}

BOOST_AUTO_TEST_CASE(prefixes_keep_users_apart_and_nest_from_the_inside_out) {
  parx::hash_store base;
  parx::prefix_store inner("pfx", base);
  parx::prefix_store outer("outer", inner);
  outer.set("a", "deep");
  BOOST_TEST(base.get("pfx/outer/a") == "deep");
  inner.set("a", "shallow");
  BOOST_TEST(outer.get("a") == "deep");
  BOOST_TEST(base.num_keys() == 2);
}

BOOST_AUTO_TEST_CASE(a_call_without_a_deadline_has_the_default_timeout) {
  parx::hash_store store;
  BOOST_TEST((store.default_timeout() == 300s));
  store.set_default_timeout(30ms);
  const auto text = store_claims::message_of([&] { (void)store.get("x"); }, parx::errc::timeout);
  BOOST_TEST(
      text ==
      "store get of \"x\" at hash_store of this process failed after 0.0 s: nobody set \"x\".");
}
