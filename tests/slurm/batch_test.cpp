// What parx_slurm batch writes: a script that bash reads, of at most 60 lines, that asks for what
// was asked for. tests/slurm/run.sh runs one.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include <parx/slurm.hpp>

namespace {

using namespace parx::slurm;

batch_options small() {
  batch_options job;
  job.name = "train";
  job.nodes = 2;
  job.command = {"./train", "--name", "it's"};
  job.written_by = {"parx_slurm", "batch"};
  return job;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_script_asks_for_what_was_asked_for) {
  auto job = small();
  job.partition = "zen";
  job.account = "lab";
  job.constraint = "milan|rome";
  job.exclude = "n[3,7]";
  job.array = "0-4";
  job.ranks = 4;
  job.threads = 8;
  job.memory_mb = 2000;
  job.time = std::chrono::minutes(90);
  job.warning = std::chrono::seconds(300);
  job.checkpoints = "out";
  job.older = {.level = instruction_level::avx2, .names = {"n8"}, .features = {}, .all = false};
  const std::string text = batch_script(job);
  for (const char* const line :
       {"#!/bin/bash", "#SBATCH --job-name=train", "#SBATCH --partition=zen",
        "#SBATCH --account=lab", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4",
        "#SBATCH --cpus-per-task=8", "#SBATCH --mem=2000M", "#SBATCH --time=90",
        "#SBATCH --output=train-%A_%a.log", "#SBATCH --open-mode=append", "#SBATCH --array=0-4",
        "#SBATCH --signal=USR1@300", "#SBATCH --requeue", "#SBATCH --constraint=\"milan|rome\"",
        "#SBATCH --exclude=n[3,7],n8",
        R"(srun --kill-on-bad-exit=0 ./train --name 'it'\''s' || code=$?)"}) {
    BOOST_TEST(has_line(text, line), line);
  }
  BOOST_TEST(std::count(text.begin(), text.end(), '\n') <= 60);
  // All options come before the first command, or Slurm does not read them.
  BOOST_TEST(text.rfind("#SBATCH") < text.find("set -euo pipefail"));
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    BOOST_TEST(end - begin <= 100u, text.substr(begin, end - begin));
    begin = end + 1;
  }
}

BOOST_AUTO_TEST_CASE(options_that_were_not_given_are_not_in_the_script) {
  const std::string text = batch_script(small());
  for (const char* const option :
       {"partition", "account", "mem", "time", "array", "exclude", "constraint"}) {
    BOOST_TEST(text.find(std::string("#SBATCH --") + option) == std::string::npos, option);
  }
  BOOST_TEST(text.find("checkpoint") == std::string::npos);
  BOOST_TEST(has_line(text, "#SBATCH --output=train-%j.log"));
}

BOOST_AUTO_TEST_CASE(nodes_older_than_the_program_are_kept_out_by_a_feature_or_by_name) {
  const auto nodes = [](const std::string& old_features, const std::string& new_features) {
    std::string text;
    for (const char* const name : {"n1", "n2", "n3", "n4", "n5"}) {
      const bool is_old = name < std::string("n3");
      text += parx::formatted("{}|{}|0/8/0/8|1|idle|{}|(null)|1|up|1:00:00|none\n",
                              name == std::string("n5") ? "gpu" : "test", name,
                              is_old ? old_features : new_features);
    }
    return parse_sinfo(text);
  };
  const auto rules = parse_partitions("PartitionName=test Default=YES\nPartitionName=gpu\n");
  using enum instruction_level;
  const auto script = [&](const auto& all, auto job) {
    job.older = find_older_nodes(all, rules, job.partition, avx2);
    BOOST_TEST(!job.older.all);
    return batch_script(job);
  };
  const std::string says =
      "# Without n[1-2]: the program was compiled for AVX2, which they do not have.";
  auto text = script(nodes("ivybridge,big", "big,haswell"), small());
  BOOST_TEST(has_line(text, says));
  BOOST_TEST(has_line(text, "#SBATCH --constraint=\"haswell\""));
  BOOST_TEST(text.find("--exclude") == std::string::npos);
  // No feature tells them apart, or the constraint is the user's.
  text = script(nodes("ivybridge,big", "big"), small());
  BOOST_TEST(has_line(text, says));
  BOOST_TEST(has_line(text, "#SBATCH --exclude=n[1-2]"));
  BOOST_TEST(text.find("--constraint") == std::string::npos);
  auto job = small();
  job.constraint = "big";
  job.exclude = "n4";
  text = script(nodes("ivybridge,big", "big,haswell"), job);
  BOOST_TEST(has_line(text, "#SBATCH --exclude=n4,n[1-2]"));
  BOOST_TEST(has_line(text, "#SBATCH --constraint=\"big\""));
  // Good nodes, nodes that say nothing, and those of another partition need no line.
  for (const char* const features : {"zen3", "(null)"}) {
    text = script(nodes(features, "haswell"), small());
    BOOST_TEST(text.find("Without") == std::string::npos);
  }
  job = small();
  job.partition = "gpu";
  BOOST_TEST(script(nodes("ivybridge", "haswell"), job).find("Without") == std::string::npos);
  BOOST_TEST(find_older_nodes(nodes("ivy", "ivy"), rules, "", avx2).all);
  BOOST_TEST(!find_older_nodes(nodes("ivy", "ivy"), rules, "", avx).all);
  BOOST_TEST(find_older_nodes(nodes("ivy", "ivy"), {}, "", avx2).names.size() == 5u);
  BOOST_TEST(find_older_nodes(nodes("ivy", "ivy"), rules, "test,gpu", avx2).names.size() == 5u);
  BOOST_TEST(find_older_nodes({}, rules, "", avx2).names.empty());
}

