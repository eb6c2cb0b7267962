// What parx_slurm batch writes: a script that bash reads, of at most 60 lines, that asks for what
// was asked for. tests/slurm/run.sh runs one.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/shell_text.hpp"
#include "tools/common/container.hpp"
#include "tools/common/instruction_level.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/nodes/partition_limit.hpp"
#include "tools/parx_slurm/nodes/incompatible_nodes.hpp"
#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"
#include "tools/parx_slurm/nodes/time_limit.hpp"
#include "tools/parx_slurm/script/batch_script.hpp"
#include "tools/parx_slurm/script/sbatch_option.hpp"
#include "tools/parx_slurm/script/through_srun.hpp"
#include "tools/parx_slurm/script/where_command.hpp"
#include <parx/core/file_text.hpp>
#include <parx/core/split.hpp>

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

/// A text of a user's: what shells, Slurm and terminals take for something else, and commands that
/// would leave a file "ran" behind.
std::string random_text(std::mt19937& draw) {
  static const std::vector<std::string> parts{"\n",
                                              "\r\n",
                                              "\ntouch ran\n",
                                              "\n#SBATCH --nodes=9\n",
                                              "'",
                                              "\"",
                                              "`touch ran`",
                                              "$(touch ran)",
                                              "${IFS}",
                                              "$HOME",
                                              "\\",
                                              "\\n",
                                              "!",
                                              "!!",
                                              "#",
                                              " ",
                                              "\t",
                                              ":",
                                              ";touch ran;",
                                              "&touch ran&",
                                              "|",
                                              ">ran",
                                              "*",
                                              "?",
                                              "~",
                                              "[a-z]",
                                              "{a,b}",
                                              "=",
                                              "%j",
                                              "-",
                                              "--",
                                              "'; touch ran; '",
                                              "\x1b[31m",
                                              "\x7f",
                                              "\xc3\xa9",
                                              "\xe4\xb8\xad",
                                              "\xe2\x80\xae",
                                              "\xff",
                                              "\x80\xfe",
                                              "\x01",
                                              "END",
                                              "a",
                                              "7",
                                              "word",
                                              "/",
                                              "\xc2\xa0",
                                              "\\\n"};
  std::string text;
  for (auto left = draw() % 5; left > 0; --left) text += parts[draw() % parts.size()];
  return text;
}

/// A folder of its own, which is removed.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "parx-batch-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

/// The words that sbatch reads in a line behind "#SBATCH": quotes group, a backslash takes the next
/// character as it is, "#" begins a comment.
std::vector<std::string> words_of_sbatch(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && c == '#') break;
    if (quote == 0 && (c == ' ' || c == '\t')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '\\' && i + 1 < line.size()) words.back() += line[++i];
    else if (quote == c) quote = 0;
    else if (quote == 0 && (c == '"' || c == '\'')) quote = c;
    else words.back() += c;
  }
  return words;
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
        "#SBATCH --signal=USR1@300", "#SBATCH --requeue", "#SBATCH --constraint=milan|rome",
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

