#include <parx/data/text/token_cache.hpp>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "trainers/cached_vocabulary.hpp"
#include <parx/data/text_classification.hpp>

#include <data/small_texts.hpp>
#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using data::token_id;
using parx_test::news;
using parx_test::small;

namespace {

/// Counts how often texts are tokenised.
struct counting_tokenizer {
  data::wordpiece_tokenizer inner = small();
  std::atomic<int>* calls;
  std::size_t encode(std::string_view text, std::vector<token_id>& out) const {
    ++*calls;
    return inner.encode(text, out);
  }
  std::string decode(std::span<const token_id> tokens) const { return inner.decode(tokens); }
  std::size_t size() const { return inner.size(); }
  data::special_ids special() const { return inner.special(); }
  std::uint64_t fingerprint() const { return inner.fingerprint(); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(many_ranks_tokenise_once_and_share_the_file) {
  const parx_test::scratch_folder folder;
  const std::string path = folder.write("n.csv", news);
  auto options = data::ag_news(6);
  options.cache = folder.file("cache");
  std::atomic<int> calls{0};
  std::vector<std::thread> ranks;
  std::atomic<int> right{0};
  for (int rank = 0; rank < 6; ++rank) {
    ranks.emplace_back([&] {
      const data::text_classification set(path, counting_tokenizer{.calls = &calls}, options);
      const auto batch = set.fetch(std::vector<std::size_t>{1});
      const std::vector<std::int64_t> ids(batch.input_ids.begin(), batch.input_ids.end());
      if (ids == std::vector<std::int64_t>{2, 5, 6, 7, 8, 3} &&
          set.counts().truncated_tokens == 2) {
        ++right;
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  BOOST_TEST(calls == 4);
  BOOST_TEST(right == 6);
  const auto again = [&] {
    calls = 0;
    const data::text_classification set(path, counting_tokenizer{.calls = &calls}, options);
    BOOST_TEST(set.size() == 4U);
    return calls.load();
  };
  BOOST_TEST(again() == 0);
  // Other options, other contents: another key.
  options.max_length = 5;
  BOOST_TEST(again() == 4);
  options.max_length = 6;
  (void)folder.write("n.csv", std::string(news) + "1,a,b\n2,a,b\n");
  calls = 0;
  BOOST_TEST(data::text_classification(path, counting_tokenizer{.calls = &calls}, options).size() ==
             6U);
  BOOST_TEST(calls == 6);
  // The same contents under a name that says another format are other records.
  options.format = data::text_format::by_name;
  options.empty_classes = data::empty_classes::allow;
  const auto first_row = [&](const std::string& file) {
    const data::text_classification set(file, counting_tokenizer{.calls = &calls}, options);
    return set.tokens(0).size();
  };
  constexpr const char* twice = "1,a\t1,a b\tc d\n";
  options.label = "0";
  options.texts = {"1"};
  options.classes = {"1", "1,a"};
  options.max_length = 32;
  const auto as_csv = first_row(folder.write("r.csv", twice));
  const auto as_tsv = first_row(folder.write("r.tsv", twice));
  options.cache.clear();
  BOOST_TEST(first_row(folder.file("r.csv")) == as_csv);
  BOOST_TEST(first_row(folder.file("r.tsv")) == as_tsv);
  BOOST_TEST(as_csv != as_tsv);
}

BOOST_AUTO_TEST_CASE(two_processes_that_want_one_cache_build_it_once) {
  const parx_test::scratch_folder folder;
  const std::string cache = folder.file("c");
  std::atomic<bool> building{false}, waits{false};
  std::atomic<int> built{0};
  const auto rows_of = [&](data::token_rows_data& made) {
    made.ids = {1, 2, 3};
    made.offsets = {0, 3};
    made.labels = {7};
    ++built;
  };
  std::thread first([&] {
    (void)data::cached_rows(cache, 5, [&](data::token_rows_data& made) {
      building = true;
      for (int i = 0; i < 1000 && !waits; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      rows_of(made);
    });
  });
  while (!building) std::this_thread::yield();
  std::thread watcher([&] {  // by the kernel's list of locks, whose waiters have an arrow
    struct stat lock {};
    (void)::stat(fmt::format("{}/{:016x}.tokens.lock", cache, 5).c_str(), &lock);
    for (int i = 0; i < 1000 && !waits; ++i) {
      std::ifstream locks("/proc/locks");
      for (std::string line; std::getline(locks, line);)
        if (parx_test::mentions(line, "-> FLOCK", fmt::format(":{} ", lock.st_ino))) waits = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto rows = data::cached_rows(cache, 5, rows_of);
  first.join();
  watcher.join();
  BOOST_TEST(waits);
  BOOST_TEST(built == 1);
  BOOST_TEST(rows.size() == 1U);
  BOOST_TEST(rows.labels()[0] == 7);
}

BOOST_AUTO_TEST_CASE(
    a_damaged_cache_is_made_again_and_a_folder_that_cannot_be_written_does_without) {
  const parx_test::scratch_folder folder;
  const auto build = [](data::token_rows_data& made) {
    made.ids = {1, 2, 3, 4, 5};
    made.offsets = {0, 2, 5};
    made.labels = {7, 8};
  };
  parx_test::captured_log log;
  const std::string cache = folder.file("c");
  BOOST_CHECK(data::cached_rows(cache, 77, build).cached() == data::cache_use::made);
  BOOST_CHECK(data::cached_rows(cache, 77, build).cached() == data::cache_use::found);
  const std::string file = fmt::format("{}/{:016x}.tokens", cache, 77);
  const std::string good = parx_test::read_file(file);
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    else bytes[random() % bytes.size()] ^= static_cast<char>(1U << random() % 8);
    // A new file, as a rename would make it: the old one is still mapped nowhere.
    std::filesystem::remove(file);
    (void)folder.write(fmt::format("c/{:016x}.tokens", 77), bytes);
    int built = 0;
    bool alone = false;
    const auto rows = data::cached_rows(cache, 77, [&](data::token_rows_data& made) {
      ++built;
      alone = made.made_alone;
      build(made);
    });
    if (built != 1 || !alone || rows.size() != 2 || rows[1].size() != 3 || rows.labels()[1] != 8 ||
        rows.cached() != data::cache_use::repaired)
      BOOST_ERROR("round " << round << " took a damaged file");
  }
  BOOST_TEST(parx_test::read_file(file) == good);
  int built = 0;
  const auto other_key = data::token_rows::decode(data::detail::mapped_file(file), 78);
  BOOST_TEST(!other_key.has_value());
  // Who has the lock says what went wrong; without one, rank 0 does for all.
  log.clear();
  logger::instance().set_rank(3);
  const auto rows = data::cached_rows("/proc/nowhere", 77, [&](data::token_rows_data& made) {
    ++built;
    build(made);
    BOOST_TEST(!made.made_alone);
  });
  BOOST_TEST(log.text() == "");
  std::filesystem::create_directory(fmt::format("{}/{:016x}.tokens", cache, 79));
  BOOST_TEST(data::cached_rows(cache, 79, build).size() == 2U);
  logger::instance().set_rank(-1);
  BOOST_TEST(parx_test::mentions(log.text(), "rank 3] warning: cannot write the cache"));
  BOOST_TEST(rows.size() == 2U);
  BOOST_CHECK(rows.cached() == data::cache_use::none);
  BOOST_TEST(built == 1);
}

BOOST_AUTO_TEST_CASE(a_process_that_is_killed_while_it_tokenises_leaves_the_work_to_the_next) {
  const parx_test::scratch_folder folder;
  int ready[2];
  BOOST_REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)data::cached_rows(folder.file("c"), 5, [&](data::token_rows_data&) {
      [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    });
    ::_exit(1);
  }
  char told = 0;
  BOOST_REQUIRE(::read(ready[0], &told, 1) == 1);
  std::atomic<bool> done{false};
  std::size_t rows = 0;
  std::thread next([&] {
    rows = data::cached_rows(folder.file("c"), 5, [](data::token_rows_data& made) {
             made.ids = {1};
             made.end_row();
           }).size();
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const bool waited = !done;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  next.join();
  ::close(ready[0]);
  ::close(ready[1]);
  BOOST_TEST(waited);
  BOOST_TEST(rows == 1U);
}

BOOST_AUTO_TEST_CASE(a_vocabulary_is_made_once_and_read_word_for_word) {
  const parx_test::scratch_folder folder;
  const data::vocabulary words({"[PAD]", "gr\xc3\xbc\xc3\x9f", "##e"});
  int built = 0;
  const auto build = [&] {
    ++built;
    return words;
  };
  const auto made = examples::cached_vocabulary(folder.file("c"), 5, build);
  const auto found = examples::cached_vocabulary(folder.file("c"), 5, build);
  BOOST_CHECK(made.cached == data::cache_use::made && found.cached == data::cache_use::found);
  BOOST_TEST(built == 1);
  BOOST_TEST(made.words.tokens() == words.tokens(), boost::test_tools::per_element());
  BOOST_TEST(found.words.tokens() == words.tokens(), boost::test_tools::per_element());
}
