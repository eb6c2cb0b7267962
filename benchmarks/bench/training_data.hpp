// Synthetic batches for the training benchmarks: a fixed seed, different data on each rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/comm.hpp>
#include <parx/tensor.hpp>

namespace bench {

using ids = parx::tensor<std::int64_t>;

/// The number of different batches, which are used in turn.
inline constexpr std::size_t batches = 8;

inline ids random_ids(const parx::random_stream& stream, parx::shape shape, std::uint32_t limit) {
  ids values = ids::empty(shape);
  const auto put = [&](const std::uint32_t* word, std::uint64_t at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) values.data()[at + i] = word[i] % limit;
  };
  stream.words(0, values.size(), put);
  return values;
}

inline parx::random_stream stream_of(const parx::process_group& group, std::size_t batch,
                                     const char* what) {
  return parx::random_stream(1000 + static_cast<std::uint64_t>(group.rank()), what)
      .substream(batch);
}

}  // namespace bench
