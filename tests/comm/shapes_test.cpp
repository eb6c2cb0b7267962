// Messages whose type and shape only the sender knows, and links opened by warm_up.
#include <parx/comm/collectives/any_shape.hpp>

#include <boost/test/unit_test.hpp>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/tensor/shape.hpp>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx::axis_extents;
using parx::dtype;
using parx::process_group;
using parx_test::mentions;

constexpr jobs::kind kinds[] = {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::tcp_striped,
                                jobs::kind::shm, jobs::kind::shm_ring};
const parx::group_options impatient{.timeout = 3s};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// A received message, as its sender described it.
struct arrived {
  int calls = 0;
  dtype type{};
  axis_extents extents;
  std::vector<std::byte> bytes;

  auto allocator() {
    return [this](dtype of, const axis_extents& shape) {
      ++calls;
      type = of;
      extents = shape;
      std::size_t size = size_of(of);
      for (const std::size_t each : shape) size *= each;
      bytes.resize(size);
      return std::span(bytes);
    };
  }
  template <typename T>
  [[nodiscard]] bool counts_up() const {
    const std::span all(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<T>(i % 100)) return false;
    }
    return true;
  }
};
template <typename T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<T>(i % 100);
  return all;
}

std::size_t open_sockets() {
  std::size_t found = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    found += std::filesystem::read_symlink(each.path(), gone).string().starts_with("socket:");
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(extents_are_ranges_of_integers_and_at_most_eight) {
  const axis_extents none;
  BOOST_TEST(!none.given());
  const axis_extents of_list{2, 3, 4}, of_ints = std::vector<int>{2, 3, 4};
  const axis_extents of_shape = parx::shape{2, 3, 4}, of_scalar = parx::shape{};
  BOOST_TEST((of_list == of_ints && of_list == of_shape && of_list.given()));
  BOOST_TEST((of_scalar.given() && of_scalar.axes() == 0 && !(of_scalar == none)));
  BOOST_TEST(of_list.are_of(24));
  BOOST_TEST(!of_list.are_of(25));
  BOOST_TEST(of_scalar.are_of(1));
  const std::size_t vast = std::size_t{1} << 33;
  BOOST_TEST(!(axis_extents{vast, vast}).are_of(std::size_t{vast * vast}));
  BOOST_TEST(to_string(of_list) == "2 x 3 x 4");
  BOOST_TEST(mentions(parx_test::message_of([] {
    static_cast<void>(axis_extents(std::vector<int>(9, 1)));
  }), "usage: ", "at most 8 extents, not 9"));
}

BOOST_AUTO_TEST_CASE(a_message_brings_its_type_and_shape_early_or_late_blocking_or_not) {
  for (const auto kind : kinds) {
    for (const bool receiver_is_late : {false, true}) {
      for (const bool asynchronous : {false, true}) {
        const auto failure = jobs::run(
            kind, 2,
            [&](process_group& world) {
              const auto large = counting<float>(1'200'000);
              const auto eight = counting<std::int64_t>(2 * 3 * 4);
              const std::vector<std::uint8_t> nothing;
              const std::vector<double> one{0};
              const auto late = [&](bool is) {
                if (is) std::this_thread::sleep_for(30ms);
              };
              if (world.rank() == 0) {
                late(!receiver_is_late);
                parx::send(world, large, 1, {.extents = parx::shape{3, 400, 1000}});
                if (asynchronous) {
                  parx::async_send(world, eight, 1, {.tag = 7, .extents = {1, 2, 1, 3, 1, 4, 1, 1}})
                      .wait();
                } else {
                  parx::batch(world)
                      .send(eight, 1, {.tag = 7, .extents = {1, 2, 1, 3, 1, 4, 1, 1}})
                      .run();
                }
                parx::send(world, nothing, 1, {.extents = std::vector<int>{5, 0}});
                parx::send(world, one, 1, {.extents = parx::shape{}});
                parx::send(world, large, 1);
                parx::send(world, eight, 1, {.extents = {4, 6}});
                return;
              }
              late(receiver_is_late);
              const auto receive = [&](arrived& to, int tag = 0) {
                if (asynchronous)
                  parx::async_recv_any_shape(world, 0, to.allocator(), {.tag = tag}).wait();
                else parx::recv_any_shape(world, 0, to.allocator(), {.tag = tag});
                expect(to.calls == 1,
                       "the allocator was called " + std::to_string(to.calls) + " times");
              };
              arrived a, b, c, d, e;
              receive(b, 7);  // ahead of the one that was sent before
              receive(a);
              receive(c);
              receive(d);
              receive(e);
              std::vector<std::int64_t> f(24);
              parx::recv(world, f, 0);  // who knows the count need not know the extents
              expect(a.type == dtype::float32 && a.extents == axis_extents{3, 400, 1000} &&
                         a.counts_up<float>(),
                     "three axes");
              expect(b.type == dtype::int64 && b.extents == axis_extents{1, 2, 1, 3, 1, 4, 1, 1} &&
                         b.counts_up<std::int64_t>(),
                     "eight axes");
              expect(c.type == dtype::uint8 && c.extents == axis_extents{5, 0}, "no elements");
              expect(d.type == dtype::float64 && d.extents.axes() == 0 && d.bytes.size() == 8,
                     "a scalar");
              expect(e.extents == axis_extents{1'200'000} && e.counts_up<float>(), "no extents");
              expect(f == eight, "a receive of a known count");
            },
            impatient);
        BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(shapes_stream_between_stages_and_a_rank_may_send_to_itself) {
  for (const auto kind : kinds) {
    const auto failure = jobs::run(
        kind, 3,
        [](process_group& world) {
          const int rank = world.rank();
          for (std::size_t i = 1; i <= 40; ++i) {  // micro-batches of other lengths
            arrived batch;
            if (rank == 0) batch.bytes = std::vector<std::byte>(i * 100, std::byte(i));
            else parx::recv_any_shape(world, rank - 1, batch.allocator(), {.type = dtype::uint8});
            if (rank > 0) expect(batch.extents == axis_extents{i, 100}, "wrong extents");
            expect(batch.bytes == std::vector<std::byte>(i * 100, std::byte(i)), "wrong bytes");
            const parx::const_buffer_view view{batch.bytes.data(), batch.bytes.size(),
                                               dtype::uint8};
            if (rank < 2) parx::send(world, view, rank + 1, {.extents = {i, 100}});
          }
          arrived own;
          auto pending = parx::async_recv_any_shape(world, rank, own.allocator());
          parx::send(world, counting<short>(6), rank, {.extents = {2, 3}});
          pending.wait();
          expect(own.extents == axis_extents{2, 3} && own.counts_up<short>(), "to itself");
        },
        impatient);
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(what_a_receive_of_any_shape_does_not_take_is_an_error_that_names_both_sides) {
  struct refusal {
    const char* name;
    parx::any_shape_options options;
    std::size_t given;
    std::vector<const char*> said;
  };
  const refusal all[] = {
      {"another type", {.type = dtype::float64}, 40,
       {"at most 1073741824 bytes of float64 with tag 0 (at shapes_test.cpp:",
        "sent 10 float32 (at shapes_test.cpp:"}},
      {"too many bytes", {.max_bytes = 39}, 40, {"at most 39 bytes with tag 0", "sent 10 float32"}},
      {"too little memory", {}, 39, {"the allocator of a recv_any_shape gave 39 bytes for 40"}},
      {"no memory", {}, 0, {"no room for 10 elements"}},
  };
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp}) {
    for (const refusal& each : all) {
      int calls = 0;
      const auto failures = jobs::run_collecting(
          kind, 2,
          [&](process_group& world) {
            std::vector<float> x(10);
            if (world.rank() == 0) {
              parx::send(world, x, 1);
              parx::barrier(world);
              return;
            }
            std::vector<std::byte> room(each.given);
            parx::recv_any_shape(
                world, 0,
                [&](dtype, const axis_extents& extents) {
                  ++calls;
                  if (room.empty())
                    throw std::runtime_error("no room for " + to_string(extents) + " elements");
                  return std::span(room);
                },
                each.options);
          },
          impatient);
      for (const char* part : each.said)
        BOOST_TEST(mentions(failures[1], part), each.name << ": " << failures[1]);
      BOOST_TEST(!failures[0].empty(), each.name);
      BOOST_TEST(calls == (each.given == 40 ? 0 : 1), each.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(misuse_of_extents_is_refused_and_the_group_goes_on) {
  const auto failure = jobs::run(jobs::kind::inproc, 2, [](process_group& world) {
    std::vector<float> x(10);
    const int other = 1 - world.rank();
    const auto refused = [](auto call, const char* why) {
      const auto text = parx_test::message_of(call);
      expect(mentions(text, "usage: ", why, "shapes_test.cpp:"), text);
    };
    refused([&] { parx::send(world, x, other, {.extents = {3, 4}}); },
            "the extents 3 x 4 are not those of 10 elements");
    refused([&] { parx::recv(world, x, other, {.extents = {10}}); }, "only a send says");
    refused([&] { parx::recv_any_shape(world, 2, arrived{}.allocator()); }, "sending rank 2");
    const std::vector<int> itself{world.rank()}, twice{other, other}, beyond{2};
    refused([&] { parx::warm_up(world, itself); }, "lists this rank");
    refused([&] { parx::warm_up(world, twice); }, "twice");
    refused([&] { parx::warm_up(world, beyond); }, "peer 2");
    parx::barrier(world);
  });
  BOOST_TEST(failure == "", failure);
}

BOOST_AUTO_TEST_CASE(a_receive_of_any_shape_that_waits_says_so) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [](process_group& world) {
    arrived nothing;
    parx::recv_any_shape(world, 1 - world.rank(), nothing.allocator(), {.tag = 3});
  }, {.timeout = 400ms, .look_after = 30ms});
  for (const auto& each : failures) {
    BOOST_TEST(mentions(each, "which waits in recv of any shape with tag 3 at shapes_test.cpp:"),
               each);
  }
}

BOOST_AUTO_TEST_CASE(links_that_were_warmed_are_open_before_the_first_message) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::tcp_striped}) {
    std::size_t cold = 0, warm = 0, used = 0;
    std::barrier meet(3);
    const auto failure = jobs::run(kind, 3, [&](process_group& world) {
      const auto look = [&](std::size_t& at) {
        meet.arrive_and_wait();
        if (world.rank() == 0) at = open_sockets();
        meet.arrive_and_wait();
      };
      // A chain of stages; the ranks list their peers in different orders.
      const std::vector<int> peers[] = {{1}, {2, 0}, {1}};
      look(cold);
      parx::warm_up(world, peers[world.rank()]);
      look(warm);
      std::vector<int> x(3);
      parx::batch step(world);
      for (const int peer : peers[world.rank()]) step.send(x, peer).recv(x, peer);
      step.run();
      look(used);
    }, impatient);
    BOOST_TEST(failure == "", failure);
    const std::size_t links = kind == jobs::kind::tcp ? 2 : 3 + 4;  // of two ends each
    BOOST_TEST(warm == cold + 2 * links);
    BOOST_TEST(used == warm);
  }
}