BOOST_AUTO_TEST_CASE(the_limit_of_the_partitions_that_a_job_names_is_known) {
  using std::chrono::minutes;
  const auto nodes = parse_sinfo(
      "test|n1|0/8/0/8|1|idle|(null)|(null)|1|up|5:00|none\n"
      "long|n1|0/8/0/8|1|idle|(null)|(null)|1|up|1:00:00|none\n"
      "any|n2|0/8/0/8|1|idle|(null)|(null)|1|up|infinite|none\n");
  const auto rules = parse_partitions("PartitionName=test Default=YES\nPartitionName=long\n");
  BOOST_CHECK(longest_limit(nodes, rules, "") == minutes(5));
  BOOST_CHECK(longest_limit(nodes, rules, "long") == minutes(60));
  BOOST_CHECK(longest_limit(nodes, rules, "test,long") == minutes(60));
  BOOST_CHECK(longest_limit(nodes, rules, "any") == no_time_limit);
  BOOST_CHECK(longest_limit(nodes, {}, "") == no_time_limit);
  BOOST_CHECK(!longest_limit(nodes, rules, "nowhere"));
  BOOST_CHECK(!longest_limit({}, {}, ""));
}

BOOST_AUTO_TEST_CASE(a_script_that_slurm_refuses_has_a_line_to_ask_why) {
  auto job = small();
  BOOST_TEST(where_command(job, "") == "parx_slurm where -N 2 --cores 1");
  job.ranks = 2;
  job.threads = 4;
  job.time = std::chrono::minutes(90);
  job.memory_mb = 2000;
  job.partition = "zen";
  job.exclude = "n[3,7]";
  job.account = "lab";
  BOOST_TEST(where_command(job, "/home/u/train") ==
             "parx_slurm where -N 2 --cores 8 -t 1:30:00 --mem 2000M -p zen -x 'n[3,7]' -A lab "
             "--program /home/u/train");
}

BOOST_AUTO_TEST_CASE(bash_accepts_every_form_of_the_script) {
  for (const char* const checkpoints : {"", "out dir"}) {
    for (const char* const array : {"", "1-3"}) {
      auto job = small();
      job.checkpoints = checkpoints;
      job.array = array;
      const auto result =
          run_command({"bash", "-n", "-c", batch_script(job)}, std::chrono::seconds(5));
      BOOST_TEST(result.success(), result.err);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_time_without_room_for_the_warning_is_refused) {
  auto job = small();
  job.time = std::chrono::seconds(60);
  BOOST_CHECK_EXCEPTION(static_cast<void>(batch_script(job)), parx::usage_error, [](const auto& e) {
    return std::string(e.what()).find("--time 60 s is not longer than --warning 120 s") !=
           std::string::npos;
  });
  job = small();
  job.name = "my job";
  BOOST_CHECK_EXCEPTION(static_cast<void>(batch_script(job)), parx::usage_error, [](const auto& e) {
    return std::string(e.what()).find("--job-name \"my job\" has a space") != std::string::npos;
  });
  job = small();
  job.command.clear();
  BOOST_CHECK_THROW(static_cast<void>(batch_script(job)), parx::usage_error);
}
