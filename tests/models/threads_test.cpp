// Models train to the same bits with any number of threads: losses, gradients and parameters, in
// float and under autocast<bfloat16>, alone and where two ranks divide the work.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <comm/jobs.hpp>
#include <models/small_models.hpp>

#include <parx/autograd.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>
#include <parx/tensor_parallel.hpp>
#include <parx/tensor_parallel/plans.hpp>

namespace {

using namespace small_models;
namespace nn = parx::nn;

const auto language_model = [](auto& model, int rank, int step) {
  const auto ids = tokens(9, rank, step);
  return nn::cross_entropy(model(ids), ids);
};
const auto classifier = [](auto& model, int rank, int step) {
  return nn::cross_entropy(model(tokens(9, rank, step)), tensor<std::int64_t>::full({9}, rank));
};
const auto translator = [](auto& model, int rank, int step) {
  const auto target = tokens(5, rank, step + 1);
  const auto mask = tensor<std::uint8_t>::ones({5, length});
  return nn::cross_entropy(model(tokens(5, rank, step), mask, target), target);
};
const auto images = [](auto& model, int rank, int step) {
  return nn::cross_entropy(model(pictures(19, rank, step)), tensor<std::int64_t>::full({19}, rank));
};

/// PARX_TEST_STEPS for more.
int steps() {
  const char* const wanted = std::getenv("PARX_TEST_STEPS");
  return wanted != nullptr ? std::atoi(wanted) : 8;
}

/// A hash of all losses, and of all gradients and values of the last step.
struct outcome {
  std::uint64_t losses = 0, gradients = 0, values = 0;
  bool operator==(const outcome&) const = default;
};
template <typename T>
void mix(std::uint64_t& hash, const tensor<T>& values) {
  const auto all = values.contiguous();
  hash = hash * 31 + parx::detail::fnv1a({reinterpret_cast<const char*>(all.data()),
                                          all.size() * sizeof(T)});
}

template <typename Model, typename Loss>
outcome train_alone(Model model, Loss loss_of, bool rounds) {
  model.initialize(7);
  parx::optim::adamw opt{model.parameters(), {.lr = 1e-2F}};
  outcome found;
  for (int step = 0; step < steps(); ++step) {
    std::optional<parx::autocast<parx::bfloat16>> scope;
    if (rounds) scope.emplace();
    const auto loss = loss_of(model, 0, step);
    scope.reset();
    loss.backward();
    mix(found.losses, tensor<double>::full({1}, loss.mean()));
    found.gradients = 0;
    for (const auto& each : opt.targets()) mix(found.gradients, each.owner().grad());
    parx::optim::clip_grad_norm(opt.targets(), 1.0);
    opt.step();
  }
  for (const auto& each : opt.targets()) mix(found.values, each.owner().value());
  return found;
}

template <typename Make, typename Loss>
void check_alone(Make make, Loss loss_of) {
  for (const bool rounds : {false, true}) {
    parx::set_num_threads(1);
    const outcome alone = train_alone(make(), loss_of, rounds);
    for (const int threads : {2, 3, 8}) {
      parx::set_num_threads(threads);
      const outcome found = train_alone(make(), loss_of, rounds);
      const std::string what =
          fmt::format("{} threads, {}", threads, rounds ? "bfloat16" : "float");
      BOOST_TEST(found.losses == alone.losses, what << ": losses");
      BOOST_TEST(found.gradients == alone.gradients, what << ": gradients");
      BOOST_TEST(found.values == alone.values, what << ": values");
    }
    parx::set_num_threads(1);
  }
}

/// The values' hashes of both ranks, which train by step_of(group) -> hash.
template <typename Train>
void check_together(const std::string& what, Train train) {
  const auto by = [&](int threads) {
    parx::set_num_threads(threads);
    std::vector<std::uint64_t> found(2);
    const auto failures =
        jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
          found[static_cast<std::size_t>(group.rank())] = train(group);
        });
    for (const std::string& failure : failures) BOOST_TEST(failure == "", what << failure);
    parx::set_num_threads(1);
    return found;
  };
  const auto alone = by(1);
  for (const int threads : {2, 3}) BOOST_TEST(by(threads) == alone, what << ": " << threads);
}

