// Which models are replicas of one: what a ddp refuses when it is made.
#include <parx/ddp/layout.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/ddp.hpp>
#include <parx/nn.hpp>

BOOST_AUTO_TEST_CASE(a_model_without_layers_is_refused) {
  struct empty : parx::nn::module<empty> {};
  parx::run_threads(1, [&](parx::process_group& group) {
    empty m;
    BOOST_CHECK_EXCEPTION(
        (parx::ddp{m, group}), parx::usage_error, [](const parx::usage_error& refused) {
          return std::string(refused.what()).find("Does its members() name its layers?") !=
                 std::string::npos;
        });
  });
}

BOOST_AUTO_TEST_CASE(different_models_are_refused_on_every_rank_with_the_difference) {
  std::vector<std::string> texts(3);
  parx::run_threads(3, [&](parx::process_group& group) {
    parx::nn::sequential m{parx::nn::linear<>{4, group.rank() == 2 ? 7u : 8u}};
    try {
      parx::ddp ddp{m, group};
    } catch (const parx::error& refused) {
      texts[static_cast<std::size_t>(group.rank())] = refused.what();
    }
  });
  for (const auto& text : texts) {
    BOOST_TEST(text.find("model of rank 2 differs") != std::string::npos, text);
    BOOST_TEST(text.find("0.weight [8, 4] float32") != std::string::npos, text);
    BOOST_TEST(text.find("0.weight [7, 4] float32") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_hold_different_parts_of_one_parameter_are_no_replicas) {
  // A wrong mesh: of equal shape, these parts must not be summed.
  const auto texts = on_ranks(2, [](parx::process_group& group) {
    parx::nn::linear layer{4, 6};
    layer.for_each_parameter([&](const std::string&, auto& p) {
      p.keep_part(p.spec().chunk(0, group.rank(), 2));
    });
    try {
      parx::ddp ddp{layer, group};
    } catch (const parx::error& reason) {
      return std::string(reason.what());
    }
    return std::string("accepted");
  });
  for (const std::string& text : texts) {
    BOOST_TEST(text.find("- rank 0: weight rows 0-2 of [6, 4] float32") != std::string::npos, text);
    BOOST_TEST(text.find("+ rank 1: weight rows 3-5 of [6, 4] float32") != std::string::npos, text);
  }
}
