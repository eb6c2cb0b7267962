// kill -9 of a stage's process in the middle of a step: every other rank, whatever it waits for,
// names its own stage and micro-batch and the rank that has gone.

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <regex>
#include <string>

#include <launch/processes.hpp>
#include <messages.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/mesh.hpp>
#include <parx/nn.hpp>
#include <parx/pipeline/catalog.hpp>

namespace {

using parx::tensor;
using parx_test::mentions;

struct batch {
  tensor<float> x;
  tensor<std::int64_t> y;
};

/// pp x dp processes that train until something happens; the victim gets the signal in its forward
/// of micro-batch 2 of the third step.
void train(parx::world& world, int replicas, int victim, parx::pipeline_schedule schedule,
           int signal) {
  parx::mesh<"pp", "dp"> mesh{world, {world.size() / replicas, replicas}};
  parx::nn::sequential model{parx::nn::linear{4, 8}, parx::nn::linear{8, 8},
                             parx::nn::linear{8, 3}};
  auto blocks = model.blocks();
  int calls = 0;
  for (auto& each : blocks) {
    each.forward = [inner = each.forward, rank = world.rank(), &calls, victim,
                    signal](const auto& x, const auto& in) {
      if (rank == victim && ++calls == 11) ::kill(::getpid(), signal);  // 4 a step, then 2
      return inner(x, in);
    };
  }
  typed_pipeline pipe{model, std::move(blocks), mesh["pp"],
                      {.schedule = schedule, .microbatches = 4, .data_parallel = &mesh["dp"],
                       .job = &mesh.all()}};
  const batch data{tensor<float>::ones({8, 4}), tensor<std::int64_t>::zeros({8})};
  for (;;) {
    static_cast<void>(pipe.step(data, [](const auto& y, const batch& part) {
      return parx::nn::cross_entropy(y, part.y);
    }));
    pipe.zero_grad();
  }
}

/// Every other rank names its own stage and micro-batch, and the victim.
void lose_one(int replicas, int victim, const char* schedule, int signal = SIGKILL) {
  processes::job all;
  parx::environment extra;
  if (signal == SIGSTOP) extra["PARX_TIMEOUT"] = "2";
  const int world = 3 * replicas;
  for (int rank = 0; rank < world; ++rank) {
    all.start(rank, world, [=](parx::world& group) {
      train(group, replicas, victim, parx::schedule_named(schedule), signal);
    }, extra);
  }
  const auto results = signal == SIGSTOP ? all.wait(std::chrono::seconds(6)) : all.wait();
  double first = 1e9, last = 0;
  for (int rank = 0; rank < world; ++rank) {
    const auto& each = results[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      if (signal == SIGKILL) BOOST_TEST(each.exit_code == 128 + SIGKILL);
      continue;
    }
    BOOST_TEST(each.exit_code == 1, "rank " << rank << ": " << each.text);
    first = std::min(first, each.seconds);
    last = std::max(last, each.seconds);
    const int stage = rank / replicas;
    const std::regex place("(before|in|after) " + std::to_string(stage) + "[FBIW][0-3] \\(stage " +
                           std::to_string(stage) + ", micro-batch [0-3]\\)");
    BOOST_TEST(std::regex_search(each.text, place), "rank " << rank << ": " << each.text);
    BOOST_TEST(mentions(each.text, "rank " + std::to_string(victim)),
               "rank " << rank << ": " << each.text);
  }
  BOOST_TEST(last - first < 2);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_names_its_stage_and_micro_batch_when_a_stage_is_killed) {
  for (const char* const schedule : {"1f1b", "zb1p"}) {
    for (const int victim : {0, 1, 2}) {
      BOOST_TEST_CONTEXT(schedule << ", stage " << victim) { lose_one(1, victim, schedule); }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_of_another_replica_name_theirs_too) { lose_one(2, 3, "1f1b"); }

BOOST_AUTO_TEST_CASE(a_stage_that_is_stopped_is_named_at_the_deadline) {
  lose_one(1, 1, "1f1b", SIGSTOP);
}