BOOST_AUTO_TEST_CASE(a_job_that_goes_on_without_lost_nodes_asks_slurm_to_leave_it_the_others) {
  auto job = small();
  job.nodes = 3;
  job.least_nodes = 2;
  job.ranks = 4;
  job.threads = 8;
  job.parxrun = "/opt/parx/parxrun";
  std::string text = batch_script(job);
  for (const char* const line :
       {"#SBATCH --nodes=3", "#SBATCH --no-kill", "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=32",
        R"({ srun --kill-on-bad-exit=0 --no-kill --wait=10 /opt/parx/parxrun -n 4 --threads 8)"
        R"( --nnodes 2:3 --max-restarts 3 -- ./train --name 'it'\''s' 2>&1 >&3 3>&- |)"}) {
    BOOST_TEST(has_line(text, line), line);
  }
  job.box = {.runtime = "apptainer", .image = "/a.sif", .folder = "/"};
  job.checkpoints = "out";
  text = batch_script(job);
  BOOST_TEST(text.find(" --no-kill --wait=10 apptainer exec ") != std::string::npos);
  BOOST_TEST(text.find(" /a.sif parxrun -n 4 --threads 8 --nnodes 2:3 ") != std::string::npos);
  BOOST_TEST(std::count(text.begin(), text.end(), '\n') <= 60);
  BOOST_TEST(batch_script(small()).find("no-kill") == std::string::npos);
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
    job.older = find_incompatible_nodes(all, rules, job.partition, avx2);
    BOOST_TEST(!job.older.all);
    return batch_script(job);
  };
  const std::string says =
      "# Without n[1-2]: the program was compiled for AVX2, which they do not have.";
  auto text = script(nodes("ivybridge,big", "big,haswell"), small());
  BOOST_TEST(has_line(text, says));
  BOOST_TEST(has_line(text, "#SBATCH --constraint=haswell"));
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
  BOOST_TEST(has_line(text, "#SBATCH --constraint=big"));
  // Good nodes, nodes that say nothing, and those of another partition need no line.
  for (const char* const features : {"zen3", "(null)"}) {
    text = script(nodes(features, "haswell"), small());
    BOOST_TEST(text.find("Without") == std::string::npos);
  }
  job = small();
  job.partition = "gpu";
  BOOST_TEST(script(nodes("ivybridge", "haswell"), job).find("Without") == std::string::npos);
  BOOST_TEST(find_incompatible_nodes(nodes("ivy", "ivy"), rules, "", avx2).all);
  BOOST_TEST(!find_incompatible_nodes(nodes("ivy", "ivy"), rules, "", avx).all);
  BOOST_TEST(find_incompatible_nodes(nodes("ivy", "ivy"), {}, "", avx2).names.size() == 5u);
  BOOST_TEST(find_incompatible_nodes(nodes("ivy", "ivy"), rules, "test,gpu", avx2).names.size() ==
             5u);
  BOOST_TEST(find_incompatible_nodes({}, rules, "", avx2).names.empty());
}

