#include <parx/plan/plan.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "../messages.hpp"
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/plan/require_fits.hpp>
#include <parx/plan/table.hpp>

using namespace parx;

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20U;

/// Four units of 2^20 elements: Psi is 4 Mi elements, and each number of ranks here divides it.
model_shapes four_units(dtype type = dtype::float32) {
  model_shapes shapes;
  for (const char* unit : {"a", "b", "c", "d"}) {
    shapes.units.emplace_back(unit);
    shapes.parameters.push_back({.path = std::string(unit) + ".weight", .extents = {1024, 1024},
                                 .type = type, .unit = shapes.units.size() - 1});
  }
  return shapes;
}

/// Links of 1 MiB/s without latency, a second of forward and two of backward.
cluster slow(int ranks, int hosts = 1) {
  return {.ranks = ranks, .hosts = hosts, .network = {MiB, 0}, .memory_link = {MiB, 0},
          .flops = 1, .memory_bandwidth = 1e30, .memory_of_host = std::size_t{1} << 40U};
}
constexpr step_work three_seconds{.forward_flops = 1, .backward_flops = 2};

planned_step made(const model_shapes& shapes, const cluster& machine, const planned_layout& layout,
                  const step_work& work = three_seconds, std::size_t optimizer = 8) {
  return plan_step(shapes, machine, work, layout, optimizer);
}

const planned_layout ddp{}, zero1{{.zero = 1}}, zero2{{.zero = 2}}, zero3{{.zero = 3}},
    pages{{.zero = 3}, 1, true};

}  // namespace

