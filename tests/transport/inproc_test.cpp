#include <parx/transport/inproc.hpp>

#include <array>
#include <cstddef>
#include <memory>

#include <boost/test/unit_test.hpp>

namespace {

using parx::channel;

// A call may need another peer's bytes before it reads those of a rank that has done its part and
// ended: that rank is not lost.
BOOST_AUTO_TEST_CASE(a_rank_has_ended_when_all_that_it_sent_has_been_read) {
  const auto network = std::make_shared<parx::inproc_network>(3);
  auto reader = network->attach(0), writer = network->attach(1), other = network->attach(2);
  std::array<std::byte, 8> bytes{};
  BOOST_TEST(writer->link_to(0, channel::collective).try_send({bytes.data(), 8}, {}) == 8U);
  writer.reset();
  BOOST_TEST(!reader->job().has_ended(1));
  BOOST_TEST(other->job().has_ended(1));
  BOOST_TEST(reader->link_to(1, channel::collective).try_receive({bytes.data(), 8}, {}) == 8U);
  BOOST_TEST(reader->job().has_ended(1));
  BOOST_TEST(!reader->job().has_ended(2));
}

}  // namespace
