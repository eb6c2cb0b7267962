// Arrays of the program's own, with gradients that it computes itself, in every layout that they
// can have.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include <comm/jobs.hpp>
#include <parx/ddp/raw.hpp>
#include <parx/fsdp.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/ema.hpp>
#include <parx/optim/sgd.hpp>

namespace {

using parx::process_group;

// Linear regression: y = W x + b, W of 3 x 5, least squares. Sizes that no number of ranks divides.
constexpr std::size_t inputs = 5, outputs = 3, samples = 11;
constexpr double limit = 0.5, rate = 0.25, momentum = 0.5;

double x_of(std::size_t sample, std::size_t i) {
  return std::sin(static_cast<double>(3 * sample + 7 * i) + 1);
}
double y_of(std::size_t sample, std::size_t o) {
  return std::cos(static_cast<double>(5 * sample + 2 * o));
}

struct arrays {
  std::vector<double> weight = std::vector<double>(outputs * inputs, 0.125);
  std::vector<double> bias = std::vector<double>(outputs, -0.25);
};

/// Adds the gradients of the sum over samples [begin, end), in a step of its own order.
void add_gradients(const arrays& at, std::size_t begin, std::size_t end, std::span<double> weight,
                   std::span<double> bias) {
  for (std::size_t s = begin; s < end; ++s) {
    for (std::size_t o = 0; o < outputs; ++o) {
      double error = at.bias[o] - y_of(s, o);
      for (std::size_t i = 0; i < inputs; ++i) error += at.weight[o * inputs + i] * x_of(s, i);
      bias[o] += 2 * error;
      for (std::size_t i = 0; i < inputs; ++i) weight[o * inputs + i] += 2 * error * x_of(s, i);
    }
  }
}

struct course {
  std::vector<double> norms;
  arrays end;
};

/// The same by plain loops: the mean, its norm, the clipped step with momentum.
course reference(int steps) {
  course all;
  arrays velocity{std::vector<double>(outputs * inputs), std::vector<double>(outputs)};
  for (int step = 0; step < steps; ++step) {
    arrays mean{std::vector<double>(outputs * inputs), std::vector<double>(outputs)};
    add_gradients(all.end, 0, samples, mean.weight, mean.bias);
    double squares = 0;
    for (auto* each : {&mean.weight, &mean.bias}) {
      for (double& x : *each) {
        x /= samples;
        squares += x * x;
      }
    }
    all.norms.push_back(std::sqrt(squares));
    const double factor = std::min(1.0, limit / (std::sqrt(squares) + 1e-6));
    const auto update = [&](std::vector<double>& value, std::vector<double>& speed,
                            const std::vector<double>& gradient) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        speed[i] = momentum * speed[i] + factor * gradient[i];
        value[i] -= rate * speed[i];
      }
    };
    update(all.end.weight, velocity.weight, mean.weight);
    update(all.end.bias, velocity.bias, mean.bias);
  }
  return all;
}

bool are_near(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1e-12) return false;
  }
  return a.size() == b.size();
}
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// A raw_module of arrays, with passes over this rank's samples.
struct regression {
  arrays values;
  parx::raw_module<double> net;
  std::size_t weight = net.add("weight", values.weight, {outputs, inputs});
  std::size_t bias = net.add("bias", values.bias);

  void pass(std::size_t begin, std::size_t end, bool adds = false) {
    auto running = net.begin_backward(static_cast<double>(end - begin));
    const auto of_weight = net.grad(weight), of_bias = net.grad(bias);
    if (!adds) std::fill(of_weight.begin(), of_weight.end(), 0);
    if (!adds) std::fill(of_bias.begin(), of_bias.end(), 0);
    add_gradients(values, begin, end, of_weight, of_bias);
    running.ready(bias);
    running.ready(weight);
    running.end();
  }
};
std::size_t begin_of(const process_group& group, int rank) {
  return parx::chunk_begin(samples, group.size(), rank);
}

std::vector<std::string> failures_of(int ranks, const std::function<void(process_group&)>& body) {
  return jobs::run_collecting(jobs::kind::inproc, ranks, body);
}
void expect_all(int ranks, const std::function<void(process_group&)>& body,
                const std::string& said = "") {
  for (const std::string& each : failures_of(ranks, body)) {
    if (said.empty()) BOOST_TEST(each == "", ranks << " ranks: " << each);
    else
      BOOST_TEST(each.find(said) != std::string::npos,
                 "\"" << each << "\" has no \"" << said << '"');
  }
}

const char* const layouts[] = {"ddp", "zero=1", "zero=2"};

}  // namespace

