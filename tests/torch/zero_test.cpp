// torch_zero against one process that steps over whole parameters, and in misuse.
#include <parx/torch/zero.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <torch/models.hpp>

namespace {

using parameter_groups = std::vector<torch::optim::OptimizerParamGroup>;
using made_optimizer = std::unique_ptr<torch::optim::Optimizer>;

// A tied table, a frozen layer, one parameter of fewer elements than ranks, weights whose memory is
// not row-major, and a last layer in double.
struct mixed : nn::Module {
  explicit mixed(torch::Dtype type) {
    in = register_module("in", nn::Linear(6, 5));
    frozen = register_module("frozen", nn::Linear(5, 5));
    for (auto& p : frozen->parameters()) p.requires_grad_(false);
    gain = register_parameter("gain", torch::ones({1}));
    unused = register_parameter("unused", torch::ones({3}));
    out = register_module("out", nn::Linear(6, 4));
    to(type);
    out->to(torch::kDouble);
    fill(*this);
    out->weight.set_data(out->weight.detach().t().contiguous().t());
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = torch::matmul(torch::tanh(frozen(in(x))) * gain, in->weight);
    return out(h.to(torch::kDouble));
  }
  nn::Linear in{nullptr}, frozen{nullptr}, out{nullptr};
  Tensor gain, unused;
};

const std::map<std::string, std::function<made_optimizer(const parameter_groups&)>> optimizers{
    {"SGD",
     [](const parameter_groups& p) -> made_optimizer {
       return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.1).momentum(0.9));
     }},
    {"Adam",
     [](const parameter_groups& p) -> made_optimizer {
       return std::make_unique<torch::optim::Adam>(p,
                                                   torch::optim::AdamOptions(0.02).amsgrad(true));
     }},
    {"AdamW",
     [](const parameter_groups& p) -> made_optimizer {
       return std::make_unique<torch::optim::AdamW>(p, torch::optim::AdamWOptions(0.02));
     }},
    {"Adagrad",
     [](const parameter_groups& p) -> made_optimizer {
       return std::make_unique<torch::optim::Adagrad>(p, torch::optim::AdagradOptions(0.02));
     }},
    {"RMSprop", [](const parameter_groups& p) -> made_optimizer {
       return std::make_unique<torch::optim::RMSprop>(
           p, torch::optim::RMSpropOptions(0.01).momentum(0.5));
     }}};

// Of the layer `in` with the optimizer's options, and of the rest with others.
made_optimizer make(const std::string& name, mixed& model,
                    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& part) {
  const auto first = part(model.in->parameters());
  auto options = optimizers.at(name)({first})->defaults().clone();
  options->set_lr(0.05);
  const auto rest = part({model.gain, model.unused, model.out->weight, model.out->bias});
  return optimizers.at(name)({{first}, {rest, std::move(options)}});
}
made_optimizer make(const std::string& name, mixed& model) {
  return make(name, model, [](const std::vector<Tensor>& all) { return all; });
}
made_optimizer make_of_parts(const std::string& name, mixed& model, parx::torch_zero<mixed>& zero) {
  return make(name, model, [&](const std::vector<Tensor>& all) { return zero.parameters(all); });
}

// Steps first, first + 1, ... last - 1 of one process, on 12 samples each.
void train_whole(mixed& model, torch::optim::Optimizer& optimizer, torch::Dtype type, int first,
                 int last, double max_norm = 0) {
  for (int step = first; step < last; ++step) {
    model.forward(samples(step * 12, 12, type)).pow(2).mean().backward();
    if (max_norm > 0) torch::nn::utils::clip_grad_norm_(model.parameters(), max_norm);
    optimizer.step();
    optimizer.zero_grad();
  }
}
// The same on ranks, the last of which has the fewest samples.
void train_parts(mixed& model, parx::torch_zero<mixed>& zero, torch::optim::Optimizer& optimizer,
                 torch::Dtype type, int first, int last, double max_norm = 0) {
  const int world = zero.group().size(), rank = zero.group().rank();
  const std::int64_t each = world == 1 ? 12 : 10 / (world - 1);
  const std::int64_t begin = rank * each, count = rank == world - 1 ? 12 - begin : each;
  for (int step = first; step < last; ++step) {
    const Tensor loss = model.forward(samples(step * 12 + begin, count, type)).pow(2).mean();
    zero.backward(loss, static_cast<double>(count));
    if (max_norm > 0) zero.clip_grad_norm(max_norm);
    zero.step(optimizer);
    if (step % 2 == 0) optimizer.zero_grad();
    else model.zero_grad();
  }
}

