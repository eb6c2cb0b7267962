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

#include <parx/data/detail/draws.hpp>
#include <parx/data/source_target.hpp>

namespace examples {

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
[[nodiscard]] inline topic_text generate_topic_text(std::uint64_t index, std::uint64_t seed = 0) {
  parx::data::detail::draws draw(seed, index, "generate_topic_text");
  topic_text result{{}, static_cast<std::size_t>(index % 4)};
  const std::size_t count = 8 + draw.below(17);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t kind = draw.below(20);
    if (i > 0) result.text += ' ';
    const std::size_t topic = kind < 7 ? result.label : draw.below(4);
    result.text +=
        kind < 11 ? draw.one_of(detail::topic_words[topic]) : draw.one_of(detail::common_words);
  }
  result.text += '.';
  return result;
}

/// Note `index` of the stream: three sentences, one of which, at any place, tells the news; the
/// target is its headline: "bridge in the valley floods".
[[nodiscard]] inline parx::data::source_target generate_note(std::uint64_t index,
                                                             std::uint64_t seed = 0) {
  parx::data::detail::draws draw(seed, index, "generate_note");
  const std::string_view subject = draw.one_of(detail::note_subjects);
  const std::string_view event = draw.one_of(detail::note_events);
  const std::string_view place = draw.one_of(detail::note_places);
  parx::data::source_target result;
  result.target.append(subject).append(" in the ").append(place).append(" ").append(event);
  const std::size_t where = draw.below(3);
  for (std::size_t i = 0; i < 3; ++i) {
    if (i > 0) result.source += ' ';
    if (i == where) {
      result.source.append("it is reported that the ")
          .append(subject)
          .append(" of the ")
          .append(place);
      result.source.append(" ")
          .append(event)
          .append(" this ")
          .append(draw.one_of(detail::common_words))
          .append(".");
    } else {
      const std::size_t words = 4 + draw.below(6);
      for (std::size_t w = 0; w < words; ++w)
        result.source.append(w > 0 ? " " : "").append(draw.one_of(detail::common_words));
      result.source += '.';
    }
  }
  return result;
}

/// A text of about `characters` characters for character-level language models: headlines and their
/// notes, one after the other.
[[nodiscard]] inline std::string generate_corpus(std::size_t characters, std::uint64_t seed = 0) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < characters; ++i) {
    const parx::data::source_target note = generate_note(i, seed);
    text.append(note.target).append(":\n").append(note.source).append("\n\n");
  }
  return text;
}

}  // namespace examples
