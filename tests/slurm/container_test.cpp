// Ranks inside an image: what the container sees, the command line, the probe in a real shell.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <unistd.h>

#include "tools/common/container.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/script/batch_script.hpp"


using namespace parx::slurm;
using texts = std::vector<std::string>;

namespace {

const container box{.runtime = "apptainer",
                    .image = "/home/u/parx.sif",
                    .folder = "/home/u/project",
                    .paths = {"/scratch/news", "/home/u/project"}};

}  // namespace

BOOST_AUTO_TEST_CASE(paths_of_the_system_are_those_of_the_image) {
  for (const char* const word : {"train_mnist", "/usr/bin/python3", "/etc", "/lib64/x", "/"}) {
    BOOST_TEST(is_of_image(word), word);
  }
  for (const char* const word : {"./train", "/home/u/train", "/usrx/train", "/data", "../x"}) {
    BOOST_TEST(!is_of_image(word), word);
  }
}

BOOST_AUTO_TEST_CASE(a_path_below_another_one_is_not_bound_twice) {
  BOOST_TEST(bound_paths({"/home/u/project/data", "/home/u/project", "/home/u/project2", "",
                          "/usr/share/datasets", "/tmp/parx-7-91ab03de-news"}) ==
             (texts{"/dev/shm", "/home/u/project", "/home/u/project2", "/tmp"}));
}

BOOST_AUTO_TEST_CASE(the_ranks_of_a_node_share_one_container) {
  BOOST_TEST(ranks_in(box, "parxrun", 4, 2, {"--max-restarts", "3"}, {"./train", "--data=x"}) ==
             (texts{"apptainer", "exec", "--bind", "/dev/shm,/home/u/project,/scratch/news,/tmp",
                    "--pwd", "/home/u/project", "/home/u/parx.sif", "parxrun", "-n", "4",
                    "--threads", "2", "--max-restarts", "3", "--", "./train", "--data=x"}));
  BOOST_TEST(ranks_in({}, "/x/parxrun", 1, 1, {}, {"t"}) ==
             (texts{"/x/parxrun", "-n", "1", "--threads", "1", "--", "t"}));
  auto odd = box;
  odd.paths = {"/home/u/a,b"};
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(container_command(odd)), parx::usage_error, [](const auto& e) {
        return std::string(e.what()).find("/home/u/a,b: --bind of apptainer") == 0;
      });
}

BOOST_AUTO_TEST_CASE(a_batch_script_has_one_task_a_node_for_its_container) {
  batch_options job;
  job.name = "train";
  job.ranks = 4;
  job.threads = 2;
  job.box = box;
  job.command = {"./train"};
  const std::string text = batch_script(job);
  for (const char* const line :
       {"\n#SBATCH --ntasks-per-node=1\n", "\n#SBATCH --cpus-per-task=8\n",
        "--bind /dev/shm,/home/u/project,/scratch/news,/tmp --pwd /home/u/project "
        "/home/u/parx.sif parxrun -n 4 --threads 2 -- ./train 2>&1 "}) {
    BOOST_TEST(text.find(line) != std::string::npos, line << text);
  }
}

BOOST_AUTO_TEST_CASE(the_probe_names_what_is_missing_and_nothing_else) {
  const auto missing = [](const texts& given) {
    texts words{"env", "SLURM_JOB_ID=7", "sh", "-c", container_probe(), "probe"};
    words.insert(words.end(), given.begin(), given.end());
    const auto answer = run_command(words, std::chrono::seconds(5));
    BOOST_TEST(answer.code == 0, answer.err);
    return answer.out;
  };
  const std::string self = std::to_string(::getpid());
  // There is a parxrun in PATH, or there is none.
  const std::string tool =
      run_command({"sh", "-c", "command -v parxrun >/dev/null || echo parxrun"},
                  std::chrono::seconds(5))
          .out;
  BOOST_TEST(missing({self, "", "7", "sh", "/", "/tmp"}) == tool);
  BOOST_TEST(missing({"0", "no-such-file", "8", "no-such-program", "/", "/no/such path"}) ==
             "process of the node in /proc\n/dev/shm of the node\n" +
                 std::string(variables_of_job) + "\n" + tool + "no-such-program\n/no/such path\n");
}
