// Definitions of generated_text.hpp.
#pragma once

#include <parx/data/detail/draws.hpp>
#include <parx/data/generated_text.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE topic_text generate_topic_text(std::uint64_t index, std::uint64_t seed) {
  detail::draws draw(seed, index, "generate_topic_text");
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

PARX_INLINE source_target generate_note(std::uint64_t index, std::uint64_t seed) {
  detail::draws draw(seed, index, "generate_note");
  const std::string_view subject = draw.one_of(detail::note_subjects);
  const std::string_view event = draw.one_of(detail::note_events);
  const std::string_view place = draw.one_of(detail::note_places);
  source_target result;
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

PARX_INLINE std::string generate_corpus(std::size_t characters, std::uint64_t seed) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < characters; ++i) {
    const source_target note = generate_note(i, seed);
    text.append(note.target).append(":\n").append(note.source).append("\n\n");
  }
  return text;
}

}  // namespace parx::data