BOOST_AUTO_TEST_CASE(the_limit_of_the_partitions_that_a_job_names_is_known) {
  using std::chrono::minutes;
  const auto nodes = parse_sinfo(
      "test|n1|0/8/0/8|1|idle|(null)|(null)|1|up|5:00|none\n"
      "long|n1|0/8/0/8|1|idle|(null)|(null)|1|up|1:00:00|none\n"
      "any|n2|0/8/0/8|1|idle|(null)|(null)|1|up|infinite|none\n");
  const auto rules = parse_partitions("PartitionName=test Default=YES\nPartitionName=long\n");
  BOOST_CHECK(partition_limit(nodes, rules, "") == minutes(5));
  BOOST_CHECK(partition_limit(nodes, rules, "long") == minutes(60));
  BOOST_CHECK(partition_limit(nodes, rules, "test,long") == minutes(60));
  BOOST_CHECK(partition_limit(nodes, rules, "any") == no_time_limit);
  BOOST_CHECK(partition_limit(nodes, {}, "") == no_time_limit);
  BOOST_CHECK(!partition_limit(nodes, rules, "nowhere"));
  BOOST_CHECK(!partition_limit({}, {}, ""));
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

BOOST_AUTO_TEST_CASE(
    whatever_the_arguments_are_bash_gives_them_to_the_program_and_runs_nothing_else) {
  const scratch_folder place;
  std::filesystem::create_directories(place / "bin");
  // In place of srun: what it was given, a byte 0 behind each word. 75 lets the script go on to its
  // end.
  write(place / "bin/srun", "#!/bin/bash\nprintf '%s\\0' \"$@\" >../given\nexit 75\n");
  write(place / "bin/scontrol", "#!/bin/bash\nprintf '%s ' \"$@\" >../asked\n");
  std::mt19937 draw(7);
  for (int round = 0; round < 24; ++round) {
    auto job = small();
    job.command = {"./train"};
    while (job.command.size() < 24) job.command.push_back(random_text(draw));
    job.written_by = job.command;
    job.checkpoints = round % 3 == 0 ? "-out" : "out" + random_text(draw);
    std::replace(job.checkpoints.begin(), job.checkpoints.end(), '/', '_');
    const bool boxed = round % 4 == 3;
    if (boxed)
      job.box = {"apptainer", "/images/it's\nnew.sif", "/home/a b", {"/data/$(touch ran)"}};
    std::filesystem::remove_all(place / "job");
    std::filesystem::create_directories(place / "job" / job.checkpoints);
    const std::string script = batch_script(job);
    BOOST_TEST(script.find("\n#SBATCH --nodes=") == script.rfind("\n#SBATCH --nodes="));
    write(place / "script", script);
    const auto result =
        run_command({"env", "-C", (place / "job").string(),
                     "PATH=" + (place / "bin").string() + ":/usr/bin:/bin", "SLURM_CPUS_PER_TASK=1",
                     "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "bash", "../script"},
                    std::chrono::seconds(120));
    BOOST_TEST(result.code == 0);
    BOOST_TEST(result.err == "");
    BOOST_TEST(std::count(result.out.begin(), result.out.end(), '\n') == 1);
    std::vector<std::string> wanted{"--kill-on-bad-exit=0"};
    const auto program = through_srun(job.command);
    const auto words = boxed ? ranks_in(job.box, "parxrun", 1, 1, {}, program) : program;
    wanted.insert(wanted.end(), words.begin(), words.end());
    std::string given;
    for (const std::string& each : wanted) given += each + '\0';
    BOOST_TEST((parx::detail::file_text((place / "given").string()) == given), job.command.back());
    BOOST_TEST(parx::detail::file_text((place / "asked").string()).value_or("") == "requeue 7 ");
    std::vector<std::string> left;
    for (const auto& each : std::filesystem::recursive_directory_iterator(place / "job")) {
      left.push_back(each.path().lexically_relative(place / "job").string());
    }
    std::sort(left.begin(), left.end());
    BOOST_TEST(left == (std::vector<std::string>{job.checkpoints,
                                                 job.checkpoints + "/turns-without-progress"}));
  }
}

BOOST_AUTO_TEST_CASE(a_script_of_parxruns_ends_with_the_code_of_the_job_where_one_was_killed) {
  struct end {
    std::string lines;  // of srun
    int of_srun, code;
  };
  const std::string second_killed = "srun: error: node2: task 1: Killed\n";
  const std::string first_killed = "srun: error: node1: task 0: Killed\n";
  const scratch_folder place;
  write(place / "srun", "#!/bin/bash\necho out\ncat lines >&2\nexit $CODE\n");
  write(place / "scontrol", "#!/bin/bash\necho \"$@\"\n");
  auto job = small();
  job.least_nodes = 1;
  write(place / "script", batch_script(job));
  for (const end& each : {
           end{"[rank 0] srun: error: node1: task 0: Exited with exit code 9\n", 0, 0},
           end{"srun: error: node[1-2]: tasks 0-1: Exited with exit code 5\n", 5, 5},
           end{second_killed, 137, 0},
           end{second_killed + "srun: error: node1: task 0: Exited with exit code 75\n", 137, 75},
           end{first_killed + "srun: error: node2: task 1: Exited with exit code 75\n", 137, 75},
           end{"srun: error: node[1-2]: tasks 0-1: Killed\n", 137, 137},
           end{"srun: error: node[1-2]: tasks 0-1: Exited with exit code 137\n", 137, 137},
           end{"", 137, 137},
       }) {
    write(place / "lines", each.lines);
    const auto result =
        run_command({"env", "-C", (place / ".").string(), "CODE=" + std::to_string(each.of_srun),
                     "PATH=" + (place / ".").string() + ":/usr/bin:/bin", "SLURM_CPUS_PER_TASK=1",
                     "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "bash", "script"},
                    std::chrono::seconds(120));
    const bool goes_on = each.code == 75;
    BOOST_TEST(result.code == (goes_on ? 0 : each.code), each.lines);
    BOOST_TEST((result.out.find("requeue 7\n") != std::string::npos) == goes_on, each.lines);
    BOOST_TEST(result.out.find("\nout\n") != std::string::npos, result.out);
    BOOST_TEST(result.err.starts_with(each.lines), result.err);
  }
}

BOOST_AUTO_TEST_CASE(srun_takes_a_colon_for_another_step_so_a_shell_puts_it_back) {
  BOOST_TEST(through_srun({"./train", "a:b", "::"}) ==
             (std::vector<std::string>{"./train", "a:b", "::"}));
  std::vector<std::string> command{"printf", "%s\\n"};
  std::string said;
  for (int i = 0; i < 14; ++i) {
    command.push_back(i % 5 == 2 ? ":" : parx::formatted("it's ${}", i));
    said += command.back() + "\n";
  }
  const auto words = through_srun(command);
  BOOST_TEST(std::count(words.begin(), words.end(), ":") == 0);
  BOOST_TEST(run_command(words, std::chrono::seconds(60)).out == said);
}

BOOST_AUTO_TEST_CASE(an_option_of_a_script_has_the_value_that_sbatch_reads_or_is_refused) {
  std::mt19937 draw(11);
  int refused = 0, read = 0;
  for (int round = 0; round < 2000; ++round) {
    auto job = small();
    const std::string value = "x" + random_text(draw);
    job.partition = job.account = job.constraint = job.exclude = job.array = value;
    std::string text;
    try {
      text = batch_script(job);
    } catch (const parx::usage_error&) {
      ++refused;
      BOOST_TEST(parx::printable(value) != value);
      continue;
    }
    ++read;
    BOOST_TEST(parx::printable(value) == value);
    std::vector<std::string> found;
    for (const std::string_view line : parx::detail::split_at(text, '\n')) {
      if (!line.starts_with("#SBATCH ")) continue;
      const auto words = words_of_sbatch(line.substr(8));
      BOOST_TEST(words.size() == 1u);
      if (words.front().ends_with("=" + value)) found.push_back(words.front());
    }
    BOOST_TEST(found == (std::vector<std::string>{"--partition=" + value, "--account=" + value,
                                                  "--array=" + value, "--exclude=" + value,
                                                  "--constraint=" + value}));
  }
  BOOST_TEST(refused > 100);
  BOOST_TEST(read > 100);
  BOOST_TEST(sbatch_option("array", "0-15%4") == "#SBATCH --array=0-15%4\n");
  BOOST_TEST(sbatch_option("comment", R"(it's "a\b" #1)") ==
             "#SBATCH --comment=\"it's \\\"a\\\\b\\\" #1\"\n");
  BOOST_CHECK_THROW(static_cast<void>(sbatch_option("comment", std::string(5000, 'a'))),
                    parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_jobs_name_is_that_of_its_log) {
  for (const char* const name : {"a/b", "50%", "a\\b", "a\nb"}) {
    auto job = small();
    job.name = name;
    BOOST_CHECK_THROW(static_cast<void>(batch_script(job)), parx::usage_error);
    BOOST_TEST(job_name_of(name).find_first_of("%/\\\n") == std::string::npos);
  }
  BOOST_TEST(job_name_of("train-2 b") == "train-2_b");
  BOOST_TEST(job_name_of("\xe4\xb8\xad") == "\xe4\xb8\xad");
  BOOST_TEST(job_name_of("\xff") == "_");
  BOOST_TEST(job_name_of("") == "job");
  auto job = small();
  job.name = "my job";
  const std::string text = batch_script(job);
  BOOST_TEST(has_line(text, "#SBATCH --job-name=\"my job\""));
  BOOST_TEST(has_line(text, "#SBATCH --output=\"my job-%j.log\""));
}

BOOST_AUTO_TEST_CASE(a_time_without_room_for_the_warning_is_refused) {
  auto job = small();
  job.time = std::chrono::seconds(60);
  BOOST_CHECK_EXCEPTION(static_cast<void>(batch_script(job)), parx::usage_error, [](const auto& e) {
    return std::string(e.what()).find("--time 60 s is not longer than --warning 120 s") !=
           std::string::npos;
  });
  job = small();
  job.command.clear();
  BOOST_CHECK_THROW(static_cast<void>(batch_script(job)), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_shell_reads_the_printed_words_as_they_are) {
  BOOST_TEST(shell_text({"salloc", "-C", "a|b", "it's", "", "x=1"}) ==
             R"(salloc -C 'a|b' 'it'\''s' '' x=1)");
  // In one line, whatever is in them, and without a character that acts on a terminal.
  BOOST_TEST(shell_text({"a\nb", "it's\t\\ !\x1b", "\xc3\xa9", "\xc3\xa9\n", "\xff"}) ==
             R"($'a\nb' $'it\047s\t\134 \041\033' ')" "\xc3\xa9" R"(' $'\303\251\n' $'\377')");
}
