#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runs.hpp"
#include <messages.hpp>

using namespace runs;
using parx_test::mentions;

BOOST_AUTO_TEST_CASE(an_output_dir_that_cannot_be_written_is_found_before_the_first_step) {
  setup s{.options = quiet(3)};
  s.options.output_dir = "/dev/null/out";
  std::atomic<int> steps{0}, refused{0};
  parx::run_threads(2, [&](parx::process_group& group) {
    try {
      run(group, s, [&](auto& trainer) {
        trainer.add_callbacks({.on_step_end = [&](const train::trainer_state&) { ++steps; }});
      });
    } catch (const parx::error& found) {
      refused += std::string(found.what()).find("/dev/null/out") != std::string::npos ? 1 : 0;
    }
  });
  BOOST_TEST(refused == 2);
  BOOST_TEST(steps == 0);
}

BOOST_AUTO_TEST_CASE(an_output_dir_of_an_earlier_run_is_not_trained_over_by_accident) {
  const folder place("again");
  setup s{.options = quiet(3)};
  s.options.output_dir = place.path;
  on_ranks(1, s);
  BOOST_CHECK_EXCEPTION(on_ranks(1, s), parx::usage_error, [](const auto& refused) {
    return std::string(refused.what()).find("resume_from_checkpoint") != std::string::npos;
  });
  s.options.resume_from_checkpoint = train::resume::overwrite;
  s.options.max_steps = 2;
  BOOST_TEST(on_ranks(1, s)[0].state.global_step == 2u);
  BOOST_TEST(!std::filesystem::exists(place.path + "/checkpoint-3"));
  BOOST_TEST(std::filesystem::exists(place.path + "/checkpoint-2/trainer_state.json"));
}

BOOST_AUTO_TEST_CASE(overwriting_a_run_leaves_nothing_of_it_that_a_resume_could_take) {
  const folder place("overwrite");
  const auto events = [&] {
    std::size_t files = 0;
    for (const auto& each : std::filesystem::recursive_directory_iterator(place.path + "/runs")) {
      if (each.is_regular_file()) ++files;
    }
    return files;
  };
  setup s{.options = quiet(6)};
  s.options.output_dir = place.path;
  s.options.save_steps = 2;
  on_ranks(2, s);
  // Damaged, and with a higher step than the new run will reach.
  std::filesystem::resize_file(place.path + "/checkpoint-6/model.safetensors", 40);
  std::ofstream(place.path + "/runs/notes.txt") << "mine";
  s.options.resume_from_checkpoint = train::resume::overwrite;
  s.options.max_steps = 3;
  s.options.save_steps = 3;
  on_ranks(2, s);
  std::vector<std::string> checkpoints;
  for (const auto& each : std::filesystem::directory_iterator(place.path)) {
    const std::string name = each.path().filename().string();
    if (name.starts_with("checkpoint-")) checkpoints.push_back(name);
  }
  BOOST_TEST(checkpoints == std::vector<std::string>{"checkpoint-3"},
             boost::test_tools::per_element());
  BOOST_TEST(events() == 2u);  // the new run's, and what is not ours
  const auto lines = lines_of(place.path + "/train.jsonl");
  BOOST_REQUIRE(!lines.empty());
  BOOST_TEST(parx::json::parse(lines.back()).at("step").as<int>() == 3);
  s.options.resume_from_checkpoint = train::resume::latest;
  s.options.max_steps = 4;
  BOOST_TEST(on_ranks(2, s)[0].state.global_step == 4u);
}

