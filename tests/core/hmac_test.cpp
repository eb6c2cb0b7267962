#include <parx/core/hmac.hpp>

#include <string>

#include <boost/test/unit_test.hpp>

#include <parx/core/job_key.hpp>

namespace {

std::string hex(const parx::mac& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

// RFC 4231, section 4.
BOOST_AUTO_TEST_CASE(the_macs_are_those_of_rfc_4231) {
  BOOST_TEST(hex(parx::hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
             "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  BOOST_TEST(hex(parx::hmac_sha256("Jefe", "what do ya want for nothing?")) ==
             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  BOOST_TEST(hex(parx::hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
             "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  BOOST_TEST(hex(parx::hmac_sha256(std::string(131, '\xaa'),
                                   "Test Using Larger Than Block-Size Key - Hash Key First")) ==
             "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

BOOST_AUTO_TEST_CASE(
    a_signature_is_of_one_secret_one_job_one_purpose_and_one_division_of_its_text) {
  const parx::job_key key("open sesame", "job 7");
  const auto signature = key.sign("purpose", {"ab", "c"});
  BOOST_TEST(key.has_signed(signature, "purpose", {"ab", "c"}));
  BOOST_TEST(!key.has_signed(signature, "purpose", {"a", "bc"}));
  BOOST_TEST(!key.has_signed(signature, "purpose", {"abc"}));
  BOOST_TEST(!key.has_signed(signature, "other", {"ab", "c"}));
  BOOST_TEST(!parx::job_key("open sesame", "job 8").has_signed(signature, "purpose", {"ab", "c"}));
  BOOST_TEST(!parx::job_key("open Sesame", "job 7").has_signed(signature, "purpose", {"ab", "c"}));
  auto changed = signature;
  changed.back() ^= 1;
  BOOST_TEST(!key.has_signed(changed, "purpose", {"ab", "c"}));
}