BOOST_AUTO_TEST_CASE(arrays_train_as_in_one_process_in_every_layout_that_they_can_have) {
  constexpr int steps = 4;
  const course expected = reference(steps);
  BOOST_TEST(expected.norms[0] > limit);  // so that clipping does something
  for (const int ranks : {1, 2, 3}) {
    expect_all(ranks, [&](process_group& world) {
      std::vector<std::uint64_t> hashes;
      for (const char* const layout : layouts) {
        regression mine;
        if (world.rank() > 0) mine.values.weight.assign(outputs * inputs, 9);  // rank 0's count
        parx::parallel model{mine.net, world, parx::layout::parse(layout)};
        expect(mine.values.weight[3] == 0.125, "the arrays are not rank 0's");
        parx::optim::sgd opt{model.parameters(), {.lr = rate, .momentum = momentum}};
        for (int step = 0; step < steps; ++step) {
          mine.pass(begin_of(world, world.rank()), begin_of(world, world.rank() + 1));
          const double norm = parx::optim::clip_grad_norm(opt.targets(), limit);
          expect(std::abs(norm - expected.norms[static_cast<std::size_t>(step)]) < 1e-12, "norm");
          opt.step();
        }
        expect(are_near(mine.values.weight, expected.end.weight), layout + std::string(": weight"));
        expect(are_near(mine.values.bias, expected.end.bias), layout + std::string(": bias"));
        expect(model.replicas_equal(), "replicas differ");
        hashes.push_back(model.values_hash());
        expect(parx::explain(model).find("parameters") != std::string::npos, "explain");
      }
      expect(hashes[0] == hashes[1] && hashes[1] == hashes[2], "layouts differ in bits");
    });
  }
}

BOOST_AUTO_TEST_CASE(with_zero_a_rank_has_state_and_gradients_of_its_part_alone) {
  for (const char* const layout : {"zero=1", "zero=2"}) {
    expect_all(2, [&](process_group& world) {
      regression mine;
      parx::parallel model{mine.net, world, parx::layout::parse(layout)};
      std::size_t here = 0;
      for (const auto& each : model.parameters()) here += each.size();
      expect(here < outputs * inputs + outputs, "this rank has all");
      const auto* const first = model.parameters().front().value().data();
      expect(first >= mine.values.weight.data() && first <= &mine.values.weight.back() + 1,
             "the part is not in the array");
    });
  }
}