BOOST_AUTO_TEST_CASE(a_new_run_removes_half_written_files_of_killed_runs) {
  const folder place("half");
  setup s{.options = quiet(2)};
  s.options.output_dir = place.path;
  on_ranks(2, s);
  for (const auto how : {train::resume::latest, train::resume::overwrite}) {
    const std::vector<std::string> left{"train.jsonl.tmp.4711.0", "eval.csv.tmp.4711.3",
                                        ".parx-checkpoint-9.tmp.4711.1"};
    for (const std::string& name : left) std::ofstream(place.path + "/" + name) << "half";
    s.options.resume_from_checkpoint = how;
    on_ranks(2, s);
    for (const std::string& name : left) {
      BOOST_TEST(!std::filesystem::exists(place.path + "/" + name), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_resumes_leaves_damaged_lines_of_its_log_out_and_names_them) {
  const folder place("damaged");
  setup s{.options = quiet(3)};
  s.options.output_dir = place.path;
  on_ranks(1, s);
  // Replaces a line of a file.
  const auto damage = [&](const std::string& name, std::size_t number) {
    auto lines = lines_of(place.path + "/" + name);
    lines.at(number - 1) = "garbage";
    std::ofstream file(place.path + "/" + name);
    for (const std::string& line : lines) file << line << "\n";
  };
  damage("train.jsonl", 2);
  damage("ranks.jsonl", 1);
  damage("train.csv", 1);
  std::ofstream(place.path + "/eval.csv") << "step,seconds,eval_loss\n2,0.1,3\n3,0.";  // killed
  s.options.resume_from_checkpoint = train::resume::latest;
  s.options.max_steps = 4;
  const parx_test::captured_log warnings;
  on_ranks(1, s);
  BOOST_TEST(warnings.lines().size() == 3u, warnings.text());
  for (const char* text : {"train.jsonl\", line 2", "ranks.jsonl\", line 1", "train.csv\", line 1"})
    BOOST_TEST(parx_test::mentions(warnings.text(), text), warnings.text());
  BOOST_TEST(lines_of(place.path + "/train.jsonl").size() == 3u + 2u);
  BOOST_TEST(lines_of(place.path + "/ranks.jsonl").size() == 3u);
  const auto table = lines_of(place.path + "/train.csv");
  BOOST_REQUIRE(table.size() == 3u);
  BOOST_TEST(table[0].starts_with("step,seconds,loss"));
  BOOST_TEST(table[1].starts_with("4,"));
  BOOST_TEST(lines_of(place.path + "/eval.csv").size() == 2u);
}

BOOST_AUTO_TEST_CASE(the_files_of_a_run_hold_every_line) {
  const folder place("files");
  setup s{.options = quiet(6)};
  s.options.output_dir = place.path;
  s.options.logging_steps = 2;
  s.options.eval_strategy = train::strategy::steps;
  s.options.eval_steps = 3;
  on_ranks(2, s);
  const auto lines = lines_of(place.path + "/train.jsonl");
  BOOST_REQUIRE(lines.size() == 3u + 2u + 1u);
  const auto first = parx::json::parse(lines[0]);
  BOOST_TEST(first.at("step").as<int>() == 2);
  for (const char* name : {"loss", "grad_norm", "learning_rate", "epoch", "samples_per_second",
                           "eta_seconds", "communication_hidden_percent", "step_ms"}) {
    BOOST_TEST(first.contains(name), name);
  }
  BOOST_TEST(lines[1].find("eval_accuracy") != std::string::npos);
  BOOST_TEST(lines[5].find("train_runtime") != std::string::npos);
  const auto ranks = parx::json::parse(lines_of(place.path + "/ranks.jsonl").at(2));
  BOOST_TEST(ranks.at("step").as<int>() == 6);
  BOOST_TEST(ranks.at("cpu_percent").elements().size() == 2u);
  BOOST_TEST(ranks.at("resident_mib").elements()[1].as<double>() > 1);
  const auto table = lines_of(place.path + "/train.csv");
  BOOST_TEST(table[0].starts_with("step,seconds,loss,grad_norm,learning_rate,epoch"));
  BOOST_TEST(table[1].starts_with("2,"));
  BOOST_TEST(lines_of(place.path + "/eval.csv").size() == 3u);
  BOOST_TEST(std::filesystem::exists(place.path + "/checkpoint-6/model.safetensors"));
}

BOOST_AUTO_TEST_CASE(the_log_of_an_earlier_run_is_not_emptied_by_accident) {
  const folder place("logs");
  setup s{.options = quiet(3)};
  s.options.output_dir = place.path;
  s.options.save_strategy = train::strategy::no;
  on_ranks(1, s);
  const auto lines = lines_of(place.path + "/train.jsonl");
  BOOST_TEST(lines.size() == 4u);
  for (const int world : {1, 2}) {
    bool refused = false;
    try {
      on_ranks(world, s);
    } catch (const std::exception& found) {
      refused = mentions(found.what(), "the log of an earlier run");
    }
    BOOST_TEST(refused);
  }
  BOOST_TEST(lines_of(place.path + "/train.jsonl") == lines);
  for (const auto wish : {train::resume::overwrite, train::resume::latest}) {
    s.options.resume_from_checkpoint = wish;
    --s.options.max_steps;
    on_ranks(1, s);
    BOOST_TEST(lines_of(place.path + "/train.jsonl").size() == s.options.max_steps + 1);
  }
}

BOOST_AUTO_TEST_CASE(two_runs_do_not_train_into_one_folder) {
  const folder place("shared");
  setup s{.options = quiet(4)};
  s.options.output_dir = place.path;
  s.options.resume_from_checkpoint = train::resume::latest;
  s.options.save_steps = 1;
  std::string refusal;
  on_ranks(1, s, [&](auto& trainer) {
    trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
      if (state.global_step != 2) return;
      try {
        on_ranks(2, s);
      } catch (const std::exception& refused) {
        refusal = refused.what();
      }
    }});
  });
  BOOST_TEST(refusal.find("another run trains into \"" + place.path) != std::string::npos, refusal);
  BOOST_TEST(refusal.find(fmt::format("process {} on ", ::getpid())) != std::string::npos, refusal);
  BOOST_TEST(lines_of(place.path + "/train.jsonl").size() == 5u);
  s.options.max_steps = 5;  // it has ended: the next one may
  BOOST_TEST(on_ranks(1, s)[0].state.global_step == 5u);
}
