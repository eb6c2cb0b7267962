// First values as a function of (seed, path, place in the whole).
#include <parx/nn/init.hpp>

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <tensor/shard_oracle.hpp>

#include <parx/nn.hpp>

using namespace parx;
using shard_oracle::listing;

namespace {

const nn::initializer distributions[]{nn::init::constant(0.3), nn::init::uniform(-0.7, 1.9),
                                      nn::init::normal(0.25, 3), nn::init::fan_in_uniform(7)};

template <typename T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Fills a part by itself and compares it with what its indices pick out of the whole.
template <typename T>
void require_slice_of_whole(const nn::initializer& start, const shard_spec& part,
                            const std::vector<std::size_t>& indices) {
  const auto whole = tensor<T>::empty(part.global_shape());
  start.fill(whole, 9, "layer.weight", shard_spec::whole(part.global_shape()));
  const auto here = tensor<T>::empty(part.shape());
  start.fill(here, 9, "layer.weight", part);
  BOOST_REQUIRE(here.size() == indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    BOOST_REQUIRE_MESSAGE(same_bits(here.data()[i], whole.data()[indices[i]]),
                          part.text() << ", element " << i);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_part_starts_from_the_bits_that_the_whole_has_there) {
  shard_oracle::random_cuts random;
  std::size_t elements = 0;
  for (int round = 0; round < 200; ++round) {
    // Long enough that runs begin and end anywhere within the blocks of 64 random words.
    parx::shape s;
    for (const std::size_t extent :
         {1 + random.below(9), 1 + random.below(40), 1 + random.below(90)})
      s.push_back(extent);
    shard_spec part = shard_spec::whole(s);
    listing list = listing::whole(s);
    for (std::size_t cuts = 1 + random.below(3); cuts > 0; --cuts) random.cut(part, list);
    for (const nn::initializer& start : distributions) {
      require_slice_of_whole<float>(start, part, list.indices);
      require_slice_of_whole<double>(start, part, list.indices);
      require_slice_of_whole<bfloat16>(start, part, list.indices);
      require_slice_of_whole<float16>(start, part, list.indices);
    }
    elements += list.indices.size();
  }
  BOOST_TEST(elements > 100'000U);
}

BOOST_AUTO_TEST_CASE(the_numbers_of_a_stream_are_those_of_its_formula) {
  // Independent of parx: the uniform number i of a stream is word i, of 24 bits.
  const auto values = tensor<float>::empty({1000});
  nn::init::uniform(-2, 3).fill(values, 4, "w", shard_spec::whole({1000}));
  std::vector<std::uint32_t> words;
  random_stream(4, "w").words(0, 1000,
                              [&](const std::uint32_t* word, std::uint64_t, std::size_t n) {
                                words.insert(words.end(), word, word + n);
                              });
  for (std::size_t i = 0; i < 1000; ++i) {
    const double exact = -2 + 5 * static_cast<double>(words[i] >> 8U) / 16777216.0;
    BOOST_REQUIRE(std::abs(static_cast<double>(values.data()[i]) - exact) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(the_parts_of_a_model_start_from_slices_of_the_model) {
  const auto make = [] {
    return nn::sequential{nn::linear{12, 10}, nn::embedding<bfloat16>{9, 4},
                          nn::multi_head_attention{8, 2}};
  };
  auto whole = make();
  whole.initialize(6);
  for (const int world : {1, 2, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      auto part = make();
      part.for_each_parameter([&](const std::string& path, auto& p) {
        // One way of cutting for each: columns, a flat range, three blocks, rows.
        const shard_spec all = p.spec();
        if (path == "0.weight") p.keep_part(all.chunk(1, rank, world));
        else if (path == "1.weight") p.keep_part(all.flat(0, 36).chunk(0, rank, world));
        else if (path == "2.in_proj_weight") {
          p.keep_part(all.chunk_of_blocks(0, {8, 8, 8}, rank, world));
        } else p.keep_part(all.chunk(0, rank, world));
      });
      part.initialize(6);
      std::vector<std::vector<double>> expected, found;
      whole.for_each_parameter([&](const std::string&, auto& p) {
        expected.emplace_back(p.value().begin(), p.value().end());
      });
      std::size_t index = 0;
      part.for_each_parameter([&](const std::string& path, auto& p) {
        BOOST_TEST((p.shape() == p.spec().shape()));
        const auto& all = expected[index++];
        std::size_t at = 0;
        p.spec().for_each_run([&](const shard_run& run) {
          for (std::size_t i = 0; i < run.length; ++i) {
            BOOST_REQUIRE_MESSAGE(
                all[run.global + i] == static_cast<double>(p.value().data()[at++]), path);
          }
        });
        BOOST_TEST(at == p.size());
      });
    }
  }
}
