// What memory a cut model takes beside its parts: blocks for the units in use, slots for the
// gradients that leave.
#include <parx/fsdp.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "../comm/jobs.hpp"
#include <parx/fsdp/gathered_values.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/tensor/pool.hpp>

using namespace parx;

BOOST_AUTO_TEST_CASE(units_of_about_one_size_share_blocks_and_a_larger_one_has_its_own) {
  const std::string failure = jobs::run(jobs::kind::inproc, 1, [](process_group& group) {
    const unit_plan plan({{.name = "a.weight", .other_paths = {}, .extents = {900}},
                          {.name = "b.weight", .other_paths = {}, .extents = {1000}},
                          {.name = "c.weight", .other_paths = {}, .extents = {1000}},
                          {.name = "head.weight", .other_paths = {}, .extents = {9000}}},
                         {"a", "b", "c", "head"}, 1);
    detail::gathered_values values(plan, group, std::vector<bool>(5), 2, std::nullopt,
                                   call_site::current());
    const auto room = [&] {
      std::string of;
      for (std::size_t unit = 1; unit < 5; ++unit) of += values.has_room(unit) ? '1' : '0';
      return of;
    };
    const auto expect = [&](const std::string& wanted) {
      if (room() != wanted) throw std::runtime_error("room is " + room() + ", not " + wanted);
    };
    values.wait(1);
    values.wait(2);
    expect("1101");
    values.wait(4);  // the only one of its size finds its block whatever the others do
    expect("1101");
    values.release(1);
    expect("1111");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(units_of_other_sizes_that_take_memory_leave_values_alone) {
  const std::string failure = jobs::run(jobs::kind::inproc, 2, [](process_group& group) {
    constexpr std::size_t layer = 1000, head = 1200000;  // blocks of 2 and 6 MiB
    const unit_plan plan({{.name = "a.weight", .other_paths = {}, .extents = {layer}},
                          {.name = "b.weight", .other_paths = {}, .extents = {layer}},
                          {.name = "head.weight", .other_paths = {}, .extents = {head}}},
                         {"a", "b", "head"}, 2);
    detail::gathered_values values(plan, group, std::vector<bool>(4), 2, std::nullopt,
                                   call_site::current());
    for (std::size_t flat = 0; flat < 3; ++flat) {
      auto* const part = reinterpret_cast<float*>(values.part(flat));
      std::fill_n(part, plan.flats()[flat].part, static_cast<float>(flat + 1));
    }
    for (const std::size_t unit : {1U, 3U, 2U, 3U, 1U}) {
      values.wait(1);
      values.wait(unit);
      for (const std::size_t each : {std::size_t{1}, unit}) {
        const std::size_t flat = plan.units()[each].flats.front();
        const auto* const whole = reinterpret_cast<const float*>(values.whole(flat));
        const auto wrong = [&](float value) { return value != static_cast<float>(flat + 1); };
        if (std::any_of(whole, whole + plan.flats()[flat].whole(), wrong)) {
          throw std::runtime_error("unit " + std::to_string(each) + " has other values");
        }
      }
      if (unit != 1) values.release(unit);
    }
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(the_gradient_of_a_tied_table_is_born_where_it_is_reduced) {
  constexpr std::size_t vocabulary = 8192, width = 128;
  constexpr std::size_t table_bytes = vocabulary * width * sizeof(float);
  std::size_t most = 0;
  const std::string failure = jobs::run(jobs::kind::inproc, 2, [&](process_group& group) {
    models::gpt<> model{{.vocab_size = vocabulary, .n_positions = 4, .n_embd = width,
                         .n_layer = 4, .embd_pdrop = 0, .attn_pdrop = 0, .resid_pdrop = 0}};
    fsdp net{model, group,
             {.units = by_path({"transformer.h.*"}), .values = value_storage::gathered}};
    optim::sgd opt{net.parameters(), {.lr = 0.01}};
    const auto ids = tensor<std::int64_t>::full({1, 4}, 3);
    for (int step = 0; step < 3; ++step) {
      barrier(group);
      const std::size_t before = memory_pool::instance().stats().live_bytes;
      if (group.rank() == 0) memory_pool::instance().reset_peak();
      barrier(group);
      nn::cross_entropy(net(ids), ids).backward();
      barrier(group);
      if (group.rank() == 0) most = memory_pool::instance().stats().peak_bytes - before;
      opt.step();
    }
  });
  BOOST_TEST(failure == "");
  BOOST_TEST(most > 0U);
  BOOST_TEST(most < table_bytes, most << " bytes beside the slots");  // by both ranks
}