template <typename Model, typename Wrapper, typename Loss>
std::uint64_t train_wrapped(Model& model, Wrapper& wrapper, int rank, Loss loss_of) {
  parx::optim::adamw opt{model.parameters(), {.lr = 1e-2F}};
  for (int step = 0; step < steps(); ++step) {
    loss_of(wrapper, rank, step).backward();
    opt.step();
  }
  std::uint64_t hash = 0;
  for (const auto& each : opt.targets()) mix(hash, each.owner().value());
  return hash;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpt_alone) { check_alone(make_gpt, language_model); }
BOOST_AUTO_TEST_CASE(a_llama_alone) { check_alone(make_llama, language_model); }
BOOST_AUTO_TEST_CASE(a_bert_alone) { check_alone(make_bert, classifier); }
BOOST_AUTO_TEST_CASE(an_encoder_and_decoder_alone) { check_alone(make_translator, translator); }
BOOST_AUTO_TEST_CASE(a_cnn_alone) { check_alone(make_cnn, images); }

// A row of a product has the same bits whatever the other rows are, and so have whole models: a
// text is continued alike alone and in a batch.
BOOST_AUTO_TEST_CASE(logits_of_a_batch_are_those_of_its_rows_alone) {
  const auto check = [](auto model, const char* what) {
    model.initialize(7);
    model.eval();
    const parx::no_grad guard;
    const auto batch = tokens(8, 0, 0);
    parx::set_num_threads(3);
    const tensor<float> together = model(batch).value().contiguous();
    parx::set_num_threads(1);
    for (std::size_t row = 0; row < 8; ++row) {
      const tensor<float> alone = model(batch.slice(0, row, row + 1).contiguous()).value();
      BOOST_TEST(std::memcmp(alone.contiguous().data(), together.data() + row * alone.size(),
                             alone.size() * sizeof(float)) == 0,
                 what << ", row " << row);
    }
  };
  check(make_gpt(), "gpt");
  check(make_llama(), "llama");
  check(make_bert(), "bert");
}

BOOST_AUTO_TEST_CASE(two_ranks_by_ddp) {
  check_together("ddp", [](parx::process_group& group) {
    auto model = make_cnn();
    model.initialize(7);
    parx::ddp ddp{model, group};
    return train_wrapped(model, ddp, group.rank(), images);
  });
}

BOOST_AUTO_TEST_CASE(two_ranks_by_fsdp) {
  check_together("fsdp", [](parx::process_group& group) {
    auto model = make_bert();
    model.initialize(7);
    parx::fsdp fsdp{model, group, {.units = parx::by_size(1 << 16)}};
    parx::optim::adamw opt{fsdp.parameters(), {.lr = 1e-2F}};
    for (int step = 0; step < steps(); ++step) {
      classifier(fsdp, group.rank(), step).backward();
      opt.step();
    }
    return fsdp.values_hash();
  });
}

BOOST_AUTO_TEST_CASE(two_ranks_by_tensor_parallelism) {
  check_together("tp", [](parx::process_group& group) {
    auto model = make_gpt();
    const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model));
    model.initialize(7);
    return train_wrapped(model, model, 0, [](auto& net, int rank, int step) {
      const auto ids = tokens(9, rank, step);
      return nn::cross_entropy(net(ids), ids);
    });
  });
}

BOOST_AUTO_TEST_CASE(two_ranks_by_a_pipeline) {
  check_together("pp", [](parx::process_group& group) {
    auto model = make_gpt();
    model.initialize(7);
    parx::parallel pipe{model, group, {.pp = 2, .microbatches = 3}};
    parx::optim::adamw opt{pipe.parameters(), {.lr = 1e-2F}};
    const auto loss_of = [](const parx::variable<float>& logits, const text& batch) {
      return nn::cross_entropy(logits, batch.labels);
    };
    for (int step = 0; step < steps(); ++step) {
      const auto ids = tokens(9, 0, step);
      (void)pipe.forward_backward(text{ids.cast<std::int32_t>(), ids}, loss_of);
      opt.step();
    }
    std::uint64_t hash = 0;
    for (const auto& each : opt.targets()) mix(hash, each.owner().value());
    return hash;
  });
}
