// Texts that are generated on demand, so that examples need no files: short news on four topics,
// and notes with a headline each.
//
// Text i is a pure function of (seed, i): ranks agree on it, and a test set is another window of
// the same stream. About half of a text's words are typical of a topic, some of them of another
// topic than the text's; the others are common to all topics. Naive Bayes on words classifies about
// 97 % correctly, guessing 25 %. A headline names the subject and the event of its note, which also
// contains unrelated words. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/data/source_target.hpp>

namespace parx::inline PARX_ABI::data {

namespace detail {

using words12 = std::array<std::string_view, 12>;

inline constexpr std::array<words12, 4> topic_words{{
    {"minister", "election", "border", "treaty", "parliament", "troops", "embassy", "president",
     "protest", "ceasefire", "refugees", "vote"},
    {"goal", "season", "coach", "stadium", "medal", "injury", "league", "striker", "penalty",
     "title", "record", "final"},
    {"shares", "profit", "market", "bank", "inflation", "merger", "oil", "investors", "earnings",
     "budget", "exports", "dollar"},
    {"software", "planet", "vaccine", "chip", "telescope", "robot", "network", "genome",
     "satellite", "battery", "browser", "sensor"},
}};
inline constexpr std::array<std::string_view, 24> common_words{
    "the",    "a",      "on",    "after", "new",   "said", "in",    "first",
    "week",   "late",   "over",  "with",  "and",   "for",  "again", "two",
    "report", "monday", "group", "city",  "early", "big",  "year",  "against"};
inline constexpr words12 note_subjects{"bridge",  "library",  "harbour", "school",
                                       "museum",  "market",   "station", "garden",
                                       "theatre", "hospital", "tower",   "mill"};
inline constexpr words12 note_events{"opens",   "closes",  "floods", "burns", "moves", "grows",
                                     "reopens", "expands", "fails",  "wins",  "leaks", "collapses"};
inline constexpr words12 note_places{"north", "south", "east",   "west",   "old town", "valley",
                                     "coast", "hill",  "island", "forest", "lake",     "square"};

}  // namespace detail

/// A text and its class.
struct topic_text {
  std::string text;
  std::size_t label;  ///< 0 world, 1 sports, 2 business, 3 science and technology
};

/// Text `index` of the stream, 8 to 24 words. All four classes are equally frequent.
[[nodiscard]] topic_text generate_topic_text(std::uint64_t index, std::uint64_t seed = 0);

/// Note `index` of the stream: three sentences, one of which, at any place, tells the news; the
/// target is its headline: "bridge in the valley floods".
[[nodiscard]] source_target generate_note(std::uint64_t index, std::uint64_t seed = 0);

/// A text of about `characters` characters for character-level language models: headlines and their
/// notes, one after the other.
[[nodiscard]] std::string generate_corpus(std::size_t characters, std::uint64_t seed = 0);

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/detail/generated_text_impl.hpp>
#endif
