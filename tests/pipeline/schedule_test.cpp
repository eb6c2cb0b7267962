#include "common/pipeline/draw.hpp"
#include "common/pipeline/from_trace.hpp"
#include <parx/pipeline.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace parx;

namespace {

/// "0F0 0B0", or "F0 B0" of a rank whose only stage has its number.
std::vector<stage_action> actions(const std::string& text, int rank = 0) {
  std::istringstream words(text);
  std::vector<stage_action> found;
  for (std::string word; words >> word;) {
    if (word.front() > '9') word = std::to_string(rank) + word;
    found.push_back(parse_stage_action(word).value());
  }
  return found;
}

void is_golden(const pipeline_table& made, const std::vector<std::string>& rows) {
  BOOST_TEST_REQUIRE(made.ranks.size() == rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const auto expected = actions(rows[rank], static_cast<int>(rank));
    BOOST_TEST((made.ranks[rank] == expected), made.name << ", rank " << rank << ":\n"
                                                         << to_csv(made));
  }
}

/// Every combination that the schedule takes; the number of tables.
template <typename Body>
int for_all(pipeline_schedule make, int chunks, Body body) {
  int tables = 0;
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      for (int v = 1; v <= chunks; ++v) {
        const int rounds = std::max(1, m / p);
        if (v > 1 && make != schedules::looped_bfs && m % rounds != 0) continue;
        body(make({.ranks = p, .microbatches = m, .chunks = v, .hop = 0.25}), p, m, v);
        ++tables;
      }
    }
  }
  return tables;
}

std::string refusal(std::string_view csv) {
  try {
    (void)from_csv(csv, "mine");
  } catch (const usage_error& wrong) {
    return wrong.what();
  }
  return "accepted";
}

}  // namespace

// The tables of PyTorch's schedules, as published and simulated elsewhere.
BOOST_AUTO_TEST_CASE(one_f_one_b_is_the_golden_table) {
  is_golden(schedules::one_f_one_b({.ranks = 4, .microbatches = 8}),
            {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
             "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
             "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
             "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"});
}

BOOST_AUTO_TEST_CASE(interleaved_is_the_golden_table) {
  is_golden(schedules::interleaved({.ranks = 2, .microbatches = 4, .chunks = 2}),
            {"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
             "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"});
}

BOOST_AUTO_TEST_CASE(zb1p_is_the_golden_table) {
  is_golden(schedules::zb1p({.ranks = 4, .microbatches = 8}),
            {"F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
             "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7",
             "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
             "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7"});
}

BOOST_AUTO_TEST_CASE(zbv_is_the_golden_table) {
  is_golden(schedules::zbv({.ranks = 2, .microbatches = 4}),
            {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 "
             "0I2 0W2 0I3 0W3",
             "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 "
             "1W2 2W3 1W3"});
}

BOOST_AUTO_TEST_CASE(gpipe_and_looped_bfs_are_all_forwards_then_all_backwards) {
  is_golden(schedules::gpipe({.ranks = 2, .microbatches = 3}),
            {"F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"});
  is_golden(schedules::looped_bfs({.ranks = 2, .microbatches = 2, .chunks = 2}),
            {"0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0", "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0"});
}

BOOST_AUTO_TEST_CASE(every_table_of_1_to_8_ranks_32_micro_batches_and_4_chunks_is_proven) {
  const auto fits = [](const pipeline_table& table, int, int, int) {
    try {
      (void)validate(table);
    } catch (const usage_error& wrong) {
      BOOST_ERROR(wrong.what());
    }
  };
  BOOST_TEST(for_all(schedules::gpipe, 1, fits) == 256);
  BOOST_TEST(for_all(schedules::one_f_one_b, 1, fits) == 256);
  BOOST_TEST(for_all(schedules::eager_one_f_one_b, 1, fits) == 256);
  BOOST_TEST(for_all(schedules::interleaved, 4, fits) == 745);
  BOOST_TEST(for_all(schedules::looped_bfs, 4, fits) == 1024);
  BOOST_TEST(for_all(schedules::zb1p, 4, fits) == 745);
  BOOST_TEST(for_all(schedules::zbv, 1, fits) == 256);
}

