// The norm of gradients that lie in parts on several ranks.
#include <parx/optim/clip.hpp>

#include <ddp/ranks.hpp>
#include <types/square_oracle.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>

#include <boost/test/unit_test.hpp>

namespace {

namespace optim = parx::optim;
using target = optim::target<float>;

std::vector<float> gradient(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(normal(random) * std::exp(4 * normal(random)));
  }
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(parts_on_ranks_and_what_all_have_give_the_norm_of_the_whole_and_clip_alike) {
  const std::vector<float> cut = gradient(100'003, 1), everywhere = gradient(771, 2);
  parx_test::wide_number squares = parx_test::sum_of_squares<float>(cut);
  for (const float each : everywhere) squares.add_square(each);

  std::vector<double> norms;
  for (const int world : {1, 2, 3}) {
    struct found {
      double norm = 0;
      std::vector<float> cut, everywhere;
    };
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      // Parts of unequal size; rank 1 of 3 has next to nothing.
      const auto border = [&](int rank) {
        return rank == world ? cut.size() : rank == 0 ? 0 : 50'001 + static_cast<std::size_t>(rank);
      };
      const std::size_t begin = border(group.rank()), end = border(group.rank() + 1);
      found mine{0, {cut.begin() + static_cast<std::ptrdiff_t>(begin),
                     cut.begin() + static_cast<std::ptrdiff_t>(end)}, everywhere};
      std::vector<float> unused(cut.size());
      const std::vector targets{target("part", std::span(unused).first(end - begin), mine.cut),
                                target("copy", std::span(unused).first(771), mine.everywhere)};
      const std::vector counted(targets.begin(), targets.begin() + (group.rank() == 0 ? 2 : 1));
      auto sum = optim::grad_squares(counted);
      all_reduce(group, sum.words());
      mine.norm = sum.norm();
      optim::scale_grad(targets, mine.norm, 1.0);
      return mine;
    });
    std::vector<float> clipped;
    for (const found& each : results) {
      norms.push_back(each.norm);
      clipped.insert(clipped.end(), each.cut.begin(), each.cut.end());
      BOOST_TEST(each.everywhere == results[0].everywhere);
    }
    static std::vector<float> of_one;
    if (world == 1) of_one = clipped;
    BOOST_TEST(clipped == of_one);
  }
  for (const double norm : norms) {
    BOOST_TEST(norm == norms[0]);
    BOOST_TEST(parx_test::is_root(squares, norm));
  }
}
