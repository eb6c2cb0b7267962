// Copies of what nodes do not see: their places, the commands, and a program's arguments.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "tools/parx_slurm/copy_failure.hpp"
#include "tools/parx_slurm/staging.hpp"


using namespace parx::slurm;
using texts = std::vector<std::string>;

BOOST_AUTO_TEST_CASE(arguments_name_the_copies_of_what_was_staged) {
  const std::vector<staged_path> staged{{"/home/u/train", "/tmp/t", path_kind::file},
                                        {"/data/news", "/tmp/n", path_kind::folder}};
  BOOST_TEST(with_copies({"/home/u/train", "--data", "/data/news/train.csv",
                          "--out=/data/newspaper", "--x=/data/news", "/data/new", "--y=", "news"},
                         staged, "/home/u") ==
             (texts{"/tmp/t", "--data", "/tmp/n/train.csv", "--out=/data/newspaper", "--x=/tmp/n",
                    "/data/new", "--y=", "news"}));
  BOOST_TEST(with_copies({"./train", "train", "--data=news/../news/a", "news", "../data/news"},
                         staged, "/data") ==
             (texts{"./train", "train", "--data=/tmp/n/a", "/tmp/n", "/tmp/n"}));
}

BOOST_AUTO_TEST_CASE(a_copy_is_named_by_job_and_contents) {
  const auto file = stage_at("7", "/home/u/train", "91ab03de00", path_kind::file);
  BOOST_TEST(file.to == "/tmp/parx-7-91ab03de-train");
  BOOST_TEST((staging_commands(file, "7", 3) ==
              std::vector<texts>{{"sbcast", "-f", "-p", "-j", "7", "/home/u/train",
                                  "/tmp/parx-7-91ab03de-train"}}));
  BOOST_TEST(removing_command({file.to}, "7", 3) ==
             (texts{"srun", "--jobid=7", "-N", "3", "-n", "3", "--ntasks-per-node=1", "--overlap",
                    "rm", "-rf", "/tmp/parx-7-91ab03de-train"}));
  BOOST_TEST(removing_command({file.to}, "7", 4, {"n2", "n3"}) ==
             (texts{"srun", "--jobid=7", "-N", "2", "-n", "2", "--ntasks-per-node=1", "--overlap",
                    "--exclude=n[2-3]", "rm", "-rf", "/tmp/parx-7-91ab03de-train"}));
}

BOOST_AUTO_TEST_CASE(what_was_sent_names_its_job_and_nothing_else_does) {
  const auto folder = stage_at("4711", "/data/news", "91ab03de00", path_kind::folder);
  for (const std::string& path :
       {folder.to, archive_of(folder), sent_archive_of(folder), helper_path("parxrun", "4711"),
        helper_path("parx_doctor", "4711")}) {
    BOOST_TEST((job_of_sent(path.substr(5)) == 4711), path);
  }
  for (const char* const name :
       {"parx-2024-results", "parx-7-91ab03de", "parx-7-91ab03de-", "parx-7-91ab03dx-news",
        "parx-x-91ab03de-news", "parxrun.7.old", "parxrun.", "parxrun", "parx.7", "xparxrun.7"}) {
    BOOST_TEST(!job_of_sent(name), name);
  }
}

BOOST_AUTO_TEST_CASE(a_folder_goes_as_one_archive) {
  const auto commands =
      staging_commands(stage_at("7", "/data/news", "91ab03de00", path_kind::folder), "7", 2);
  BOOST_TEST(commands.size() == 5u);
  BOOST_TEST(commands[0] ==
             (texts{"tar", "-cf", "/tmp/parx-7-91ab03de-news.tar.sent", "-C", "/data", "news"}));
  BOOST_TEST(commands[1] == (texts{"sbcast", "-f", "-j", "7", "/tmp/parx-7-91ab03de-news.tar.sent",
                                   "/tmp/parx-7-91ab03de-news.tar"}));
}

BOOST_AUTO_TEST_CASE(a_node_that_answers_but_cannot_be_copied_to_is_no_silent_one) {
  const auto nodes = [](const char* errors) {
    std::string text;
    for (const auto& each : copy_failures(errors)) text += each.node + ";";
    return text;
  };
  BOOST_TEST(nodes("srun: cluster configuration lacks support for cpu binding\n"
                   "srun: error: REQUEST_FILE_BCAST(node2): Unspecified error\n"
                   "srun: fatal: Failed to broadcast '/x/parx_doctor'. Step launch aborted.\n") ==
             "node2;");
  BOOST_TEST(
      nodes("sbcast: error: REQUEST_FILE_BCAST(n1): No space left on device\n"
            "sbcast: error: REQUEST_FILE_BCAST(n3): Socket timed out on send/recv operation\n"
            "sbcast: error: REQUEST_FILE_BCAST(n4): Unable to contact slurm controller\n") ==
      "n1;");
  BOOST_TEST(nodes("srun: error: REQUEST_FILE_BCAST(") == "");
  const auto free_mb = [](const char* output) { return free_mb_of_df(output).value_or(-1); };
  BOOST_TEST(free_mb("Filesystem 1024-blocks Used Available Capacity Mounted on\n"
                     "none              2048 2048         0     100% /tmp\n") == 0);
  BOOST_TEST(free_mb("Filesystem 1024-blocks  Used Available Capacity Mounted on\n"
                     "/dev/vda1  258019000 90000 250000000       1% /\n") == 244140);
  for (const char* const other : {"", "df: /tmp: No such file or directory\n", "a\nb\n"}) {
    BOOST_TEST(free_mb(other) == -1, other);
  }
}