BOOST_AUTO_TEST_CASE(the_first_micro_batches_of_every_table_are_a_table) {
  for (const named_schedule& each : pipeline_schedules) {
    const bool has_chunks = each.make == schedules::interleaved ||
                            each.make == schedules::looped_bfs || each.make == schedules::zb1p;
    for (const int p : {1, 2, 3, 5}) {
      const pipeline_table whole = each.make(
          {.ranks = p, .microbatches = 2 * p, .chunks = has_chunks ? 2 : 1, .hop = 0.25});
      for (int count = 1; count <= 2 * p; ++count) {
        const pipeline_table part = first_microbatches(whole, count);
        BOOST_TEST_CONTEXT(each.name << ", " << p << " ranks, " << count) {
          (void)validate(part);  // proves that each stage runs each micro-batch once
          BOOST_TEST(part.microbatches == count);
          // Schedules that fit any number make the same by themselves.
          const bool is_plain =
              each.make == schedules::gpipe || each.make == schedules::one_f_one_b;
          if (is_plain) {
            BOOST_TEST((part.ranks == each.make({.ranks = p, .microbatches = count}).ranks));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(one_message_on_a_link_suffices_for_gpipe_1f1b_and_zbv) {
  for (const auto make : {schedules::gpipe, schedules::one_f_one_b, schedules::zbv}) {
    for_all(make, 1, [](const pipeline_table& table, int p, int m, int) {
      BOOST_TEST(validate(table).link_messages == 1, table.name << " " << p << " " << m);
    });
  }
}

BOOST_AUTO_TEST_CASE(peak_in_flight_is_the_formula) {
  using counts = std::vector<int>;
  const auto by_rank = [](int p, auto formula) {
    counts all;
    for (int r = 0; r < p; ++r) all.push_back(formula(r));
    return all;
  };
  const auto same = [](const counts& a, const counts& b, const pipeline_table& t, int m) {
    BOOST_TEST((a == b), t.name << ", " << t.ranks.size() << " ranks, " << m << " micro-batches");
  };
  for_all(schedules::gpipe, 1, [&](const auto& t, int p, int m, int) {
    same(validate(t).in_flight, counts(static_cast<std::size_t>(p), m), t, m);
  });
  for_all(schedules::one_f_one_b, 1, [&](const auto& t, int p, int m, int) {
    same(validate(t).in_flight, by_rank(p, [&](int r) { return std::min(p - r, m); }), t, m);
  });
  // A hop of 0.25 of F and B: one more forward at each hop.
  for_all(schedules::eager_one_f_one_b, 1, [&](const auto& t, int p, int m, int) {
    same(validate(t).in_flight,
         by_rank(p, [&](int r) { return std::min(p - r + (p - 1 - r), m); }), t, m);
  });
  for_all(schedules::interleaved, 4, [&](const auto& t, int p, int m, int v) {
    const int round = v == 1 ? m : m / std::max(1, m / p);
    same(validate(t).in_flight, by_rank(p, [&](int r) {
           return std::min((v - 1) * round + 2 * (p - 1 - r) + 1, m * v);
         }), t, m);
  });
  for_all(schedules::zb1p, 1, [&](const auto& t, int p, int m, int) {
    same(validate(t).in_flight, by_rank(p, [&](int r) { return std::min(p - r, m); }), t, m);
    same(validate(t).kept, counts(static_cast<std::size_t>(p), std::min(p, m)), t, m);
  });
  for_all(schedules::zbv, 1, [&](const auto& t, int p, int m, int) {
    if (m < 2 * p) return;
    same(validate(t).kept, counts(static_cast<std::size_t>(p), 2 * p), t, m);
  });
}

BOOST_AUTO_TEST_CASE(the_bubble_of_the_virtual_clock_is_the_closed_form) {
  const auto bubble = [](const pipeline_table& t, const pipeline_costs& costs = {}) {
    return simulate(t, costs).bubble();
  };
  const auto is = [](double found, double expected, const char* what, int p, int m) {
    BOOST_TEST(std::abs(found - expected) < 1e-12, what << ": " << found << ", not " << expected
                                                        << " at p = " << p << ", m = " << m);
  };
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 32; ++m) {
      const double q = p - 1;
      is(bubble(schedules::gpipe({.ranks = p, .microbatches = m})), q / (m + q), "gpipe", p, m);
      is(bubble(schedules::one_f_one_b({.ranks = p, .microbatches = m})), q / (m + q), "1f1b", p,
         m);
      is(bubble(schedules::zb1p({.ranks = p, .microbatches = m})), q / (3 * m + q), "zb1p", p, m);
      if (m >= 2 * p - 1) {
        is(bubble(schedules::zbv({.ranks = p, .microbatches = m})), q / (6 * m + q), "zbv", p, m);
      }
      for (int v = 2; v <= 4 && m % p == 0; ++v) {
        is(bubble(schedules::interleaved({.ranks = p, .microbatches = m, .chunks = v})),
           q / (v * m + q), "interleaved", p, m);
      }
    }
  }
  // As published, in per cent.
  const pipeline_shape shape{.ranks = 4, .microbatches = 8};
  BOOST_TEST(std::lround(1000 * bubble(schedules::gpipe(shape))) == 273);
  BOOST_TEST(std::lround(1000 * bubble(schedules::zbv(shape))) == 59);
  BOOST_TEST(std::lround(1000 * bubble(schedules::zbv(shape), {.f = 1, .i = 1.4, .w = 0.6})) == 91);
}

BOOST_AUTO_TEST_CASE(a_hop_costs_1f1b_what_the_simulations_of_others_say_and_eager_1f1b_nothing) {
  struct row {
    int p, m;
    double hop, gpipe, plain, eager;
    int in_flight;
  };
  for (const row& r : {row{2, 32, 0.5, 100, 115, 100, 3}, row{4, 32, 0.25, 106.5, 118, 106.5, 7},
                       row{4, 32, 0.5, 108, 131, 108, 7}, row{4, 32, 2, 117, 209, 117, 10},
                       row{8, 64, 0.5, 220, 275, 220, 15}, row{8, 64, 2, 241, 461, 241, 22}}) {
    const pipeline_costs costs{.f = 1, .b = 2, .hop = r.hop};
    const pipeline_shape shape{.ranks = r.p, .microbatches = r.m, .hop = r.hop / 3};
    const auto takes = [&](pipeline_schedule make) {
      return simulate(make(shape), costs).makespan();
    };
    BOOST_TEST(takes(schedules::gpipe) == r.gpipe);
    BOOST_TEST(std::abs(takes(schedules::one_f_one_b) - r.plain) <= 0.5);
    BOOST_TEST(takes(schedules::eager_one_f_one_b) == r.eager);
    BOOST_TEST(validate(schedules::eager_one_f_one_b(shape)).in_flight[0] == r.in_flight);
  }
}

BOOST_AUTO_TEST_CASE(text_goes_out_and_comes_back_and_pytorchs_extra_cells_are_skipped) {
  for (const named_schedule& each : pipeline_schedules) {
    const auto made = each.make({.ranks = 3, .microbatches = 6});
    BOOST_TEST((from_csv(to_csv(made)).ranks == made.ranks), each.name);
  }
  const auto read = from_csv("0UNSHARD,0F0,0SEND_F0,,0RECV_B0,0B0,0RESHARD,0REDUCE_GRAD\r\n"
                             ",1RECV_F0, 1F0 ,1I0,1SEND_B0,1W0\r\n");
  BOOST_TEST(to_csv(read) == "0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n1F0,1I0,1W0\n");
}

BOOST_AUTO_TEST_CASE(an_invalid_table_is_refused_with_the_rule_and_the_cell) {
  struct wrong {
    const char* csv;
    const char* says;
  };
  for (const wrong& each : {
           wrong{"0F0,0B0\n1F0,X\n", "line 2, cell 2, \"X\" is no action"},
           wrong{"0F0,0B0\n0F1,0B1\n",
                 "rank 1, action 0, 0F1: stage 0 is on rank 0 too (rule: place)"},
           wrong{"0F0,0F0,0B0\n", "rank 0, action 1, 0F0: the table has it twice (rule: once)"},
           wrong{"0F0,0B0,0F1\n", "0B1 is missing (rule: once)"},
           wrong{"0F0,0I0\n", "0W0 is missing (rule: once)"},
           wrong{"0F0,0B0\n2F0,2B0\n", "1F0 is missing (rule: once)"},
           wrong{"0F0,0I0,0B0\n",
                 "action 2, 0B0: the table has its backward in halves (rule: once)"},
           wrong{"0B0,0F0\n", "action 0, 0B0: its forward has to run before (rule: order)"},
           wrong{"0F0,0W0,0I0\n", "action 1, 0W0: its I has to run before (rule: order)"},
           wrong{"0F0,0REDUCE_GRAD,0B0\n",
                 "0B0: its stage's REDUCE_GRAD comes before (rule: whole)"},
           wrong{"0F0,0RESHARD,0B0\n", "0RESHARD: its stage is not unsharded (rule: whole)"},
           wrong{"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
                 "deadlock: rank 0 waits to run 0B0, rank 1 waits to run 1F1 (rule: deadlock)"},
       }) {
    const std::string said = refusal(each.csv);
    BOOST_TEST(said.find(each.says) != std::string::npos, each.csv << "\n" << said);
  }
  BOOST_CHECK_THROW((void)schedules::interleaved({.ranks = 4, .microbatches = 11, .chunks = 2}),
                    usage_error);
  BOOST_CHECK_THROW((void)schedules::gpipe({.ranks = 4, .microbatches = 8, .chunks = 2}),
                    usage_error);
  BOOST_CHECK_THROW((void)schedule_named("dualpipe"), usage_error);
}

BOOST_AUTO_TEST_CASE(a_drawing_has_a_row_for_each_rank_and_a_box_for_each_action) {
  const auto made = simulate(schedules::one_f_one_b({.ranks = 2, .microbatches = 2}));
  BOOST_TEST(to_text(made) == "  0: F0- F1- ........B0----- ....B1----- \n"
                              "  1: ....F0- B0----- F1- B1----- ........\n"
                              "1f1b: 9 long, bubble 33.3 %\n");
  const std::string svg = to_svg(std::vector{made, made});
  std::size_t boxes = 0;
  for (std::size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++boxes;
  BOOST_TEST(boxes == 16U);
}

BOOST_AUTO_TEST_CASE(a_drawing_shows_a_name_with_the_characters_of_markup) {
  auto made = simulate(schedules::one_f_one_b({.ranks = 2, .microbatches = 2}));
  made.name = "a<b> & \"c\"";
  const std::string svg = to_svg(std::vector{made});
  BOOST_TEST(svg.find(">a&lt;b&gt; &amp; &quot;c&quot;: 9 long") != std::string::npos, svg);
  BOOST_TEST(svg.find("<b>") == std::string::npos);
}

/// A rank's trace: an evaluation, then 1F1B on two ranks, whose actions take 10 and 20 us.
std::string trace_of(int rank, double offset, double late, bool drops_the_first) {
  const std::vector<std::string> step =
      rank == 0 ? std::vector<std::string>{"0F0@0", "0F1@10", "0B0@40", "0B1@70"}
                : std::vector<std::string>{"1F0@10", "1B0@20", "1F1@40", "1B1@50"};
  std::string events = R"({"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"r"}})";
  const auto add_step = [&](double at, double duration) {
    events += fmt::format(
        R"(,{{"ph":"X","cat":"pipeline","name":"step","pid":0,"tid":1,"ts":{},"dur":{}}})",
        at + late, duration);
  };
  add_step(499, 31);
  add_step(999, 99);
  add_step(1999, 20);
  const auto add = [&](const std::string& name, double at) {
    events += fmt::format(
        R"(,{{"ph":"X","cat":"pipeline","name":"{}","pid":0,"tid":1,"ts":{},"dur":{}}})", name,
        at + late, name[1] == 'F' ? 10 : 20);
  };
  events += R"(,{"ph":"X","cat":"comm","name":"send","pid":0,"tid":1,"ts":1,"dur":1})";
  if (!drops_the_first) add(fmt::format("{}F0", rank), 500);
  add(fmt::format("{}F1", rank), 520);
  for (const std::string& each : step) {
    const std::size_t mark = each.find('@');
    add(each.substr(0, mark), 1000 + std::stod(each.substr(mark + 1)));
  }
  add(fmt::format("{}F0", rank), 2000);  // an evaluation behind it
  return fmt::format(R"({{"otherData":{{"clock_offset_us":{}}},"traceEvents":[{}]}})", offset,
                     events);
}

BOOST_AUTO_TEST_CASE(traces_of_a_run_make_the_timeline_of_its_last_training_step) {
  // Rank 1 is on a host that started 5 s later, and has lost its first event.
  const std::vector<std::string> files{trace_of(1, 9e6, -5e6 + 1e7, true),
                                       trace_of(0, 4e6, 1e7, false)};
  const pipeline_timeline run = from_trace(files);
  const auto expected = simulate(schedules::one_f_one_b({.ranks = 2, .microbatches = 2}),
                                 {.f = 10e-6, .b = 20e-6});
  BOOST_TEST_REQUIRE(run.ranks.size() == 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    BOOST_TEST_REQUIRE(run.ranks[rank].size() == 4U);
    for (std::size_t k = 0; k < 4; ++k) {
      BOOST_TEST(to_string(run.ranks[rank][k].action) == to_string(expected.ranks[rank][k].action));
      BOOST_TEST(std::abs(run.ranks[rank][k].begin - expected.ranks[rank][k].begin) < 1e-8);
      BOOST_TEST(std::abs(run.ranks[rank][k].end - expected.ranks[rank][k].end) < 1e-8);
    }
  }
  BOOST_TEST(table_of(run).name == "1f1b");
  BOOST_TEST(std::abs(costs_of(run).f - 10e-6) < 1e-9);
  BOOST_TEST(std::abs(costs_of(run).b - 20e-6) < 1e-9);
  const auto says = [](const std::vector<std::string>& given, const std::string& words) {
    try {
      (void)from_trace(given);
    } catch (const usage_error& refused) {
      return std::string(refused.what()).find(words) != std::string::npos;
    }
    return false;
  };
  BOOST_TEST(says({files[0]}, "0 of the 1 traces have stage 0"));
  BOOST_TEST(says({files[0], files[1], files[1]}, "2 of the 3 traces have stage 0"));
  BOOST_TEST(says({R"({"otherData":{"clock_offset_us":0},"traceEvents":[]})"}, "no action"));
}
