// A call that all ranks make, made by one rank alone: it ends within the group's deadline, and the
// error says which call that was, and who is missing.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>
#include <sanitizers.hpp>

namespace {

using namespace std::chrono_literals;
using parx::process_group;

using small_model = parx::parallel_model<float, parx::tensor<std::int32_t>>;
using call = std::function<void(small_model&)>;

struct trial {
  std::string name;
  call made;
};
const std::filesystem::path folder = std::filesystem::temp_directory_path() / "parx_alone_test";
const trial forward_backward{"forward_backward", [](small_model& model) {
                               (void)model.forward_backward(small::some(0, 0, 1), small::criterion);
                             }};
const trial calls[] = {
    {"save", [](small_model& model) { parx::save(model, (folder / "a.safetensors").string()); }},
    {"save", [](small_model& model) { parx::save(model, (folder / "a").string()); }},
    {"generate",
     [](small_model& model) {
       (void)parx::generate(model, std::vector<std::int64_t>{1, 2}, {.max_new_tokens = 2});
     }},
    {"evaluate",
     [](small_model& model) { (void)model.evaluate(small::some(0, 0, 1), small::criterion); }},
    forward_backward,
};

/// What the two ranks threw.
std::vector<std::string> ends_of(const std::string& layout, const call& first, const call& second) {
  return jobs::run_collecting(jobs::kind::inproc, 2,
                              [&](process_group& world) {
                                auto net = small::llama();
                                parx::parallel model{net, world, parx::layout::parse(layout)};
                                model.initialize(1);
                                (world.rank() == 0 ? first : second)(model);
                              },
                              {.timeout = 3s, .deadlock_after = 400ms});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_calls_alone_is_told_what_it_called_and_who_is_missing) {
  std::vector<std::future<void>> running;
  std::mutex checking;
  for (const char* const layout : {"ddp", "fsdp", "tp=2", "pp=2"}) {
    for (const trial& each : calls) {
      const bool is_local =
          layout == std::string("ddp") && (each.name == "generate" || each.name == "evaluate");
      if (is_local) continue;  // under a ddp each rank has all it needs
      running.push_back(std::async(std::launch::async, [&, layout] {
        std::promise<void> ended;
        const auto alone = [&](small_model& model) {
          const std::shared_ptr<void> at_end(nullptr, [&](void*) { ended.set_value(); });
          each.made(model);
        };
        const auto elsewhere = [&](small_model&) { ended.get_future().wait(); };
        const auto failures = ends_of(layout, alone, elsewhere);
        const std::lock_guard lock(checking);
        BOOST_TEST(parx_test::mentions(failures[0], each.name + " at alone_test.cpp:",
                                       "which all ranks call", "rank 1"),
                   layout << ", " << each.name << ": " << failures[0]);
      }));
    }
  }
  for (auto& each : running) each.get();
}

BOOST_AUTO_TEST_CASE(ranks_in_different_calls_are_told_their_own) {
  if (parx_test::thread_sanitizer) return;  // it has a thread of its own, which is never blocked
  for (const char* const layout : {"ddp", "fsdp", "tp=2", "pp=2"}) {
    const auto failures = ends_of(layout, calls[0].made, forward_backward.made);
    BOOST_TEST(parx_test::mentions(failures[0], "save at alone_test.cpp:"),
               layout << ": " << failures[0]);
    BOOST_TEST(parx_test::mentions(failures[1], "forward_backward at alone_test.cpp:"),
               layout << ": " << failures[1]);
  }
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(a_stage_that_evaluates_while_another_one_trains) {
  for (const auto& failure : ends_of("pp=2", calls[3].made, forward_backward.made)) {
    BOOST_TEST(parx_test::mentions(failure, "evaluation"), failure);
  }
}