BOOST_AUTO_TEST_CASE(passes_under_no_sync_add_up_in_every_layout) {
  const course expected = reference(1);
  for (const char* const layout : layouts) {
    expect_all(2, [&](process_group& world) {
      regression mine;
      parx::parallel model{mine.net, world, parx::layout::parse(layout)};
      parx::optim::sgd opt{model.parameters(), {.lr = rate}};
      const std::size_t begin = begin_of(world, world.rank()),
                        end = begin_of(world, world.rank() + 1);
      {
        const auto adding = model.no_sync();
        mine.pass(begin, begin + 2);
      }
      mine.pass(begin + 2, end, true);
      const double norm = parx::optim::clip_grad_norm(opt.targets(), limit);
      expect(std::abs(norm - expected.norms[0]) < 1e-12, parx::to_string(model.layout()));
      opt.step();
      expect(are_near(mine.values.weight, expected.end.weight), "weight");
    });
  }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_in_another_layout_with_other_ranks) {
  const course expected = reference(5);
  const auto folder = std::filesystem::temp_directory_path() / "parx_raw_test";
  const std::string file = (folder / "arrays.safetensors").string();
  const auto steps = [](process_group& world, const char* layout, int count, auto before,
                        auto after) {
    regression mine;
    parx::parallel model{mine.net, world, parx::layout::parse(layout)};
    parx::optim::sgd opt{model.parameters(), {.lr = rate, .momentum = momentum}};
    before(model, opt, mine);
    for (int step = 0; step < count; ++step) {
      mine.pass(begin_of(world, world.rank()), begin_of(world, world.rank() + 1));
      parx::optim::clip_grad_norm(opt.targets(), limit);
      opt.step();
    }
    after(model, opt, mine);
  };
  const auto nothing = [](auto&, auto&, auto&) {};
  for (const char* const to : {"ddp", "zero=1"}) {
    const char* const from = to == std::string("ddp") ? "zero=2" : "ddp";
    std::filesystem::remove_all(folder);
    expect_all(3, [&](process_group& world) {
      steps(world, from, 3, nothing, [&](auto& model, auto& opt, auto&) {
        parx::save(model, opt, (folder / "state").string());
        parx::save(model, file);
      });
    });
    expect_all(2, [&](process_group& world) {
      steps(
          world, to, 2,
          [&](auto& model, auto& opt, auto&) { parx::load(model, opt, folder / "state"); },
          [&](auto&, auto&, auto& mine) {
            expect(are_near(mine.values.weight, expected.end.weight), "weight");
            expect(are_near(mine.values.bias, expected.end.bias), "bias");
          });
      const arrays saved = reference(3).end;
      steps(
          world, to, 0, [&](auto& model, auto&, auto&) { parx::load(model, file); },
          [&](auto&, auto&, auto& mine) {
            expect(are_near(mine.values.weight, saved.weight), "the array is not complete");
          });
    });
  }
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(arrays_keep_their_values_when_the_wrapper_ends_and_get_another_one) {
  const course expected = reference(3);
  expect_all(3, [&](process_group& world) {
    regression mine;
    for (const char* const layout : {"zero=2", "ddp", "zero=1"}) {
      const auto* const memory = mine.values.weight.data();
      parx::parallel model{mine.net, world, parx::layout::parse(layout)};
      parx::optim::sgd opt{model.parameters(), {.lr = rate}};
      mine.pass(begin_of(world, world.rank()), begin_of(world, world.rank() + 1));
      parx::optim::clip_grad_norm(opt.targets(), limit);
      opt.step();
      expect(mine.values.weight.data() == memory, "moved");
    }
    // Without momentum the first step alone is that of the reference.
    expect(mine.values.weight[0] != 0.125, "no step");
    regression alone;
    parx::optim::sgd opt{alone.net.parameters(), {.lr = rate}};
    for (int step = 0; step < 3; ++step) {
      alone.pass(0, samples);
      parx::optim::clip_grad_norm(opt.targets(), limit);
      opt.step();
    }
    expect(are_near(mine.values.weight, alone.values.weight), "weight");
    expect(are_near(mine.values.bias, alone.values.bias), "bias");
  });
}

BOOST_AUTO_TEST_CASE(an_average_that_is_swapped_in_is_whole_in_the_arrays) {
  expect_all(2, [](process_group& world) {
    regression mine;
    parx::parallel model{mine.net, world, parx::layout::parse("zero=1")};
    parx::optim::sgd opt{model.parameters(), {.lr = rate}};
    parx::optim::ema average{model.parameters(),
                             {.decay = 1, .warmup = parx::optim::decay_warmup::off}};
    mine.pass(begin_of(world, world.rank()), begin_of(world, world.rank() + 1));
    opt.step();
    const arrays trained = mine.values;
    {
      const auto swapped = average.swap();
      expect(mine.values.weight == arrays().weight, "not those of the start");
    }
    expect(mine.values.weight == trained.weight && trained.weight != arrays().weight, "not back");
  });
}

BOOST_AUTO_TEST_CASE(eigen_matrices_train_in_every_layout_that_they_can_have) {
  for (const int ranks : {1, 2, 3}) {
    expect_all(ranks, [&](process_group& world) {
      std::vector<Eigen::MatrixXf> ends;
      for (const char* const layout : layouts) {
        Eigen::MatrixXf weight = Eigen::MatrixXf::Constant(2, 3, 1);
        parx::raw_module<float> net;
        const auto w = net.add("weight", weight, {weight.cols(), weight.rows()});
        parx::parallel model{net, world, parx::layout::parse(layout)};
        parx::optim::sgd opt{model.parameters(), {.lr = 0.5f}};
        const Eigen::MatrixXf x = Eigen::MatrixXf::Constant(3, world.rank() + 1, 2);
        for (int step = 0; step < 2; ++step) {
          auto pass = net.begin_backward(static_cast<double>(x.cols()));
          Eigen::Map<Eigen::MatrixXf>(net.grad(w).data(), 2, 3) =
              Eigen::MatrixXf::Ones(2, x.cols()) * x.transpose();
          pass.ready(w);
          pass.end();
          opt.step();
        }
        ends.push_back(weight);
      }
      // The mean gradient is 2 everywhere: 1 - 2 steps * 0.5 * 2.
      for (const auto& each : ends) expect(each == Eigen::MatrixXf::Constant(2, 3, -1), "end");
    });
  }
}

BOOST_AUTO_TEST_CASE(a_layout_that_arrays_cannot_have_is_one_sentence) {
  for (const char* const layout : {"zero=3", "hybrid", "pp=2", "tp=2"}) {
    expect_all(
        2,
        [&](process_group& world) {
          regression mine;
          parx::parallel model{mine.net, world, parx::layout::parse(layout)};
        },
        "the values of a raw_module stay whole in your memory");
  }
  for (const char* const layout : {"microbatches=2", "ddp,replicas=4"}) {
    expect_all(
        2,
        [&](process_group& world) {
          regression mine;
          parx::parallel model{mine.net, world, parx::layout::parse(layout)};
        },
        "The passes of a raw_module are your own");
  }
  expect_all(
      2,
      [](process_group& world) {
        regression mine;
        parx::fsdp sharded{mine.net, world};
      },
      "take .stage = 1");
}
