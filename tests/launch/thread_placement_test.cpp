// How many threads the ranks of a host compute with, on which cores, and what is said of it.
#include <parx/launch/thread_placement.hpp>

#include <optional>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace {

parx::thread_placement lay_out(const parx::environment& env, const parx::rank_place& place,
                            std::optional<double> quota = {}, std::string_view binding = {}) {
  return parx::lay_out_threads(
      parx::choose_threads(env, static_cast<int>(place.cores.size()), quota), place, binding);
}
parx::environment asks(int threads) { return {{"OMP_NUM_THREADS", std::to_string(threads)}}; }

using cores = std::vector<int>;

}  // namespace

BOOST_AUTO_TEST_CASE(threads_that_fill_the_cores_are_bound_to_them) {
  const cores all{0, 1, 2, 3};
  BOOST_TEST(lay_out(asks(4), {.host_cores = 4, .cores = all}).cores == all);
  BOOST_TEST(lay_out(asks(2), {.local_rank = 0, .local_ranks = 2, .host_cores = 4, .cores = all})
                 .cores == (cores{0, 1}));
  BOOST_TEST(lay_out(asks(2), {.local_rank = 1, .local_ranks = 2, .host_cores = 4, .cores = all})
                 .cores == (cores{2, 3}));
  // The launcher has given each rank its own.
  BOOST_TEST(
      lay_out(asks(2), {.local_rank = 1, .local_ranks = 2, .host_cores = 64, .cores = {6, 7}})
          .cores == (cores{6, 7}));
}

BOOST_AUTO_TEST_CASE(threads_that_do_not_fill_the_cores_are_not_bound) {
  const cores all{0, 1, 2, 3, 4, 5, 6, 7};
  BOOST_TEST(lay_out({}, {.host_cores = 8, .cores = all}).cores.empty());
  BOOST_TEST(lay_out(asks(2), {.host_cores = 8, .cores = all}).cores.empty());
  BOOST_TEST(lay_out(asks(3), {.local_ranks = 2, .host_cores = 8, .cores = all}).cores.empty());
  BOOST_TEST(lay_out(asks(8), {.host_cores = 8, .cores = all}, {}, "false").cores.empty());
  BOOST_TEST(lay_out(asks(8), {.host_cores = 8, .cores = all}, {}, "true").cores == all);
}

BOOST_AUTO_TEST_CASE(the_ranks_of_a_host_have_no_more_threads_than_it_has_cores) {
  const auto two = lay_out(asks(64), {.local_ranks = 2, .host_cores = 2, .cores = {0, 1}});
  BOOST_TEST(two.threads == 1);
  BOOST_TEST(two.reason == "OMP_NUM_THREADS=64, 2 ranks on 2 cores");
  BOOST_TEST(!two.shared);
  const auto many = lay_out(asks(4), {.local_ranks = 8, .host_cores = 2, .cores = {0, 1}});
  BOOST_TEST(many.threads == 1);
  BOOST_TEST(many.shared);
  const auto quota =
      lay_out(asks(4), {.local_ranks = 2, .host_cores = 8, .cores = {0, 1, 2, 3}}, 5.0);
  BOOST_TEST(quota.threads == 2);
  BOOST_TEST(quota.reason == "OMP_NUM_THREADS=4, 2 ranks share a quota of 5 cores");
}

BOOST_AUTO_TEST_CASE(messages_about_the_layout_of_threads) {
  const auto said = [](const parx::environment& env, const parx::rank_place& place,
                       std::optional<double> quota = {}) {
    return to_text(lay_out(env, place, quota), place.local_ranks);
  };
  BOOST_TEST(said({}, {.host_cores = 2, .cores = {0, 1}}) == "");
  BOOST_TEST(said(asks(1), {.host_cores = 2, .cores = {0, 1}}) == "");
  BOOST_TEST(said(asks(2), {.host_cores = 2, .cores = {0, 1}}) ==
             "1 rank x 2 threads (OMP_NUM_THREADS=2)");
  BOOST_TEST(said(asks(64), {.host_cores = 2, .cores = {0, 1}}) ==
             "1 rank x 2 threads (OMP_NUM_THREADS=64, 2 cores)");
  BOOST_TEST(said(asks(4), {.host_cores = 2, .cores = {1}}) ==
             "1 rank x 1 thread (OMP_NUM_THREADS=4, 1 core)");
  BOOST_TEST(said(asks(2), {.host_cores = 2, .cores = {0, 1}}, 1.5) ==
             "1 rank x 1 thread (OMP_NUM_THREADS=2, a quota of 1.5 cores)");
  BOOST_TEST(said({{"SLURM_CPUS_PER_TASK", "3"}},
                  {.local_ranks = 2, .host_cores = 8, .cores = {0, 1, 2}}) ==
             "2 ranks x 3 threads (SLURM_CPUS_PER_TASK=3)");
}

BOOST_AUTO_TEST_CASE(cores_that_torchruns_variable_hides_are_reported) {
  parx::environment env{{"OMP_NUM_THREADS", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  BOOST_TEST(parx::hidden_by_torchrun(env) == "");
  env["SLURM_CPUS_PER_TASK"] = "8";
  BOOST_TEST(parx::hidden_by_torchrun(env).ends_with("PARX_THREADS=4 uses them"));
  env["PARX_THREADS"] = "1";
  BOOST_TEST(parx::hidden_by_torchrun(env) == "");
}