BOOST_AUTO_TEST_CASE(state_of_a_parameter_takes_the_bytes_of_the_table_in_the_zero_paper) {
  struct line { dtype type; double whole; std::vector<double> by_stage; };
  // Values + gradients + optimizer for N = 4: 16, 8 + 8/4, 4 + 12/4, 16/4 in float32; with 16 bits
  // and a copy in float32 16, 4 + 12/4, 2 + 14/4, 16/4.
  for (const line& each : {line{dtype::float32, 16, {16, 10, 7, 4}},
                           line{dtype::bfloat16, 16, {16, 7, 5.5, 4}}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const auto step = made(four_units(each.type), slow(4), {{.zero = stage}});
      const double bytes = static_cast<double>(step.memory.values + step.memory.gradients +
                                               step.memory.optimizer);
      BOOST_TEST(bytes / (4.0 * MiB) == each.by_stage[static_cast<std::size_t>(stage)],
                 name_of(each.type) << " stage " << stage);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_working_set_is_the_root_and_the_two_largest_adjacent_units) {
  model_shapes shapes = four_units();
  shapes.parameters[0].extents = {1024, 3072};  // a 12 MiB, b, c, d 4 MiB
  shapes.parameters.push_back({.path = "norm", .extents = {16, 1024}, .unit = 0});  // 64 KiB
  const std::size_t open = 12 * MiB + 4 * MiB + MiB / 16;
  BOOST_TEST(made(shapes, slow(4), ddp).memory.working == 0u);
  BOOST_TEST(made(shapes, slow(4), zero1).memory.working == 0u);
  BOOST_TEST(made(shapes, slow(4), zero2).memory.working == open);      // gradients
  BOOST_TEST(made(shapes, slow(4), zero3).memory.working == 2 * open);  // and values
  BOOST_TEST(made(shapes, slow(4), pages).memory.working == open);
}

BOOST_AUTO_TEST_CASE(parts_are_rounded_up_to_cache_lines_and_may_be_larger_than_what_is_cut) {
  const auto values = [](std::size_t count, int ranks) {
    const model_shapes shapes{.parameters = {{.path = "w", .extents = {count}}}};
    return made(shapes, slow(ranks), zero3).memory.values;
  };
  BOOST_TEST(values(1024, 4) == 1024u);
  BOOST_TEST(values(1025, 4) == 1088u);  // 257 elements are 1028 bytes
  BOOST_TEST(values(3, 8) == 64u);
  BOOST_TEST(values(0, 8) == 0u);
}

BOOST_AUTO_TEST_CASE(frozen_parameters_have_no_gradient_no_state_and_are_not_reduced) {
  model_shapes shapes = four_units();
  shapes.parameters[0].trainable = false;
  const auto whole = made(shapes, slow(4), ddp);
  BOOST_TEST(whole.memory.values == 16 * MiB);
  BOOST_TEST(whole.memory.gradients == 12 * MiB);
  BOOST_TEST(whole.memory.optimizer == 24 * MiB);
  BOOST_TEST(whole.bytes() == 2 * 12.0 * MiB * 3 / 4);
  // Stage 1 gathers what changed, stage 3 everything, twice.
  BOOST_TEST(made(shapes, slow(4), zero1).bytes() == 2 * 12.0 * MiB * 3 / 4);
  BOOST_TEST(made(shapes, slow(4), zero3).bytes() == (2 * 16.0 + 12) * MiB * 3 / 4);
}

BOOST_AUTO_TEST_CASE(bytes_sent_follow_the_formulas) {
  const double psi = 16.0 * MiB, others = 3.0 / 4;
  const auto bytes = [&](const planned_layout& layout, std::size_t passes) {
    step_work work = three_seconds;
    work.micro_batches = passes;
    return made(four_units(), slow(4), layout, work).bytes();
  };
  for (const std::size_t k : {1U, 3U}) {
    BOOST_TEST(bytes(ddp, k) == 2 * psi * others);
    BOOST_TEST(bytes(zero1, k) == 2 * psi * others);
    BOOST_TEST(bytes(zero2, k) == 2 * psi * others);
    BOOST_TEST(bytes(zero3, k) == (2 * static_cast<double>(k) + 1) * psi * others);
    BOOST_TEST(bytes(pages, k) == psi * others);
  }
  BOOST_TEST(made(four_units(), slow(1), ddp).traffic.empty());

  const auto hybrid = made(four_units(), slow(8, 2), {{.zero = 3}, 2});
  BOOST_REQUIRE(hybrid.traffic.size() == 2u);
  BOOST_TEST(hybrid.traffic[0].axis == "shard");
  BOOST_TEST(hybrid.traffic[0].bytes == 3 * psi * others);
  BOOST_TEST(hybrid.traffic[1].axis == "replicate");
  BOOST_TEST(hybrid.traffic[1].bytes == 2 * psi / 4 * 1 / 2);
  // The four ranks of a host share its link: 4 MiB each at 1 MiB/s.
  BOOST_TEST(hybrid.traffic[1].seconds == 16.0);
}

BOOST_AUTO_TEST_CASE(embedding_traffic_is_the_rows_of_the_batch) {
  // 1000 rows of 256 bytes, 10 of them in a batch; a row's number has 4 bytes.
  const model_shapes shapes{.parameters = {{.path = "words", .extents = {1000, 64},
                                            .rows = table_rows::of_a_batch}}};
  step_work work = three_seconds;
  work.table_rows = 10;
  BOOST_TEST(made(shapes, slow(4), ddp, work).bytes() == 3.0 * 10 * 260);
  const auto cut = made(shapes, slow(4), zero3, work);
  BOOST_TEST(cut.bytes() == 0.75 * (10 * 260 + 10 * 260));  // fetched, and their gradients
  BOOST_TEST(cut.traffic.at(0).axis == "tables");
  BOOST_TEST(cut.memory.values == 64'000u);
  BOOST_TEST(cut.memory.working == 2u * 10 * 256);
  // Where all ranks' rows are more than the table, ddp sums all of it.
  work.table_rows = 500;
  BOOST_TEST(made(shapes, slow(4), ddp, work).bytes() == 2 * 256'000.0 * 3 / 4);
}

BOOST_AUTO_TEST_CASE(a_step_takes_the_longer_of_computing_and_communicating) {
  // Psi = 16 MiB: a gather or a reduction takes 12 s, a unit's 3 s. Forward 1 s, backward 2 s.
  BOOST_TEST(made(four_units(), slow(4), ddp).seconds == 1 + 24 + 3 + 3.0);
  BOOST_TEST(made(four_units(), slow(4), zero1).seconds == 12 + 12 + 3 + 3.0);
  BOOST_TEST(made(four_units(), slow(4), zero3).seconds == 12 + 24 + 3 + 3.0);
  BOOST_TEST(made(four_units(), slow(4), pages).seconds == 1 + 12 + 3.0);
  cluster quick = slow(4);
  quick.flops = 1.0 / 100;  // forward 100 s, backward 200 s: only the ends are not hidden
  BOOST_TEST(made(four_units(), quick, ddp).seconds == 300 + 3 + 3.0);
  BOOST_TEST(made(four_units(), quick, zero3).seconds == 300 + 3 + 3.0);
  // AdamW's step goes over 28 bytes a parameter: 28 s of ddp at 4 MiB/s, a quarter where cut.
  quick.memory_bandwidth = 4 * MiB;
  BOOST_TEST(made(four_units(), quick, ddp).optimizer == 28.0);
  BOOST_TEST(made(four_units(), quick, zero1).optimizer == 7.0);
  // A message's latency counts for each unit and neighbour: 3 x 4 of them in each pass.
  cluster far = slow(4);
  far.memory_link = {1e30, 1};
  BOOST_TEST(made(four_units(), far, zero1).seconds == 12 + 12 + 3 + 3.0,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(layouts_that_fit_come_first_and_are_sorted_by_time) {
  cluster machine = slow(4);
  machine.memory_of_host = 4 * 48 * MiB;  // ddp needs 64 MiB, zero1 40, zero2 28 + 16
  const auto table = plan(four_units(), machine, three_seconds);
  BOOST_REQUIRE(table.steps.size() == 5u);
  BOOST_TEST(to_string(table.steps[0].layout.how) == "fsdp");
  BOOST_TEST(table.steps[0].layout.host_pages);
  BOOST_TEST(to_string(table.steps[4].layout.how) == "ddp");
  BOOST_TEST(!table.steps[4].fits);
  BOOST_TEST(std::count_if(table.steps.begin(), table.steps.end(),
                           [](const planned_step& each) { return each.fits; }) == 4);
  for (std::size_t i = 1; i < 4; ++i) {
    BOOST_TEST(table.steps[i].seconds >= table.steps[i - 1].seconds);
  }
  const std::string text = to_text(table), page = to_markdown(table);
  BOOST_TEST(text.find("4.194 million parameters on 4 ranks of 1 host, 50.3 MB") == 0u);
  BOOST_TEST(text.find("ddp            67.1 MB") != std::string::npos, text);
  BOOST_TEST(text.find("does not fit: 16.8 MB too much") != std::string::npos);
  BOOST_TEST(std::count(page.begin(), page.end(), '\n') == 9);
  BOOST_TEST(page.find("| ddp | 67.1 MB | 16.8 MB | 16.8 MB | 33.6 MB |") != std::string::npos);
  // Over two hosts, replicas on each: hybrid as well.
  BOOST_TEST(plan(four_units(), slow(4, 2), three_seconds).steps.size() == 5u);
  BOOST_TEST(plan(four_units(), slow(4, 4), three_seconds).steps.size() == 4u);
  BOOST_TEST(plan(four_units(), slow(1), three_seconds).steps.size() == 1u);
}

BOOST_AUTO_TEST_CASE(where_nothing_fits_the_smallest_is_shown_with_what_would_make_it_fit) {
  // fsdp in pages takes 16 MiB of state in quarters, and two units' gradients, 8 MiB.
  cluster machine = slow(4);
  machine.memory_of_host = 4 * 22 * MiB;
  step_work work = three_seconds;
  const auto said = [&] { return to_text(plan(four_units(), machine, work)); };
  const auto shows = [&](const char* what) {
    BOOST_TEST(said().find(what) != std::string::npos, what << " is not in\n" << said());
  };
  const std::string text = said(), page = to_markdown(plan(four_units(), machine, work));
  BOOST_TEST(std::count(text.begin(), text.end(), '\n') == 4, text);  // title, head, row, sentence
  BOOST_TEST(page.find("\n\nNone of 5 layouts fits") != std::string::npos, page);
  shows("None of 5 layouts fits; fsdp takes the least memory. What would fit: hosts of 101 MB");
  shows(", the same ranks on 2 hosts.\n");
  work.activation_bytes = 10 * MiB;
  shows("A smaller batch is not enough: without activations it takes 25.2 MB, and a rank has 23.1");
  machine.memory_of_host = 4 * 30 * MiB;
  shows("or 6.29 MB of activations instead of 10.5 MB: a smaller batch");
  machine.memory_of_host = 4 * 34 * MiB;  // fits
  BOOST_TEST(said().find("None of") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_there_is_refused_with_what_would_fit) {
  cluster machine = slow(4);
  machine.memory_of_host = 4 * 48 * MiB;
  BOOST_CHECK_NO_THROW(require_fits("zero=1", four_units(), machine, zero1, {}, 8));
  // Its optimizer is not known.
  BOOST_CHECK_NO_THROW(require_fits("ddp", four_units(), machine, ddp));
  const std::string said =
      parx_test::message_of([&] { require_fits("ddp", four_units(), machine, ddp, {}, 8); });
  BOOST_TEST(said.find("usage: ddp of 4.194 million parameters needs 67.1 MB on each rank") == 0u,
             said);
  BOOST_TEST(said.find("the 4 ranks of a host have 50.3 MB each. What fits: ") != std::string::npos,
             said);
  BOOST_TEST(said.find("zero=1 (41.9 MB)") != std::string::npos, said);
}

BOOST_AUTO_TEST_CASE(shapes_are_those_of_a_model_without_values) {
  models::gpt<> gpt{{.vocab_size = 2000, .n_positions = 64, .n_embd = 64, .n_layer = 2}};
  const model_shapes of_gpt = shapes_of(gpt, {"transformer.h.*"});
  BOOST_TEST(of_gpt.units == (std::vector<std::string>{"", "transformer.h.0", "transformer.h.1"}),
             boost::test_tools::per_element());
  // 12 h^2 + 13 h a layer, (vocabulary + positions) h, 2 h of the last norm.
  BOOST_TEST(of_gpt.count() == 2u * (12 * 64 * 64 + 13 * 64) + 2064 * 64 + 128);
  for (const planned_parameter& each : of_gpt.parameters) {
    BOOST_TEST((each.rows == table_rows::none), each.path);  // tied: read as a whole
    const bool in_layer = each.path.find(".h.") != std::string::npos;
    BOOST_TEST((each.unit != 0) == in_layer, each.path);
  }
  models::llama<> llama{{.vocab_size = 2000, .hidden_size = 64, .num_hidden_layers = 1}};
  const model_shapes of_llama = shapes_of(llama, {"model.layers.*", "lm_head"});
  BOOST_TEST((of_llama.parameters[0].rows == table_rows::of_a_batch));
  BOOST_TEST(of_llama.units.back() == "lm_head");
  BOOST_TEST(parx_test::message_of([&] {
               static_cast<void>(shapes_of(llama, {"model.layer.*"}));
             }) == "usage: shapes_of: the model has no parameter in a module \"model.layer.*\"");
}

BOOST_AUTO_TEST_CASE(links_are_read_by_their_speed) {
  BOOST_TEST(parse_link("10gbit").bytes_per_second == 1.25e9);
  BOOST_TEST(parse_link("100gbit").latency == 2e-6);
  BOOST_TEST(parse_link("200mbit:500").bytes_per_second == 2.5e7);
  BOOST_TEST(parse_link("200mbit:500").latency == 500e-6);
  for (const char* wrong : {"", "10", "gbit", "10gbits", "0gbit", "-1gbit", "nangbit", "1gbit:",
                            "1gbit:-1", "1gbit:1x"}) {
    BOOST_CHECK_THROW(static_cast<void>(parse_link(wrong)), usage_error);
  }
}

BOOST_AUTO_TEST_CASE(impossible_layouts_are_refused) {
  const auto refused = [](const cluster& machine, const planned_layout& layout) {
    return parx_test::message_of([&] { static_cast<void>(made(four_units(), machine, layout)); });
  };
  BOOST_TEST(refused(slow(3, 2), ddp) ==
             "usage: plan: 3 ranks on 2 hosts: give as many ranks to each");
  BOOST_TEST(refused(slow(4), {{.zero = 4}}) == "usage: plan: zero=4: give zero= 0 to 3");
  BOOST_TEST(refused(slow(4), {{.zero = 3}, 3}) == "usage: plan: 4 ranks are not 3 copies of fsdp");
}