parx::torch_zero_options small_buckets(int stage) {
  return {.stage = stage, .buckets = {.first_bytes = 64, .bytes = 256}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(zero_takes_the_steps_of_one_process) {
  const std::map<torch::Dtype, double> tolerances{{torch::kDouble, 1e-14}, {torch::kFloat, 1e-6}};
  const auto compare = [&](const std::string& name, torch::Dtype type, double max_norm,
                           jobs::kind network, const std::vector<int>& stages) {
    mixed whole(type);
    const made_optimizer optimizer = make(name, whole);
    train_whole(whole, *optimizer, type, 0, 4, max_norm);
    for (const int world : {1, 2, 3}) {
      for (const int stage : stages) {
        const auto all = on_ranks_over(network, world, [&](parx::process_group& group) {
          mixed model(type);
          parx::torch_zero zero{model, group, small_buckets(stage)};
          const made_optimizer of_parts = make_of_parts(name, model, zero);
          train_parts(model, zero, *of_parts, type, 0, 4, max_norm);
          std::int64_t stepped = 0;
          for (const Tensor& part : zero.parameters()) stepped += part.numel();
          expect(world == 1 || stepped < 60, "a rank has a part: " + std::to_string(stepped));
          return values_of(model);
        });
        for (const auto& one : all) {
          BOOST_TEST(one == all.front(), "other bits: " << name << ", world " << world);
          const double off = difference(one, values_of(whole));
          BOOST_TEST(off <= tolerances.at(type), name << ", stage " << stage << ", world " << world
                                                      << ", norm " << max_norm << ": " << off);
        }
      }
    }
  };
  for (const auto type : {torch::kDouble, torch::kFloat}) {
    for (const auto& [name, unused] : optimizers) {
      compare(name, type, type == torch::kFloat ? 0.05 : 0, jobs::kind::inproc, {1, 2, 3});
    }
  }
  compare("AdamW", torch::kDouble, 0.05, jobs::kind::tcp, {1, 2});
  compare("AdamW", torch::kDouble, 0.05, jobs::kind::shm, {3});
  for (const auto& said : on_ranks_over(jobs::kind::tcp, 2, [](parx::process_group& group) {
         mixed model(torch::kFloat);
         return message_of([&] { parx::torch_zero zero{model, group, {.stage = 3}}; });
       })) {
    BOOST_TEST(said.find("is for ranks that share memory") != std::string::npos, said);
  }
}

// Two passes a step: with sums in both; with sums in the last; and in the first step gradients stay
// after it, and are added to.
BOOST_AUTO_TEST_CASE(zero_adds_passes_up_as_one_process_does) {
  const auto loss_of = [](mixed& model, int step, int pass, int rank) {
    const Tensor x = samples(8 * step + 4 * pass + 2 * rank, 2, torch::kDouble);
    return model.forward(x).pow(2).mean();
  };
  mixed whole(torch::kDouble);
  const made_optimizer optimizer = make("SGD", whole);
  for (int step = 0; step < 3; ++step) {
    Tensor sum = torch::zeros({}, torch::kDouble);
    for (const int pass : {0, 1})
      for (const int rank : {0, 1}) sum = sum + loss_of(whole, step, pass, rank);
    (sum / (step == 1 ? 4 : 2)).backward();
    optimizer->step();
    if (step == 1) optimizer->zero_grad();
  }
  for (const int stage : {1, 2, 3}) {
    const auto all = on_ranks(2, [&](parx::process_group& group) {
      mixed model(torch::kDouble);
      parx::torch_zero zero{model, group, small_buckets(stage)};
      const made_optimizer of_parts = make_of_parts("SGD", model, zero);
      const std::vector<std::function<void()>> drops{
          [&] { model.zero_grad(); }, [&] { zero.zero_grad(); }, [&] { of_parts->zero_grad(); }};
      for (const auto& drop : drops) {
        loss_of(model, 7, 0, group.rank()).backward();
        drop();
      }
      for (int step = 0; step < 3; ++step) {
        if (step == 1) {
          const auto local = zero.no_sync();
          loss_of(model, step, 0, group.rank()).backward();
        } else {
          loss_of(model, step, 0, group.rank()).backward();
        }
        loss_of(model, step, 1, group.rank()).backward();
        zero.step(*of_parts);
        if (step == 1) model.zero_grad();
      }
      return values_of(model);
    });
    for (const auto& one : all) {
      BOOST_TEST(difference(one, values_of(whole)) <= 1e-14,
                 "stage " << stage << ": " << difference(one, values_of(whole)));
    }
  }
}

BOOST_AUTO_TEST_CASE(training_goes_on_from_files_on_any_number_of_ranks) {
  char made[] = "/tmp/parx_torch_XXXXXX";
  BOOST_REQUIRE(::mkdtemp(made) != nullptr);
  const std::filesystem::path folder = made;
  const std::string values = folder / "model.safetensors", state = folder / "optimizer.pt";
  for (const std::string name : {"SGD", "Adam", "Adagrad"}) {
    mixed whole(torch::kDouble);
    const made_optimizer optimizer = make(name, whole);
    train_whole(whole, *optimizer, torch::kDouble, 0, 2);
    if (name == "Adagrad") {  // from one process
      parx::save_torch(whole, values);
      torch::save(*optimizer, state);
    } else {
      on_ranks(2, [&](parx::process_group& group) {
        mixed model(torch::kDouble);
        parx::torch_zero zero{model, group, small_buckets(2)};
        const made_optimizer of_parts = make_of_parts(name, model, zero);
        train_parts(model, zero, *of_parts, torch::kDouble, 0, 2);
        if (group.rank() == 0) parx::save_torch(model, values);
        zero.save_optimizer(*of_parts, state);
        return 0;
      });
    }
    train_whole(whole, *optimizer, torch::kDouble, 2, 4);
    for (const int stage : {1, 2, 3}) {
      const auto all = on_ranks(3, [&](parx::process_group& group) {
        mixed model(torch::kDouble);
        {
          const torch::NoGradGuard guard;
          model.gain.fill_(5);
        }
        parx::torch_zero zero{model, group, small_buckets(stage)};
        zero.load(values);
        const made_optimizer of_parts = make_of_parts(name, model, zero);
        zero.load_optimizer(*of_parts, state);
        train_parts(model, zero, *of_parts, torch::kDouble, 2, 4);
        return values_of(model);
      });
      for (const auto& one : all) BOOST_TEST(difference(one, values_of(whole)) <= 1e-14, name);
    }
    mixed alone(torch::kDouble);  // and without parx
    parx::load_torch(alone, values);
    const made_optimizer of_whole = make(name, alone);
    torch::load(*of_whole, state);
    train_whole(alone, *of_whole, torch::kDouble, 2, 4);
    BOOST_TEST(difference(values_of(alone), values_of(whole)) <= 1e-14, name);
  }
  mixed other(torch::kDouble);
  torch::optim::SGD few(other.in->parameters(), 0.1);
  torch::save(few, state);
  const auto all = on_ranks(2, [&](parx::process_group& group) {
    mixed model(torch::kDouble);
    parx::torch_zero zero{model, group};
    const made_optimizer of_parts = make_of_parts("SGD", model, zero);
    return message_of([&] { zero.load_optimizer(*of_parts, state); });
  });
  says(all, "is of 1 groups of parameters, and the optimizer has 2");
  std::filesystem::remove_all(folder);
  const auto without = on_ranks(2, [&](parx::process_group& group) {
    mixed model(torch::kDouble);
    parx::torch_zero zero{model, group};
    const made_optimizer of_parts = make_of_parts("SGD", model, zero);
    const std::string said = message_of([&] { zero.load_optimizer(*of_parts, state); });
    return said.find('\n') == std::string::npos ? said : "a stack trace: " + said;
  });
  says(without, "cannot read \"" + state);
}

BOOST_AUTO_TEST_CASE(misuse_of_zero_is_a_sentence) {
  using zero_of_mixed = parx::torch_zero<mixed>;
  const auto pass = [](mixed& m) {
    m.forward(samples(0, 2, torch::kDouble)).pow(2).mean().backward();
  };
  const std::map<std::string, std::function<void(mixed&, zero_of_mixed&)>> cases{
      {"make it of zero.parameters()",
       [&](mixed& m, zero_of_mixed& zero) {
         torch::optim::SGD optimizer(m.parameters(), 0.1);
         pass(m);
         zero.step(optimizer);
       }},
      {"Call zero.step(optimizer), not optimizer.step()",
       [&](mixed& m, zero_of_mixed& zero) {
         torch::optim::SGD optimizer(zero.parameters(), 0.1);
         pass(m);
         optimizer.step();
         pass(m);
       }},
      {"with an optimizer of zero.parameters()",
       [&](mixed& m, zero_of_mixed&) {
         torch::optim::SGD optimizer(m.in->parameters(), 0.1);
         pass(m);
         optimizer.step();
         optimizer.zero_grad();
         pass(m);
       }},
      {"load by zero.load(path)",
       [&](mixed& m, zero_of_mixed& zero) {
         {
           const torch::NoGradGuard guard;
           for (auto& p : m.parameters()) p.fill_(1);
         }
         zero(samples(0, 2, torch::kDouble));
       }},
      {"was given other memory",
       [&](mixed& m, zero_of_mixed&) {
         m.out->bias.set_data(torch::ones({4}, torch::kDouble));
         pass(m);
       }},
      {"was converted",
       [&](mixed& m, zero_of_mixed& zero) {
         m.to(torch::kFloat);
         zero(samples(0, 2, torch::kFloat));
       }},
      {"under no_sync()",
       [&](mixed& m, zero_of_mixed& zero) {
         torch::optim::SGD optimizer(zero.parameters(), 0.1);
         const auto local = zero.no_sync();
         pass(m);
         zero.step(optimizer);
       }},
      {"LBFGS needs the whole gradient",
       [&](mixed&, zero_of_mixed& zero) {
         torch::optim::LBFGS optimizer(zero.parameters(), 0.1);
         zero.step(optimizer);
       }},
      {"none of the model's parameters",
       [&](mixed&, zero_of_mixed& zero) {
         static_cast<void>(zero.parameters({torch::ones({2}).requires_grad_()}));
       }},
      {"belongs to another wrapper",
       [&](mixed& m, zero_of_mixed& zero) {
         zero_of_mixed second{m, zero.group()};
       }},
  };
  for (const auto& [words, act] : cases) {
    const auto all = on_ranks(2, [&act = act](parx::process_group& group) {
      mixed model(torch::kDouble);
      zero_of_mixed zero{model, group};
      return message_of([&] { act(model, zero); });
    });
    says(all, words);
  }
  const auto stages = on_ranks(2, [](parx::process_group& group) {
    mixed model(torch::kDouble);
    return message_of([&] { zero_of_mixed zero{model, group, {.stage = 4}}; });
  });
  says(stages, "not 4");
  const auto models = on_ranks(2, [](parx::process_group& group) {
    nn::Module model;
    model.register_parameter("w", torch::ones({2 + group.rank()}));
    return message_of([&] { parx::torch_zero zero{model, group}; });
  });
  says(models, "+ rank 1: w [3] Float");
}

BOOST_AUTO_TEST_CASE(a_model_has_all_values_after_its_zero_wrapper) {
  const auto all = on_ranks(3, [](parx::process_group& group) {
    std::vector<double> found;
    for (const int stage : {1, 2, 3}) {
      mixed model(torch::kFloat);
      made_optimizer outlives;
      {
        parx::torch_zero zero{model, group, small_buckets(stage)};
        outlives = make_of_parts("SGD", model, zero);
        train_parts(model, zero, *outlives, torch::kFloat, 0, 2);
        found = values_of(model);
      }
      expect(values_of(model) == found, "the values stay");
      outlives->step();
      expect(values_of(model) == found, "an optimizer of the parts changes nothing any more");
      model.forward(samples(0, 2, torch::kFloat)).sum().backward();
      expect(model.gain.grad().item<float>() != 0, "a local pass");
      parx::torch_ddp again{model, group};
    }
    return found;
  });
  for (const auto& one : all) BOOST_TEST(one == all.front());
}
