// Collectives in shared buffers, and the links of shared memory.
#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/explain.hpp>
#include <parx/trace/chrome.hpp>

#include "comm/jobs.hpp"

namespace {

constexpr jobs::kind kinds[] = {jobs::kind::inproc, jobs::kind::shm, jobs::kind::tcp};

/// Element k of a rank's contribution.
std::int64_t value(int rank, std::size_t k) {
  return static_cast<std::int64_t>(k % 1000) * (rank + 1);
}

}  // namespace

BOOST_AUTO_TEST_CASE(collectives_in_shared_buffers_are_exact) {
  for (const auto kind : kinds) {
    for (const int world : {1, 2, 3, 4, 5, 8}) {
      const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
        const auto ranks = static_cast<std::size_t>(world);
        for (const std::size_t part : {std::size_t{1}, std::size_t{7}, std::size_t{40'009}}) {
          const std::size_t n = part * ranks;
          auto shared = parx::allocate_shared<std::int64_t>(group, n + 3);
          const std::span<std::int64_t> data{shared.data() + 3, n};  // an offset must not matter
          const auto fill = [&] {
            for (std::size_t k = 0; k < n; ++k) data[k] = value(group.rank(), k);
          };
          const auto sum = [&](std::size_t k) { return value(0, k) * world * (world + 1) / 2; };
          const auto me = static_cast<std::size_t>(group.rank());

          fill();
          parx::all_reduce(group, data);
          for (std::size_t k = 0; k < n; ++k) {
            parx::require(data[k] == sum(k), "all_reduce at {}", k);
          }

          fill();
          const std::vector<std::int64_t> mine(data.begin(), data.end());
          parx::all_reduce(group, mine, data);
          for (std::size_t k = 0; k < n; ++k) {
            parx::require(data[k] == sum(k), "out of place at {}", k);
          }

          fill();
          std::vector<std::int64_t> block(part);
          parx::reduce_scatter(group, data, block);
          for (std::size_t k = 0; k < part; ++k) {
            parx::require(block[k] == sum(me * part + k), "reduce_scatter at {}", k);
          }

          for (std::size_t k = 0; k < part; ++k) block[k] = value(group.rank(), k);
          parx::all_gather(group, block, data);
          for (std::size_t k = 0; k < n; ++k) {
            parx::require(data[k] == value(static_cast<int>(k / part), k % part),
                          "all_gather at {}", k);
          }

          fill();
          parx::broadcast(group, data, {.root = world - 1});
          for (std::size_t k = 0; k < n; ++k) {
            parx::require(data[k] == value(world - 1, k), "broadcast at {}", k);
          }
        }
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", " << world << " ranks: " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_shared_buffer_on_one_rank_only_is_found_out) {
  const auto failures = jobs::run_collecting(jobs::kind::shm, 2, [](parx::process_group& group) {
    auto shared = parx::allocate_shared<float>(group, 1 << 20);
    std::vector<float> ordinary(1 << 20);
    parx::reduce_options options;
    options.use = parx::algorithm::shared;
    if (group.rank() == 0) {
      parx::all_reduce(group, shared, options);
    } else {
      parx::all_reduce(group, ordinary);
    }
  });
  for (const auto& failure : failures) {
    BOOST_TEST(failure.find("shared") != std::string::npos, failure);
  }
}

BOOST_AUTO_TEST_CASE(
    small_calls_from_one_line_are_right_in_whatever_memory_and_keep_none_of_it_alive) {
  const auto failure = jobs::run(jobs::kind::shm, 2, [](parx::process_group& group) {
    auto first = parx::allocate_shared<std::int64_t>(group, 1 << 18);
    auto second = parx::allocate_shared<std::int64_t>(group, 1 << 18);
    std::vector<std::int64_t> ordinary(1 << 18);
    const auto sum_of = [&](std::int64_t* at, std::size_t count) {
      for (std::size_t k = 0; k < count; ++k) at[k] = value(group.rank(), k) + 1;
      parx::all_reduce(group, std::span(at, count));
      for (std::size_t k = 0; k < count; ++k) {
        parx::require(at[k] == value(0, k) + value(1, k) + 2, "element {} of {}", k, count);
      }
    };
    // The larger one works in place.
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 17}) {
      for (int i = 0; i < 3; ++i) {
        for (std::int64_t* at :
             {first.data(), second.data() + 5, ordinary.data(), first.data() + 1}) {
          sum_of(at, count);
        }
      }
    }
    const void* gone = second.data();
    sum_of(second.data(), 1);
    second = {};
    parx::barrier(group);
    parx::require(parx::detail::core_of(group)->issuer().areas().find(gone, 8).area == nullptr,
                  "the group keeps a buffer that its owner gave up");
    sum_of(first.data(), 1);
  });
  BOOST_TEST(failure == "", failure);
}

BOOST_AUTO_TEST_CASE(
    staged_calls_that_follow_each_other_never_overwrite_what_a_slow_rank_still_reads) {
  // Sizes of one to five slices, so that each call begins with another part than the last one ended
  // with.
  const std::size_t slice = parx::largest_slice / sizeof(std::int32_t);
  const std::size_t counts[] = {slice / 2, 3, 2 * slice + 1, slice, 4 * slice + 77, 10'001};
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    for (const int world : {2, 3, 5}) {
      const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
        std::mt19937 random(static_cast<unsigned>(group.rank()));
        std::vector<std::int32_t> data(5 * slice), sum(5 * slice);
        for (int call = 0; call < 40; ++call) {
          const std::size_t count = counts[static_cast<std::size_t>(call) % std::size(counts)];
          for (std::size_t k = 0; k < count; ++k) {
            data[k] = call + group.rank() * 1000 + static_cast<std::int32_t>(k % 97);
          }
          if (random() % 4 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
          }
          const std::span out(call % 2 == 0 ? data.data() : sum.data(), count);
          parx::all_reduce(group, std::span(data.data(), count), out,
                           {.use = parx::algorithm::staged});
          const std::int32_t ranks = world * (world - 1) / 2 * 1000;
          for (std::size_t k = 0; k < count; ++k) {
            parx::require(out[k] == world * (call + static_cast<std::int32_t>(k % 97)) + ranks,
                          "call {}, element {} of {}", call, k, count);
          }
        }
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", " << world << " ranks: " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(
    staged_calls_with_elements_of_other_sizes_do_not_disturb_each_other_however_the_ranks_meet) {
  using triple = std::array<std::int32_t, 3>;  // a part holds no whole number of them
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    for (const int world : {3, parx::most_in_host_barrier + 1}) {
      const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
        constexpr auto staged = parx::algorithm::staged;
        std::mt19937 random(static_cast<unsigned>(group.rank()));
        const std::size_t counts[] = {400, 30'000};  // each rank reduces all of it, or a share
        for (int call = 0; call < 24; ++call) {
          const std::size_t count = counts[call / 3 % 2];
          if (call % 3 == 0) {
            std::vector<triple> data(count, triple{call, group.rank(), 1});
            const bool slow = random() % 3 == 0;
            int added = 0;
            const auto add = [&](const triple& a, const triple& b) {
              if (slow && ++added % 200 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
              }
              return triple{a[0] + b[0], a[1] + b[1], a[2] + b[2]};
            };
            parx::all_reduce(
                group, data,
                parx::user_op(add, {.order = parx::reduction_order::any, .use = staged}));
            const triple sum{call * world, world * (world - 1) / 2, world};
            parx::require(data.front() == sum && data.back() == sum, "structs of call {}", call);
          } else if (call % 3 == 1) {
            std::vector<std::int8_t> data(count, static_cast<std::int8_t>(call % 7));
            parx::all_reduce(group, data, {.use = staged});
            for (const auto each : data) parx::require(each == call % 7 * world, "bytes, {}", call);
            parx::all_reduce(group, data, {.use = parx::algorithm::ring});
          } else {
            std::vector<std::int64_t> data(count, call + group.rank());
            const std::int64_t sum = world * call + world * (world - 1) / 2;
            parx::all_reduce(group, data, {.use = staged});
            for (const auto each : data) parx::require(each == sum, "words of call {}", call);
          }
        }
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", " << world << " ranks: " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(
    a_rank_that_wants_staging_memory_finds_out_that_the_others_call_something_else) {
  const auto started = std::chrono::steady_clock::now();
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto failures = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      std::vector<float> data(100'000);
      if (group.rank() == 1) return parx::barrier(group);
      parx::all_reduce(group, data, {.use = parx::algorithm::staged});
    });
    for (const auto& failure : failures) {
      BOOST_TEST(failure.find("different operations") != std::string::npos, failure);
    }
  }
  BOOST_TEST((std::chrono::steady_clock::now() - started < std::chrono::seconds(20)));
}

BOOST_AUTO_TEST_CASE(
    where_the_ranks_of_a_host_last_met_in_its_memory_it_is_found_out_who_calls_something_else) {
  const auto started = std::chrono::steady_clock::now();
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    for (const std::string other : {"of 99 float32", "barrier", "by ring", "broadcast"}) {
      const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
        std::vector<float> data(100);
        for (int i = 0; i < 3; ++i) {
          parx::all_reduce(group, data, {.use = parx::algorithm::staged});
        }
        if (group.rank() != 1) {
          parx::all_reduce(group, data, {.use = parx::algorithm::staged});
        } else if (other == "barrier") {
          parx::barrier(group);
        } else if (other == "by ring") {
          parx::all_reduce(group, data, {.use = parx::algorithm::ring});
        } else if (other == "broadcast") {
          parx::broadcast(group, data, {.root = 1});  // needs nobody, and is left at once
          parx::barrier(group);
        } else {
          parx::all_reduce(group, std::span(data).first(99), {.use = parx::algorithm::staged});
        }
      });
      for (const auto& failure : failures) {
        BOOST_TEST(failure.find("different operations") != std::string::npos, failure);
        BOOST_TEST(failure.find(other) != std::string::npos, failure);
      }
    }
  }
  BOOST_TEST((std::chrono::steady_clock::now() - started < std::chrono::seconds(5)));
}

BOOST_AUTO_TEST_CASE(
    a_rank_that_ends_while_the_others_meet_is_named_and_one_that_has_done_its_part_is_not) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto failures = jobs::run_collecting(kind, 4, [](parx::process_group& group) {
      std::vector<float> data(100);
      parx::all_reduce(group, data, {.use = parx::algorithm::staged});
      if (group.rank() == 2) return;
      parx::all_reduce(group, data, {.use = parx::algorithm::staged});
    });
    for (std::size_t rank = 0; rank < failures.size(); ++rank) {
      const bool named = failures[rank].find("rank 2") != std::string::npos;
      BOOST_TEST(named == (rank != 2), rank << ": " << failures[rank]);
    }
    for (int round = 0; round < 20; ++round) {
      const auto ended = jobs::run(kind, 4, [](parx::process_group& group) {
        std::vector<float> data(100);
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        parx::all_reduce(group, data, {.use = parx::algorithm::staged});
      });
      BOOST_TEST(ended == "", ended);
    }
  }
}

BOOST_AUTO_TEST_CASE(
    ranks_of_a_host_stage_sums_of_ordinary_buffers_but_two_of_them_short_ones_and_explain_says_so) {
  for (const int world : {2, 4}) {
    const auto failure = jobs::run(jobs::kind::shm, world, [&](parx::process_group& group) {
      for (const std::size_t bytes : {std::size_t{256}, std::size_t{1} << 20}) {
        const auto rows = parx::explain(group, parx::operation::all_reduce, bytes);
        const bool staged = rows.front().name == parx::algorithm::staged;
        parx::require(rows.front().chosen && staged == (world > 2 || bytes > 256),
                      "explain has {} for {} bytes", name_of(rows.front().name), bytes);
      }
    });
    BOOST_TEST(failure == "", failure);
  }
}

BOOST_AUTO_TEST_CASE(a_trace_shows_a_staged_call_once_and_by_another_name_the_set_up_ahead_of_it) {
  static const auto path = std::filesystem::temp_directory_path() /
                           ("parx_shared_test_" + std::to_string(::getpid()) + ".json");
  std::atexit([] { std::filesystem::remove(path); });  // after the trace, which is written again
  parx::trace::start({.path = path});
  const auto failure = jobs::run(jobs::kind::inproc, 3, [](parx::process_group& group) {
    std::vector<float> data(100);
    for (int i = 0; i < 4; ++i) {
      parx::all_reduce(group, data, {.use = parx::algorithm::staged});
    }
  });
  BOOST_TEST(failure == "", failure);
  BOOST_TEST(parx::trace::flush());
  parx::trace::stop();
  std::ifstream file(path);
  std::size_t calls = 0, set_ups = 0;
  for (std::string line; std::getline(file, line);) {
    calls += line.find(R"("name":"all_reduce")") != line.npos;
    set_ups += line.find(R"("name":"set-up of shared memory")") != line.npos;
  }
  BOOST_TEST(calls == 12u);
  BOOST_TEST(set_ups == 3u);
}

BOOST_AUTO_TEST_CASE(ranks_that_use_different_areas_or_sizes_are_told) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto areas = jobs::run_collecting(kind, 2, [](parx::process_group& group) {
      auto first = parx::allocate_shared<float>(group, 100'000);
      auto second = parx::allocate_shared<float>(group, 100'000);
      parx::reduce_options options;
      options.use = parx::algorithm::shared;
      parx::all_reduce(group, group.rank() == 0 ? first : second, options);
    });
    for (const auto& failure : areas) {
      BOOST_TEST(failure.find("different operations") != std::string::npos, failure);
    }
    const auto sizes = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      auto area = parx::allocate_shared<float>(group, group.rank() == 1 ? 2'000'000 : 1000);
      parx::barrier(group);
    });
    for (const auto& failure : sizes) {
      BOOST_TEST(failure.find("the same size") != std::string::npos, failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(memory_of_groups_of_the_same_ranks_is_not_mixed_up_where_a_rank_is_late) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto failure = jobs::run(kind, 2, [](parx::process_group& world) {
      const std::vector<int> all{0, 1};
      auto first = world.subgroup(all), second = world.subgroup(all);
      if (world.rank() == 1) parx::barrier(world);
      auto a = parx::allocate_shared<int>(first, 10'000);
      auto b = parx::allocate_shared<int>(first, 20'000);
      auto c = parx::allocate_shared<int>(second, 30'000);
      if (world.rank() == 0) parx::barrier(world);  // its memory is on its way
      for (auto* each : {&a, &b, &c}) {
        auto& group = each == &c ? second : first;
        const auto value = static_cast<int>(each->size()) + group.rank();
        std::fill(each->begin(), each->end(), value);
        parx::all_reduce(group, *each, {.use = parx::algorithm::shared});
        parx::require((*each)[0] == 2 * static_cast<int>(each->size()) + 1, "{}", (*each)[0]);
      }
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(memory_that_was_offered_is_not_read_after_its_sender_gave_up) {
  const auto failures = jobs::run_collecting(jobs::kind::shm, 2, [](parx::process_group& group) {
    std::vector<std::int32_t> data(2'000'000, 1);
    if (group.rank() == 0) {
      parx::send(group, std::vector<std::int32_t>(1), 1);  // opens the link
      std::this_thread::sleep_for(std::chrono::milliseconds(150));  // the other has left its recv
      try {
        parx::send(group, data, 1, {.timeout = std::chrono::milliseconds(300)});
      } catch (const parx::error&) {
        std::fill(data.begin(), data.end(), 2);
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        throw;
      }
    } else {
      std::vector<std::int32_t> got(1);
      parx::recv(group, got, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      parx::recv(group, data, 0);
      throw std::runtime_error("received what was never sent");
    }
  });
  BOOST_TEST(failures[0].find("timed out") != std::string::npos, failures[0]);
  BOOST_TEST(failures[1].find("never sent") == std::string::npos, failures[1]);
  BOOST_TEST(!failures[1].empty());
}
