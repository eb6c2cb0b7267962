#include "common/generated_text.hpp"
#include "trainers/lead.hpp"
#include "trainers/rouge.hpp"

#include <cmath>
#include <map>
#include <set>

#include <boost/test/unit_test.hpp>

using namespace parx;

BOOST_AUTO_TEST_CASE(rouge_l_is_the_f1_of_the_longest_common_subsequence,
                     *boost::unit_test::tolerance(1e-12)) {
  // Lin 2004, section 3.1: "police killed the gunman" against "police kill the gunman" and
  // "the gunman kill police": common subsequences of 3 and 2 words of 4.
  BOOST_TEST(examples::rouge_l("police kill the gunman", "police killed the gunman").f1 == 0.75);
  BOOST_TEST(examples::rouge_l("the gunman kill police", "police killed the gunman").f1 == 0.5);
  // The example of the rouge_score package: 0.625, 0.556, 0.588.
  const auto score = examples::rouge_l("The quick brown dog jumps on the log.",
                                       "The quick brown fox jumps over the lazy dog");
  BOOST_TEST(score.precision == 5.0 / 8);
  BOOST_TEST(score.recall == 5.0 / 9);
  BOOST_TEST(score.f1 == 10.0 / 17);
  BOOST_TEST(examples::rouge_l("", "a").f1 == 0);
  BOOST_TEST(examples::rouge_l("a", "...").f1 == 0);
  BOOST_TEST(examples::rouge_l("A-B c3!", "a b  C3").f1 == 1);
  BOOST_TEST((examples::rouge_words("Don't café-99") ==
              std::vector<std::string>{"don", "t", "caf", "99"}));
  const std::vector<std::string> a{"a b", "x"}, b{"a b", "y"};
  BOOST_TEST(examples::mean_rouge_l(a, b) == 0.5);
  BOOST_CHECK_THROW((void)examples::mean_rouge_l(a, std::span(b).first(1)), usage_error);
}

BOOST_AUTO_TEST_CASE(naive_bayes_learns_the_generated_topics_and_word_counts_do_not_repeat) {
  std::map<std::string, std::array<double, 4>> counts;
  const auto words = [](const std::string& text) { return examples::rouge_words(text); };
  std::set<std::string> texts;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const auto made = examples::generate_topic_text(i);
    texts.insert(made.text);
    for (const auto& word : words(made.text)) counts[word][made.label] += 1;
  }
  BOOST_TEST(texts.size() == 2000U);
  int right = 0;
  for (std::uint64_t i = 2000; i < 3000; ++i) {
    const auto made = examples::generate_topic_text(i);
    std::array<double, 4> score{};
    for (const auto& word : words(made.text))
      for (std::size_t c = 0; c < 4; ++c) score[c] += std::log(counts[word][c] + 1);
    right +=
        std::size_t(std::max_element(score.begin(), score.end()) - score.begin()) == made.label;
  }
  fmt::print("naive Bayes: {} of 1000\n", right);
  BOOST_TEST(right > 930);
  BOOST_TEST(right < 1000);
  BOOST_TEST(examples::generate_topic_text(5).text == examples::generate_topic_text(5).text);
  BOOST_TEST(examples::generate_topic_text(5).text != examples::generate_topic_text(5, 1).text);
}

BOOST_AUTO_TEST_CASE(a_notes_headline_stands_in_it_and_the_corpus_is_small_in_characters) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto note = examples::generate_note(i);
    for (const auto& word : examples::rouge_words(note.target)) {
      if (word == "in") continue;
      BOOST_TEST(note.source.find(word) != std::string::npos, note.target << ": " << note.source);
    }
  }
  double lead = 0;  // to copy the first words is no solution
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto note = examples::generate_note(i);
    lead += examples::rouge_l(note.source.substr(0, note.target.size()), note.target).f1 / 200;
  }
  BOOST_TEST(lead < 0.5);
  const std::string corpus = examples::generate_corpus(10'000);
  BOOST_TEST(corpus.size() >= 10'000U);
  BOOST_TEST(std::set<char>(corpus.begin(), corpus.end()).size() < 40U);
}

BOOST_AUTO_TEST_CASE(a_lead_ends_with_its_sentence_and_not_at_a_number_or_a_file_name) {
  BOOST_TEST(examples::lead_sentence("Version 2.5 of a.out is here! It runs.") ==
             "Version 2.5 of a.out is here!");
  BOOST_TEST(examples::lead_sentence("no end at all") == "no end at all");
  BOOST_TEST(examples::lead_sentence("It runs.") == "It runs.");
  BOOST_TEST(examples::lead_sentence("").empty());
  BOOST_TEST(examples::lead_words(" one  two\nthree", 2) == " one  two");
  BOOST_TEST(examples::lead_words("one two", 9) == "one two");
  BOOST_TEST(examples::lead_words("one", 0).empty());
}
