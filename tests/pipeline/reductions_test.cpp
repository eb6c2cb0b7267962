// When the sums over the data-parallel ranks begin: behind a stage's last backward, or where the
// table says.
#include <parx/pipeline.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <messages.hpp>
#include <pipeline/scale.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/amp/grad_scaler.hpp>
#include <parx/autograd/function.hpp>
#include <parx/comm/threads.hpp>
#include <parx/fsdp.hpp>
#include <parx/mesh.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>

using namespace parx;

namespace {

using events = std::vector<std::string>;

/// Sums as without it, and notes when they begin.
struct noting_hook {
  static constexpr int rounds = 1;
  events* log;

  void start(hook_bucket& /*bucket*/) { log->push_back("sum"); }
  void proceed(hook_bucket& bucket, int /*round*/) {
    const buffer_view view = bucket.gradients;
    const std::span values(static_cast<float*>(view.data), view.count);
    all_reduce(bucket.group, values);
    for (float& each : values) each /= static_cast<float>(bucket.count);
  }
};

struct outcome {
  events log;
  std::vector<float> gradients;
};

/// Four stages of one layer on pp 2 x dp 2, looped; each replica has half of the samples.
std::vector<outcome> run(const std::string& csv, bool noting) {
  return on_ranks(4, [&](process_group& world) {
    mesh<"pp", "dp"> grid{world, {2, 2}};
    outcome found;
    nn::sequential model{scale{}, scale{}, scale{}, scale{}};
    auto blocks = model.blocks();
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks[b].forward = [inner = blocks[b].forward, b, &found](const auto& x, const auto& in) {
        const variable<float> y = inner(x, in);
        return differentiable(
            y.value(),
            [b, &found](const tensor<float>& upstream, grad_sink<float> dy) {
              found.log.push_back("B" + std::to_string(b));
              dy.add(upstream);
            },
            y);
      };
    }
    pipeline_options options{.microbatches = 2, .table = from_csv(csv),
                             .data_parallel = &grid["dp"]};
    if (noting) options.reductions.hook = noting_hook{&found.log};
    typed_pipeline pipe{model, blocks, grid["pp"], options};
    for (int step = 0; step < 2; ++step) {
      found.log.clear();
      pipe.zero_grad();
      pipe.step(split_rows(numbers(8), 2)[static_cast<std::size_t>(grid.rank("dp"))], squares);
    }
    for (const auto& p : pipe.parameters()) {
      found.gradients.insert(found.gradients.end(), p.grad().begin(), p.grad().end());
    }
    return found;
  });
}

const std::string forwards[] = {"0F0,0F1,2F0,2F1,", "1F0,1F1,3F0,3F1,"};

}  // namespace

