#include <parx/models/beam_search.hpp>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

using namespace parx;
using token_list = std::vector<std::int64_t>;

namespace {

constexpr std::int64_t end_token = 1;

/// A language of four tokens in which the last two tokens decide the next.
std::vector<float> logits_after(std::int64_t before_last, std::int64_t last) {
  std::vector<float> row(4);
  for (std::size_t v = 0; v < 4; ++v) {
    const auto place = static_cast<std::size_t>(before_last * 16 + last * 4) + v;
    row[v] = static_cast<float>((place * 37 + 11) % 17) / 6.0F;
  }
  return row;
}
tensor<float> next(const tensor<std::int64_t>& so_far, std::span<const std::size_t> /*rows*/) {
  const std::size_t beams = so_far.extent(0), length = so_far.extent(1);
  auto logits = tensor<float>::empty({beams, 4});
  for (std::size_t b = 0; b < beams; ++b) {
    const auto row =
        logits_after(length > 1 ? so_far.at(b, length - 2) : 0, so_far.at(b, length - 1));
    std::copy(row.begin(), row.end(), logits.data() + b * 4);
  }
  return logits;
}

struct scored {
  double score = -1e300;
  token_list text = {};
};

/// The best of all texts of up to `left` more tokens, by brute force.
void try_all(const token_list& text, double sum, std::size_t left, double penalty, scored& best) {
  const std::size_t length = text.size() - 1;
  if (text.back() == end_token || left == 0) {
    const double score = sum / std::pow(static_cast<double>(length), penalty);
    if (score > best.score) best = {score, {text.begin() + 1, text.end()}};
    return;
  }
  const auto row = logits_after(length > 0 ? text[length - 1] : 0, text.back());
  double total = 0;
  for (const float x : row) total += std::exp(static_cast<double>(x));
  for (std::size_t v = 0; v < 4; ++v) {
    token_list longer = text;
    longer.push_back(static_cast<std::int64_t>(v));
    try_all(longer, sum + static_cast<double>(row[v]) - std::log(total), left - 1, penalty, best);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(with_a_beam_for_every_text_the_best_of_all_texts_is_found) {
  for (const double penalty : {0.0, 1.0, 2.0, -1.0}) {
    scored best;
    try_all({0}, 0, 5, penalty, best);
    const auto found =
        models::beam_search({.max_new_tokens = 5, .beams = 1024, .length_penalty = penalty}, next);
    BOOST_TEST(found == best.text, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_model_that_gives_nan_is_an_error_and_no_text) {
  const auto broken = [](const tensor<std::int64_t>& so_far, std::span<const std::size_t> rows) {
    auto logits = next(so_far, rows);
    logits.data()[1] = std::nanf("");
    return logits;
  };
  for (const std::size_t beams : {1U, 4U})
    BOOST_CHECK_THROW((void)models::beam_search({.max_new_tokens = 5, .beams = beams}, broken),
                      parx::error);
}

BOOST_AUTO_TEST_CASE(one_beam_takes_the_likeliest_token_each_time) {
  token_list greedy{0};
  while (greedy.size() <= 6 && greedy.back() != end_token) {
    const std::size_t n = greedy.size();
    const auto row = logits_after(n > 1 ? greedy[n - 2] : 0, greedy[n - 1]);
    greedy.push_back(std::max_element(row.begin(), row.end()) - row.begin());
  }
  greedy.erase(greedy.begin());
  BOOST_TEST(models::beam_search({.max_new_tokens = 6, .beams = 1}, next) == greedy,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_search_that_stops_early_asks_the_model_less_often) {
  const auto steps = [](models::beam_stop stop, double penalty) {
    std::size_t count = 0;
    (void)models::beam_search(
        {.max_new_tokens = 50, .beams = 2, .length_penalty = penalty, .stop = stop},
        [&](const auto& so_far, auto rows) {
          ++count;
          return next(so_far, rows);
        });
    return count;
  };
  BOOST_TEST(steps(models::beam_stop::enough, 0) <= steps(models::beam_stop::hopeless, 0));
  BOOST_TEST(steps(models::beam_stop::hopeless, 0) < 50U);
}

BOOST_DATA_TEST_CASE(a_source_becomes_the_text_that_its_decoder_prefers,
                     boost::unit_test::data::make({false, true}), copies) {
  models::encoder_decoder<float> model(
      {.vocab_size = 12,
       .d_model = 16,
       .encoder_layers = 1,
       .decoder_layers = 1,
       .attention_heads = 2,
       .ffn_dim = 32,
       .max_position_embeddings = 16,
       .copying = copies ? models::copying::pointer : models::copying::none});
  model.initialize(1);
  const token_list source{5, 3, 9};
  const auto greedy = models::beam_search(model, source, {.max_new_tokens = 8, .beams = 1});
  // By hand: the whole prefix again for every token.
  model.eval();
  token_list text{0};
  while (text.size() <= 8 && text.back() != end_token) {
    const auto logits =
        model(tensor<std::int64_t>::from(source, {1, 3}), tensor<std::uint8_t>::ones({1, 3}),
              tensor<std::int64_t>::from(text, {1, text.size()}))
            .value();
    text.push_back(argmax(logits).at(0, text.size() - 1));
  }
  text.erase(text.begin());
  BOOST_TEST(greedy == text, boost::test_tools::per_element());
  model.train();
  const auto beams = models::beam_search(model, source, {.max_new_tokens = 8});
  BOOST_TEST(model.is_training());
  BOOST_TEST(beams.size() <= 8U);
  BOOST_TEST(models::beam_search(model, source, {.max_new_tokens = 8}) == beams,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(beams_are_told_which_of_the_last_beams_they_continue) {
  std::vector<token_list> before{{}};
  (void)models::beam_search({.max_new_tokens = 6, .beams = 3},
                            [&](const tensor<std::int64_t>& so_far, auto rows) {
                              std::vector<token_list> now;
                              for (std::size_t b = 0; b < so_far.extent(0); ++b) {
                                token_list text;
                                for (std::size_t t = 0; t < so_far.extent(1); ++t)
                                  text.push_back(so_far.at(b, t));
                                now.push_back(text);
                                text.pop_back();
                                BOOST_TEST(text == before.at(rows[b]));
                              }
                              before = now;
                              return next(so_far, rows);
                            });
}

BOOST_DATA_TEST_CASE(a_search_with_cached_keys_finds_what_one_without_finds,
                     boost::unit_test::data::make({false, true}) *
                         boost::unit_test::data::make({false, true}),
                     copies, post) {
  models::encoder_decoder<float> model(
      {.vocab_size = 20,
       .d_model = 16,
       .encoder_layers = 1,
       .decoder_layers = 2,
       .attention_heads = 2,
       .ffn_dim = 32,
       .max_position_embeddings = 24,
       .order = post ? nn::norm_order::post : nn::norm_order::pre,
       .copying = copies ? models::copying::pointer : models::copying::none});
  model.initialize(5);
  model.eval();
  const no_grad guard;
  for (const token_list& source :
       {token_list{5, 3, 9}, token_list{7}, token_list{2, 2, 4, 6, 19}}) {
    const auto ids = tensor<std::int64_t>::from(source, {1, source.size()});
    const auto seen = tensor<std::uint8_t>::ones({1, source.size()});
    auto cache = model.make_cache(ids, seen, 12);
    float furthest = 0;
    // The whole text again for every token.
    const auto whole = [&](const tensor<std::int64_t>& so_far, auto rows) {
      const std::size_t beams = so_far.extent(0), length = so_far.extent(1);
      const auto all =
          model(ids.expand({beams, source.size()}), seen.expand({beams, source.size()}), so_far)
              .value();
      const auto last = all.select(1, length - 1).contiguous();
      cache.select(rows);
      const auto cached =
          model.decode(so_far.slice(1, length - 1, length), &cache).value().contiguous();
      for (std::size_t i = 0; i < last.size(); ++i)
        furthest = std::max(furthest, std::abs(last.data()[i] - cached.data()[i]));
      return last;
    };
    const models::beam_options options{.max_new_tokens = 12, .beams = 3};
    const auto expected = models::beam_search(options, whole);
    BOOST_TEST(furthest < 1e-5F);
    BOOST_TEST(models::beam_search(model, source, options) == expected,
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_configuration_is_kept_in_json_and_another_models_is_refused) {
  const models::encoder_decoder_config config{.vocab_size = 12,
                                              .d_model = 16,
                                              .encoder_layers = 1,
                                              .decoder_layers = 3,
                                              .attention_heads = 2,
                                              .ffn_dim = 32,
                                              .max_position_embeddings = 17,
                                              .dropout = 0.25,
                                              .copying = models::copying::pointer};
  const auto kept = json::parse(json::dump(to_json(config)));
  BOOST_TEST((to_json(models::encoder_decoder_config_from(kept)) == kept));
  BOOST_CHECK_EXCEPTION((void)models::encoder_decoder_config_from(
                            json::object{{"vocab_size", 9}, {"hidden_size", 8}}),
                        error, [](const error& e) {
                          return std::string(e.what()).find("no \"d_model\"") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(no_run_of_tokens_comes_twice_where_that_is_not_wanted) {
  // Whatever came before, the likeliest tokens are 5, 6, 7, in this order.
  const auto always = [](const tensor<std::int64_t>& so_far, auto) {
    auto logits = tensor<float>::zeros({so_far.extent(0), 8});
    for (std::size_t b = 0; b < so_far.extent(0); ++b) {
      for (std::size_t v = 5; v < 8; ++v) logits.data()[b * 8 + v] = 20 - static_cast<float>(v);
    }
    return logits;
  };
  const auto made = [&](std::size_t size) {
    return models::beam_search({.max_new_tokens = 6, .beams = 1, .no_repeat_ngram_size = size},
                               always);
  };
  BOOST_TEST(made(0) == (token_list{5, 5, 5, 5, 5, 5}), boost::test_tools::per_element());
  BOOST_TEST(made(2) == (token_list{5, 5, 6, 5, 7, 5}), boost::test_tools::per_element());
  BOOST_TEST(made(3) == (token_list{5, 5, 5, 6, 5, 5}), boost::test_tools::per_element());
}
