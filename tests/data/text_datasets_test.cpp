#include "trainers/token_dropout.hpp"
#include <parx/data/language_model.hpp>
#include <parx/data/sequence_pairs.hpp>
#include <parx/data/text_classification.hpp>

#include <random>
#include <set>
#include <span>

#include <boost/test/unit_test.hpp>

#include <parx/data/loader.hpp>
#include <parx/data/text/character_tokenizer.hpp>
#include <parx/data/text/padding.hpp>
#include <parx/data/text/wordpiece.hpp>

#include <data/small_texts.hpp>
#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using data::token_id;
using ids = std::vector<token_id>;
using parx_test::mentions;
using parx_test::message_of;
using parx_test::news;
using parx_test::small;

namespace {

template <typename T>
std::vector<int> numbers(const tensor<T>& from) {
  return {from.begin(), from.end()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(labelled_texts_become_padded_batches) {
  const parx_test::scratch_folder folder;
  const data::text_classification set(folder.write("n.csv", news), small(), data::ag_news(6));
  BOOST_TEST(set.size() == 4U);
  BOOST_TEST(set.classes() == 4U);
  BOOST_TEST(
      (set.counts() ==
       data::text_counts{.tokens = 5 + 6 + 3 + 5, .truncated_rows = 1, .truncated_tokens = 2}));
  const std::vector<std::size_t> some{0, 2};
  const auto batch = set.fetch(some);
  BOOST_TEST((batch.input_ids.shape() == shape{2, 5}));
  BOOST_TEST((numbers(batch.input_ids) == std::vector<int>{2, 5, 6, 7, 3, 2, 8, 3, 0, 0}));
  BOOST_TEST((numbers(batch.attention_mask) == std::vector<int>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}));
  BOOST_TEST((numbers(batch.labels) == std::vector<int>{0, 2}));
  BOOST_TEST(batch.tokens() == 8U);
  data::text_batch last{batch.input_ids.slice(0, 1, 2), batch.attention_mask.slice(0, 1, 2),
                        batch.labels.slice(0, 1, 2), {}};
  last.trim_padding();  // as if it were alone
  BOOST_TEST((last.input_ids.shape() == shape{1, 3}));
  BOOST_TEST((numbers(last.input_ids) == std::vector<int>{2, 8, 3}));
  BOOST_TEST((numbers(last.attention_mask) == std::vector<int>{1, 1, 1}));
  auto options = data::ag_news(6);
  options.padding = {.multiple_of = 8};
  const data::text_classification rounded(folder.file("n.csv"), small(), options);
  BOOST_TEST((rounded.fetch(some).input_ids.shape() == shape{2, 8}));
  // All of it through a loader, padding samples with weight 0 included.
  std::multiset<int> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const data::loader loader{set,
                              {.batch_size = 1, .sampler = data::distributed_sampler(4, rank, 3)}};
    BOOST_TEST(loader.batches() == 2U);
    for (auto& each : loader.epoch(0))
      if (each.count() > 0) seen.insert(int(each.labels.item()));
  }
  BOOST_TEST((seen == std::multiset<int>{0, 1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(texts_in_memory_become_what_the_same_texts_in_a_file_become) {
  const parx_test::scratch_folder folder;
  struct sample {
    std::string text;
    int label;
  };
  const std::vector<sample> samples{{"a b c", 0}, {"a b c d a b", 1}, {"d", 2}, {"e e e", 3}};
  const data::text_classification set(samples, small(), {.class_count = 4, .max_length = 6});
  const data::text_classification read(folder.write("n.csv", news), small(), data::ag_news(6));
  BOOST_TEST((set.counts() == read.counts()));
  for (std::size_t i = 0; i < 4; ++i) {
    BOOST_TEST(set.label(i) == read.label(i));
    BOOST_TEST(set.tokens(i) == read.tokens(i), boost::test_tools::per_element());
  }
  const auto wrong = message_of([&] {
    (void)data::text_classification(samples, small(), {.class_count = 3});
  });
  BOOST_TEST(mentions(wrong, "text 3", "\"3\"", "from 0 to 2"));
}

BOOST_AUTO_TEST_CASE(hidden_tokens_are_as_many_as_was_said_and_never_special_ones) {
  const auto plain = parx::tensor<data::token_id>::empty({100, 100});
  for (std::size_t i = 0; i < plain.size(); ++i) plain.data()[i] = data::token_id(i % 10);
  const data::special_ids special{.start = 2, .separator = 3, .pad = 0};
  const auto hide = [&](double probability, std::uint64_t seed) {
    return numbers(examples::hidden_tokens(plain, special, {probability, 77}, seed));
  };
  const auto changed = hide(0.3, 1);
  for (std::size_t i = 0; i < changed.size(); ++i) {
    const int was = int(i % 10);
    const bool is_special = was == 0 || was == 2 || was == 3;
    BOOST_TEST_REQUIRE((changed[i] == was || (changed[i] == 77 && !is_special)));
  }
  // 7 000 draws: three deviations are 115.
  BOOST_TEST(std::abs(double(std::count(changed.begin(), changed.end(), 77)) - 2100) < 115);
  BOOST_TEST((hide(0.3, 1) == changed));
  BOOST_TEST((hide(0.3, 2) != changed));
  const auto all = hide(1, 1);
  BOOST_TEST(std::count(all.begin(), all.end(), 77) == 7000);
  BOOST_TEST(examples::hidden_tokens(plain, special, {0, 77}, 1).data() == plain.data());
  // Rows of another rank, which pads further.
  const auto wider = parx::tensor<data::token_id>::full({50, 120}, 0);
  wider.slice(1, 0, 100).copy_from(plain.slice(0, 50, 100));
  const auto others = examples::hidden_tokens(wider, special, {0.3, 77, 50}, 1);
  BOOST_TEST((numbers(others.slice(1, 0, 100).contiguous()) ==
              std::vector(changed.begin() + 5000, changed.end())));
}

BOOST_AUTO_TEST_CASE(wrong_labels_columns_and_lengths_are_named_with_their_line) {
  const parx_test::scratch_folder folder;
  const auto load = [&](std::string_view text, data::text_classification_options options) {
    return message_of([&, path = folder.write("bad.csv", text)] {
      (void)data::text_classification(path, small(), options);
    });
  };
  BOOST_TEST(mentions(load("1,a,b\n7,c,d\n", data::ag_news()), "bad.csv", "line 2", "\"7\"",
                      "1, 2, 3, 4"));
  BOOST_TEST(mentions(load("1,a,b\n7,c,d\n", data::ag_news()), "Name all classes"));
  BOOST_TEST(mentions(load("label,title,text\n1,a,b\n", data::ag_news()), "line 1", "\"label\"",
                      "If this line names the columns"));
  auto twice = data::ag_news();
  twice.classes.push_back("2");
  BOOST_TEST(
      mentions(load("1,a,b\n", twice), "usage", "\"2\" is named twice", "number 1 and number 4"));
  BOOST_TEST(mentions(load("1,a,b\n2,c\n", data::ag_news()), "line 2", "2 fields"));
  BOOST_TEST(mentions(load("1,a\n", data::ag_news()), "line 1", "2 columns"));
  BOOST_TEST(
      mentions(load("1,a,b\n2,a,b\n4,a,b\n", data::ag_news()), "bad.csv", "class 2", "\"3\""));
  BOOST_TEST(mentions(load("", data::ag_news()), "no records"));
  BOOST_TEST(mentions(load("text,label\na,0\nb,x\n", {}), "line 3", "\"x\"", "class number"));
  BOOST_TEST(mentions(load("text,label\na,0\nb,-1\n", {}), "line 3", "\"-1\""));
  BOOST_TEST(mentions(load("text,label\na,0\nb,2\n", {.class_count = 2}), "line 3", "from 0 to 1"));
  BOOST_TEST(
      mentions(load("text,class\na,0\n", {}), "usage", "no column \"label\"", "text, class"));
  BOOST_TEST(mentions(load("text,label\na,0\na b c d,0\n",
                           {.max_length = 4, .truncation = data::truncation::refuse}),
                      "line 3", "4 tokens", "max_length"));
  BOOST_TEST(mentions(message_of([] {
                        (void)data::text_classification("/nonexistent.csv", small(),
                                                        data::ag_news());
                      }),
                      "/nonexistent.csv", "No such file"));
}

namespace {
/// What `call` logs.
template <typename Call>
std::string logged_by(Call call) {
  const parx_test::captured_log log;
  const std::string failure = message_of(call);
  return failure == "nothing was thrown" ? log.text() : failure;
}
}  // namespace

BOOST_AUTO_TEST_CASE(the_first_text_that_is_no_utf_8_is_named_and_all_are_counted) {
  const parx_test::scratch_folder folder;
  const auto labelled = folder.write("c.csv", "1,a,b\n2,a \xFF b,c\n3,a,b\n4,a,\xC3\n");
  BOOST_TEST(mentions(
      logged_by([&] { (void)data::text_classification(labelled, small(), data::ag_news()); }),
      "c.csv\", line 2: byte 3 of the text is not UTF-8", "c.csv\": 2 pieces"));
  const auto tsv = folder.write("p.tsv", "a\tb\nb\ta \xFF\n");
  BOOST_TEST(mentions(
      logged_by([&] { (void)data::sequence_pairs(tsv, small(), {.source = "0", .target = "1"}); }),
      "p.tsv\", line 2: byte 3", "p.tsv\": 1 pieces"));
  const std::vector<data::source_target> pairs{{"a", "b"}, {"a", "b \xFF"}};
  BOOST_TEST(mentions(logged_by([&] { (void)data::sequence_pairs(pairs, small(), {}); }),
                      "pair 1: byte 3", "2 pairs: 1 pieces"));
  const auto text = folder.write("t.txt", "a b c \xFF d");
  BOOST_TEST(mentions(
      logged_by([&] { (void)data::language_model::read(text, small(), {.context_length = 2}); }),
      "t.txt\": byte 7"));
  BOOST_TEST(logged_by([&] {
    (void)data::sequence_pairs(std::span(pairs).first(1), small(), {});
  }) == "");

  // Of the ranks that all read it, the first says so; of those that share a cache, the one that
  // makes it says where.
  logger::instance().set_rank(1);
  auto options = data::ag_news();
  const auto read = [&] { (void)data::text_classification(labelled, small(), options); };
  BOOST_TEST(logged_by(read) == "");
  options.cache = folder.file("cache");
  const std::string said = logged_by(read);
  BOOST_TEST(mentions(said, "[parx rank 1] warning", "line 2: byte 3"));
  BOOST_TEST(said.find("2 pieces") == said.npos);
  BOOST_TEST(logged_by(read) == "");
  options.cache = "/proc/nowhere";
  BOOST_TEST(logged_by(read) == "");
  logger::instance().set_rank(0);
  BOOST_TEST(mentions(logged_by(read), "cannot write the cache"));
  logger::instance().set_rank(-1);
}

BOOST_AUTO_TEST_CASE(a_language_model_sees_every_token_once_an_epoch_and_its_successor_as_label) {
  const parx_test::scratch_folder folder;
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  const auto tokenizer = data::character_tokenizer::from_text(text);
  const auto set =
      data::language_model::read(folder.write("t.txt", text), tokenizer, {.context_length = 8});
  BOOST_TEST(set.size() == 3U);  // 25 tokens have a successor
  const std::vector<std::size_t> last{2, 0};
  const auto batch = set.fetch(last);
  BOOST_TEST((numbers(batch.input_ids) ==
              std::vector<int>{16, 17, 18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7}));
  BOOST_TEST(batch.labels.at(0, 7) == 24);
  const auto anywhere = data::language_model::read(folder.file("t.txt"), tokenizer,
                                                   {.context_length = 8, .stride = 1});
  BOOST_TEST(anywhere.size() == 18U);
  const auto tail = data::language_model::read(folder.file("t.txt"), tokenizer,
                                               {.context_length = 2, .first = 0.5});
  BOOST_TEST(tail.size() == 6U);
  BOOST_TEST(tail.fetch(std::vector<std::size_t>{0}).input_ids.at(0, 0) == 13);
  BOOST_CHECK_THROW(
      (void)data::language_model::read(folder.file("t.txt"), tokenizer, {.context_length = 26}),
      usage_error);
  // The labels of a sample that only fills up are ignored.
  const data::loader loader{
      set,
      {.batch_size = 1,
       .sampler = data::distributed_sampler(3, 1, 2, {.order = data::sample_order::sequential})}};
  std::vector<int> first_labels;
  for (auto& each : loader.epoch(0)) first_labels.push_back(int(each.labels.at(0, 0)));
  BOOST_TEST((first_labels == std::vector<int>{9, -100}));
}

BOOST_AUTO_TEST_CASE(pairs_are_shifted_by_one_behind_the_start_token) {
  const parx_test::scratch_folder folder;
  const data::sequence_pairs set(
      folder.write(
          "p.jsonl",
          "{\"doc\": \"a b c d e\", \"sum\": \"a b\"}\n{\"doc\": \"a\", \"sum\": \"c d e a b\"}\n"),
      small(), {.source = "doc", .target = "sum", .max_source_length = 6, .max_target_length = 4});
  BOOST_TEST(set.size() == 2U);
  BOOST_TEST(set.counts().truncated_rows == 2U);
  const auto batch = set.fetch(std::vector<std::size_t>{0, 1});
  BOOST_TEST((numbers(batch.input_ids) == std::vector<int>{2, 5, 6, 7, 8, 3, 2, 5, 3, 0, 0, 0}));
  BOOST_TEST((numbers(batch.labels) == std::vector<int>{5, 6, 3, -100, 7, 8, 10, 3}));
  BOOST_TEST((numbers(batch.decoder_input_ids) == std::vector<int>{2, 5, 6, 0, 2, 7, 8, 10}));
  BOOST_TEST((numbers(batch.decoder_attention_mask) == std::vector<int>{1, 1, 1, 0, 1, 1, 1, 1}));
  BOOST_TEST(mentions(message_of([&] {
                        (void)data::sequence_pairs(folder.file("p.jsonl"), small(),
                                                   {.source = "doc", .target = "summary"});
                      }),
                      "p.jsonl", "line 1", "no \"summary\""));
  BOOST_TEST(mentions(message_of([&] {
                        (void)data::sequence_pairs(folder.file("p.jsonl"),
                                                   data::character_tokenizer::from_text("ab"), {});
                      }),
                      "usage", "no token to end"));
}

BOOST_AUTO_TEST_CASE(pairs_from_memory_are_those_of_their_file_and_empty_ones_are_left_out) {
  const parx_test::scratch_folder folder;
  const auto path = folder.write("p.tsv", "x\ta b\ta b c d e\ny\t \tb\nz\te\ta\nq\tc\t\n");
  const data::source_target_options columns{.source = "2", .target = "1"};
  const auto read = data::read_source_targets(path, columns);
  BOOST_REQUIRE(read.size() == 2U);
  BOOST_TEST(read[0].source == "a b c d e");
  BOOST_TEST(read[1].target == "e");
  const data::sequence_pair_options limits{
      .source = "2", .target = "1", .max_source_length = 6, .max_target_length = 4};
  const data::sequence_pairs memory(read, small(), limits), file(path, small(), limits);
  BOOST_TEST(memory.size() == 2U);
  BOOST_TEST((memory.counts().truncated_tokens == file.counts().truncated_tokens));
  BOOST_TEST(memory.source(0) == file.source(0), boost::test_tools::per_element());
  BOOST_TEST(memory.target(1) == file.target(2), boost::test_tools::per_element());
  BOOST_TEST(mentions(message_of([&] {
                        (void)data::read_source_targets(
                            folder.write("e.jsonl", "{\"a\": \"\", \"b\": \"x\"}\n"),
                            {.source = "a", .target = "b"});
                      }),
                      "e.jsonl", "no pairs", "1 records", "\"a\"", "empty"));
}

BOOST_AUTO_TEST_CASE(batches_of_like_length_hold_every_sample_once_and_less_padding) {
  std::mt19937 random(8);
  auto lengths = std::make_shared<std::vector<std::uint32_t>>(1003);
  for (auto& each : *lengths) each = static_cast<std::uint32_t>(1 + random() % 100);
  const auto padding_of = [&](const data::sampler_options& options) {
    std::size_t wasted = 0;
    const auto all = data::distributed_sampler(1003, 0, 1, options).indices(3);
    for (std::size_t begin = 0; begin < all.size(); begin += 16) {
      std::size_t longest = 0;
      const std::size_t end = std::min(begin + 16, all.size());
      for (std::size_t i = begin; i < end; ++i)
        longest = std::max<std::size_t>(longest, (*lengths)[all[i]]);
      for (std::size_t i = begin; i < end; ++i) wasted += longest - (*lengths)[all[i]];
    }
    return wasted;
  };
  const data::sampler_options grouped{
      .seed = 5, .group_by_length = {.lengths = lengths, .batch = 16, .pool = 20}};
  BOOST_TEST(padding_of(grouped) * 5 < padding_of({.seed = 5}));
  // The ranks' shares make up the same global order at any world size, and after a stop in its
  // midst.
  const auto whole = data::distributed_sampler(1003, 0, 1, grouped).indices(3);
  BOOST_TEST((std::set<std::size_t>(whole.begin(), whole.end()).size() == 1003U));
  for (const std::size_t consumed : {0U, 160U}) {
    for (const int world : {2, 4}) {
      std::vector<std::vector<std::size_t>> ranks;
      for (int rank = 0; rank < world; ++rank)
        ranks.push_back(data::distributed_sampler(1003, rank, world, grouped).indices(3, consumed));
      bool same = true;
      for (std::size_t i = consumed; i < whole.size(); ++i) {
        const std::size_t k = i - consumed;
        same = same && ranks[k % std::size_t(world)][k / std::size_t(world)] == whole[i];
      }
      BOOST_TEST(same);
    }
  }
  BOOST_TEST((data::distributed_sampler(1003, 0, 1, grouped).indices(4) != whole));
  BOOST_CHECK_THROW(data::distributed_sampler(1002, 0, 1, grouped), usage_error);
}

// Samples of equal length in their order: what remains is how each pool's batches are shuffled.
BOOST_AUTO_TEST_CASE(the_batches_of_each_pool_of_like_lengths_come_in_an_order_of_their_own) {
  constexpr std::size_t batch = 4, pool = 12, pools = 6;
  const auto lengths = std::make_shared<const std::vector<std::uint32_t>>(batch * pool * pools, 9U);
  const auto orders_of = [&](std::uint64_t seed) {
    std::set<std::vector<std::size_t>> orders;
    const auto all = data::distributed_sampler(
                         lengths->size(), 0, 1,
                         {.order = data::sample_order::sequential,
                          .seed = seed,
                          .group_by_length = {.lengths = lengths, .batch = batch, .pool = pool}})
                         .indices(0);
    for (std::size_t begin = 0; begin < all.size(); begin += batch * pool) {
      std::vector<std::size_t> order;
      for (std::size_t k = 0; k < pool; ++k) {
        const std::size_t first = all[begin + k * batch];
        order.push_back((first - begin) / batch);
        for (std::size_t i = 0; i < batch; ++i)  // a batch stays together
          BOOST_TEST(all[begin + k * batch + i] == first + i);
      }
      orders.insert(order);
    }
    return orders;
  };
  const auto orders = orders_of(1);
  BOOST_TEST(orders.size() == pools);
  BOOST_TEST((orders != orders_of(2)));
}

BOOST_AUTO_TEST_CASE(the_real_sets_read_as_published) {
  const auto root = parx_test::real_data("ag_news");
  const auto bert = parx_test::real_data("bert");
  if (!root || !bert) return;
  const auto tokenizer = data::wordpiece_tokenizer::read(*bert + "/vocab.txt");
  const data::text_classification test(*root + "/test.csv.gz", tokenizer, data::ag_news());
  BOOST_TEST(test.size() == 7600U);
  std::vector<int> count(4);
  for (std::size_t i = 0; i < test.size(); ++i) ++count[std::size_t(test.label(i))];
  BOOST_TEST((count == std::vector<int>{1900, 1900, 1900, 1900}));
  const data::text_classification train(*root + "/train_10k.csv.gz", tokenizer, data::ag_news());
  BOOST_TEST(train.size() == 9999U);
  fmt::print("AG News: {} tokens, {} of {} texts cut to 128\n", train.counts().tokens,
             train.counts().truncated_rows, train.size());
  if (const auto xsum = parx_test::real_data("xsum_1000")) {
    const data::sequence_pairs pairs(*xsum + "/test.jsonl.gz", tokenizer,
                                     {.source = "document", .target = "summary"});
    BOOST_TEST(pairs.size() == 1000U);
  }
  if (const auto tldr = parx_test::real_data("scitldr")) {
    const data::sequence_pairs pairs(*tldr + "/train.jsonl.gz", tokenizer,
                                     {.source = "source", .target = "target[0]"});
    BOOST_TEST(pairs.size() == 1992U);
  }
  if (const auto debian = parx_test::real_data("debian_descr")) {
    const data::sequence_pairs pairs(*debian + "/test.tsv.gz", tokenizer,
                                     {.source = "2", .target = "1"});
    BOOST_TEST(pairs.size() == 1000U);
  }
}

BOOST_AUTO_TEST_CASE(rows_are_padded_to_a_length_that_is_rounded_up_to_the_multiple) {
  const std::vector<token_id> row{7, 8, 9};
  const std::vector<std::span<const token_id>> rows{row};
  const auto length = [&](const data::padding_options& options) {
    const auto padded = data::pad_rows(rows, 0, options);
    BOOST_TEST(padded.mask.extent(1) == padded.ids.extent(1));
    BOOST_TEST(data::longest_row(padded.mask) == 3U);
    for (std::size_t i = 3; i < padded.ids.extent(1); ++i) BOOST_TEST(padded.ids.at(0, i) == 0);
    return padded.ids.extent(1);
  };
  BOOST_TEST(length({.multiple_of = 8}) == 8U);
  BOOST_TEST(length({.to_length = 10}) == 10U);
  BOOST_TEST(length({.multiple_of = 8, .to_length = 10}) == 16U);
  BOOST_TEST(length({.multiple_of = 8, .to_length = 16}) == 16U);
  BOOST_TEST(length({.multiple_of = 2, .to_length = 2}) == 4U);
}