BOOST_AUTO_TEST_CASE(the_sums_of_a_stage_begin_behind_its_own_last_backward) {
  const auto found = run(forwards[0] + "2B0,2B1,0B0,0B1\n" + forwards[1] + "3B0,3B1,1B0,1B1\n",
                         true);
  BOOST_TEST(found[0].log == (events{"B2", "B2", "sum", "B0", "B0", "sum"}),
             boost::test_tools::per_element());
  BOOST_TEST(found[3].log == (events{"B3", "B3", "sum", "B1", "B1", "sum"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(reduce_grad_in_the_table_is_where_the_sums_begin) {
  const auto found = run(forwards[0] + "2B0,2B1,0B0,2REDUCE_GRAD,0B1\n" + forwards[1] +
                             "3I0,3I1,1B0,1B1,3W0,3W1,1REDUCE_GRAD,3REDUCE_GRAD\n",
                         true);
  BOOST_TEST(found[0].log == (events{"B2", "B2", "B0", "sum", "B0", "sum"}),
             boost::test_tools::per_element());
  const events& last = found[3].log;
  BOOST_TEST_REQUIRE(last.size() >= 2U);
  BOOST_TEST(last[last.size() - 1] == "sum");
  BOOST_TEST(last[last.size() - 2] == "sum");
}

BOOST_AUTO_TEST_CASE(wherever_the_sums_begin_they_are_the_same) {
  // Of the mean over 8 samples of 2 numbers, by hand: y = 16 x, d/dw_k = 2 (16 x - t) 8 x / 16.
  const samples all = numbers(8);
  float expected[2] = {0, 0};
  for (std::size_t i = 0; i < 16; ++i) {
    const float x = all.x.data()[i];
    expected[i % 2] += 2 * (16 * x - all.y.data()[i]) * 8 * x / 16;
  }
  for (const char* const backwards :
       {"2B0,2B1,0B0,0B1", "2B0,2B1,2REDUCE_GRAD,0B0,0B1,0REDUCE_GRAD",
        "2B0,2B1,0B0,0B1,0REDUCE_GRAD,2REDUCE_GRAD"}) {
    for (const bool noting : {false, true}) {
      for (const outcome& each :
           run(forwards[0] + backwards + "\n" + forwards[1] + "3I0,3I1,3W0,3W1,1I0,1W0,1B1\n",
               noting)) {
        BOOST_TEST(each.gradients ==
                       (std::vector<float>{expected[0], expected[1], expected[0], expected[1]}),
                   boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_stage_refuses_what_a_ddp_refuses) {
  const auto told = on_ranks(4, [](process_group& world) {
    mesh<"pp", "dp"> grid{world, {2, 2}};
    nn::sequential model{scale{}, scale{}, scale{}, scale{}};
    typed_pipeline pipe{model, grid["pp"], {.microbatches = 2, .data_parallel = &grid["dp"]}};
    optim::sgd opt{pipe.parameters(), {.lr = 0.1F}};
    const samples mine = split_rows(numbers(8), 2)[static_cast<std::size_t>(grid.rank("dp"))];
    std::vector<std::string> said;
    {
      const auto guard = pipe.no_sync();
      pipe.step(mine, squares);
    }
    said.push_back(parx_test::message_of([&] { opt.step(); }));
    pipe.step(mine, squares);
    opt.step();
    if (world.rank() == 3) pipe.parameters()[1].freeze();  // of stage 1 in the second replica
    said.push_back(parx_test::message_of([&] { pipe.step(mine, squares); }));
    return said;
  });
  for (const auto& said : told)
    BOOST_TEST(parx_test::mentions(said[0], "usage: ", "under no_sync()"), said[0]);
  for (const std::size_t rank : {2U, 3U}) {
    BOOST_TEST(parx_test::mentions(told[rank][1], "\"3.weight\" is frozen on rank 1 of 2"),
               told[rank][1]);
  }
}

BOOST_AUTO_TEST_CASE(a_wrapped_model_that_is_moved_is_refused_with_the_line_of_its_wrapper) {
  using mlp = nn::sequential<nn::linear<float>, nn::linear<float>>;
  // wrap(model, group) returns the wrapper, or what holds it.
  const auto moved = [](auto wrap) {
    return on_ranks(2, [&](process_group& group) -> std::string {
      std::vector<mlp> models;
      models.push_back(mlp{nn::linear{4, 4}, nn::linear{4, 4}});
      models.reserve(1);
      std::string said = "nothing";
      {
        const auto wrapper = wrap(models[0], group);
        try {
          models.push_back(mlp{nn::linear{4, 4}, nn::linear{4, 4}});
          models.push_back(mlp{nn::linear{4, 4}, nn::linear{4, 4}});
          models.push_back(mlp{nn::linear{4, 4}, nn::linear{4, 4}});
        } catch (const usage_error& refused) {
          said = refused.what();
        }
      }
      models.push_back(mlp{nn::linear{4, 4}, nn::linear{4, 4}});  // free to move again
      return said;
    });
  };
  const auto expect = [](const std::vector<std::string>& all, const std::string& wrapper) {
    for (const std::string& each : all) {
      BOOST_TEST(each.find("the model of " + wrapper + " at reductions_test.cpp:") !=
                     std::string::npos, each);
    }
  };
  expect(moved([](mlp& model, process_group& group) {
           return std::make_unique<ddp<mlp>>(model, group, ddp_options{}, call_site::current());
         }),
         "ddp");
  expect(moved([](mlp& model, process_group& group) {
           return std::make_unique<fsdp<mlp>>(model, group, fsdp_options{}, call_site::current());
         }),
         "fsdp");
  expect(moved([](mlp& model, process_group& group) {
           using piped = typed_pipeline<mlp, tensor<float>, float>;
           return std::make_unique<piped>(model, group, pipeline_options{}, call_site::current());
         }),
         "pipeline");
  expect(moved([](mlp& model, process_group& group) {
           return std::make_unique<parallel<mlp>>(
               model, group, layout{.tp = 2},
               parallel_choices{.tp = {{"0", tp::column}, {"1", tp::row}}}, call_site::current());
         }),
         "parallelize");
}

BOOST_AUTO_TEST_CASE(a_gradient_that_overflows_on_one_stage_skips_the_step_on_all) {
  // y = x * w0 * w1: of a scaled loss the gradient of w1 overflows, that of w0 does not.
  const auto found = on_ranks(2, [](process_group& group) {
    nn::sequential model{scale{}, scale{}};
    model.get<0>().weight().allocate().fill(1e6F);
    model.get<1>().weight().allocate().fill(1e-6F);
    typed_pipeline pipe{model, group, {.microbatches = 1}};
    optim::sgd opt{pipe.parameters(), {.lr = 0.1}};
    amp::grad_scaler scaler{{.init_scale = std::ldexp(1.0, 120)}};
    const samples one{tensor<float>::ones({1, 2}), tensor<float>::zeros({1, 2})};
    std::vector<bool> is_taken;
    while (is_taken.empty() || (!is_taken.back() && is_taken.size() < 40)) {
      pipe.step(one, [&](const variable<float>& y, const samples& b) {
        return scaler.scale(squares(y, b));
      });
      is_taken.push_back(scaler.step(opt));
      scaler.update();
    }
    return is_taken;
  });
  BOOST_TEST(found[0].size() > 2U);
  BOOST_TEST(found[0].back());
  BOOST_TEST((found[0] == found[1]));
}

BOOST_AUTO_TEST_CASE(the_buffers_of_a_stage_become_those_of_its_first_replica) {
  const auto found = on_ranks(4, [](process_group& world) {
    mesh<"pp", "dp"> grid{world, {2, 2}};
    nn::sequential model{scale{}, nn::batch_norm{2}};
    typed_pipeline pipe{model, grid["pp"], {.microbatches = 2, .data_parallel = &grid["dp"]}};
    pipe.step(split_rows(numbers(8), 2)[static_cast<std::size_t>(grid.rank("dp"))], squares);
    std::vector<std::vector<double>> seen(2);
    for (auto& values : seen) {
      pipe.module().for_each_buffer([&](const std::string&, auto& buffer) {
        for (const auto value : buffer.value().span()) {
          values.push_back(static_cast<double>(value));
        }
      });
      pipe.broadcast_buffers();
    }
    return seen;
  });
  BOOST_TEST(found[2][0].size() == 5U);  // means, variances and batches
  BOOST_TEST((found[2][0] != found[3][0]));
  BOOST_TEST((found[2][1] == found[2][0]));
  BOOST_TEST((found[3][1] == found[2][0]));
}
