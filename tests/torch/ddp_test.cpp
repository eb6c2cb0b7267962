// torch_ddp against one process, against sums by hand, and in misuse.
#include <parx/torch.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddp/ranks.hpp>
#include <torch/models.hpp>

namespace {

struct mlp
    : nn::Module {  // one table at both ends, as a tied embedding, and a layer that is frozen
  explicit mlp(torch::Dtype type) {
    in = register_module("in", nn::Linear(6, 5));
    frozen = register_module("frozen", nn::Linear(5, 5));
    norm = register_module("norm", nn::BatchNorm1d(5));
    for (auto& p : frozen->parameters()) p.requires_grad_(false);
    to(type);
    fill(*this);
    eval();  // batch statistics would differ between a part and the whole batch
  }
  Tensor forward(const Tensor& x) {
    return torch::matmul(norm(torch::tanh(frozen(in(x)))), in->weight);
  }
  nn::Linear in{nullptr}, frozen{nullptr};
  nn::BatchNorm1d norm{nullptr};
};

struct cnn : nn::Module {
  explicit cnn(torch::Dtype type) {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)));
    out = register_module("out", nn::Linear(4, 6));
    to(type);
    fill(*this);
    const torch::NoGradGuard guard;
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  Tensor forward(const Tensor& x) {
    return out(torch::relu(conv(x.view({-1, 3, 2, 1}))).mean({2, 3}));
  }
  nn::Conv2d conv{nullptr};
  nn::Linear out{nullptr};
};

// Values after three steps; `parts` of a batch of 12 samples, this rank's.
template <typename Model>
std::vector<double> trained(Model& model, std::int64_t first, std::int64_t count, torch::Dtype type,
                            bool fills_zeros, const std::function<void(const Tensor&)>& backward) {
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    backward(model.forward(samples(first, count, type)).pow(2).mean());
    optimizer.step();
    for (auto& p : model.parameters()) {
      if (!p.grad().defined()) continue;
      if (fills_zeros) p.mutable_grad().zero_();
      else p.mutable_grad().reset();
    }
  }
  return values_of(model);
}

template <typename Model>
void equals_one_process(torch::Dtype type, double tolerance,
                        jobs::kind network = jobs::kind::inproc) {
  Model whole(type);
  const auto expected =
      trained(whole, 0, 12, type, false, [](const Tensor& loss) { loss.backward(); });
  for (const int world : {1, 2, 3}) {
    for (const bool fills_zeros : {false, true}) {
      for (const bool uneven : {false, true}) {
        const auto all = on_ranks_over(network, world, [&](parx::process_group& group) {
          // Even parts by loss.backward(); uneven ones, the last rank's of 2 samples, by weight.
          const std::int64_t each = 12 / world;
          std::int64_t first = group.rank() * each, count = each;
          if (uneven && world > 1) {
            const std::int64_t left = 10 / (world - 1);
            first = group.rank() * left;
            count = group.rank() == world - 1 ? 2 : left;
          }
          Model model(type);
          parx::torch_ddp ddp{model, group, {.buckets = {.first_bytes = 64, .bytes = 64}}};
          return trained(model, first, count, type, fills_zeros, [&](const Tensor& loss) {
            if (uneven) ddp.backward(loss, static_cast<double>(count));
            else loss.backward();
          });
        });
        for (const auto& one : all) {
          BOOST_TEST(one == all.front(), "other bits, world " << world);
          BOOST_TEST(difference(one, expected) <= tolerance,
                     "world " << world << ": " << difference(one, expected));
        }
      }
    }
  }
}

struct two : nn::Module {
  two() {
    a = register_module("a", nn::Linear(4, 4));
    b = register_module("b", nn::Linear(4, 4));
    fill(*this);
  }
  Tensor forward(const Tensor& x) { return b(a(x)); }
  nn::Linear a{nullptr}, b{nullptr};
};

struct throws_in_backward : torch::autograd::Function<throws_in_backward> {
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*grads*/) {
    throw std::runtime_error("thrown in backward");
  }
};

// As checkpointing does: the backward of a part is a forward and a backward of its own.
struct recomputed : torch::autograd::Function<recomputed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, two* model) {
    context->saved_data["model"] =
        static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(model));
    context->save_for_backward({x});
    const torch::NoGradGuard guard;
    return model->b(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    auto* model =
        reinterpret_cast<two*>(static_cast<std::intptr_t>(context->saved_data["model"].toInt()));
    const torch::AutoGradMode on(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({model->b(x)}, {grads[0]});
    return {x.grad(), Tensor()};
  }
};

Tensor ones(double factor = 1) { return torch::full({2, 4}, factor); }

}  // namespace

BOOST_AUTO_TEST_CASE(steps_are_those_of_one_process) {
  equals_one_process<mlp>(torch::kDouble, 1e-14);
  equals_one_process<mlp>(torch::kDouble, 1e-14, jobs::kind::tcp);
  equals_one_process<mlp>(torch::kFloat, 1e-6);
  equals_one_process<mlp>(torch::kBFloat16, 2e-2);
  equals_one_process<cnn>(torch::kFloat, 1e-6);
  equals_one_process<cnn>(torch::kFloat, 1e-6, jobs::kind::tcp);
}

// Passes of random losses, weights and parameters, under no_sync() or not, between two
// zero_grad()s.
BOOST_AUTO_TEST_CASE(any_passes_add_up_as_their_sums_do) {
  constexpr int parameters = 4;
  for (int trial = 0; trial < 60; ++trial) {
    std::mt19937 plan(static_cast<unsigned>(trial));
    const int world = 1 + static_cast<int>(plan() % 4);
    struct pass {
      bool syncs;
      std::vector<double> counts;                              // by rank
      std::vector<std::vector<std::optional<double>>> slopes;  // by rank and parameter
    };
    std::vector<pass> passes(1 + plan() % 5);
    for (auto& each : passes) {
      each.syncs = &each == &passes.back() || plan() % 3 != 0;
      for (int rank = 0; rank < world; ++rank) {
        each.counts.push_back(rank > 0 && plan() % 4 == 0 ? 0
                                                          : static_cast<double>(1 + plan() % 5));
        auto& mine = each.slopes.emplace_back();
        for (int i = 0; i < parameters; ++i) {
          // A step in which no rank reaches any is refused.
          const bool skips = plan() % 2 == 0 && (rank > 0 || i > 0);
          mine.push_back(skips ? std::optional<double>()
                               : static_cast<double>(plan() % 100) / 8 - 6);
        }
      }
    }
    std::vector<std::optional<double>> expected(parameters);
    for (int i = 0; i < parameters; ++i) {
      double sum = 0, count = 0;
      bool is_reached = false;
      for (const auto& each : passes) {
        for (std::size_t rank = 0; rank < each.counts.size(); ++rank) {
          count += each.counts[rank];
          const auto slope = each.slopes[rank][static_cast<std::size_t>(i)];
          if (!slope || each.counts[rank] == 0) continue;
          sum += *slope * each.counts[rank];
          is_reached = true;
        }
        if (!each.syncs) continue;
        auto& total = expected[static_cast<std::size_t>(i)];
        if (is_reached) total = total.value_or(0) + sum / count;
        sum = count = 0;
        is_reached = false;
      }
    }
    const auto all = on_ranks(world, [&](parx::process_group& group) {
      nn::Module model;
      std::vector<Tensor> w;
      for (int i = 0; i < parameters; ++i) {
        w.push_back(model.register_parameter("w" + std::to_string(i),
                                             torch::ones({3 + i}, torch::kDouble)));
      }
      parx::torch_ddp ddp{model, group, {.buckets = {.first_bytes = 32, .bytes = 32}}};
      std::vector<std::optional<double>> found;
      for (int round = 0; round < 2; ++round) {  // again with what the first left behind
        for (const auto& each : passes) {
          const auto rank = static_cast<std::size_t>(group.rank());
          Tensor loss = torch::zeros({}, torch::kDouble);
          for (int i = 0; i < parameters; ++i) {
            const auto slope = each.slopes[rank][static_cast<std::size_t>(i)];
            if (slope) loss = loss + w[static_cast<std::size_t>(i)].sum() * *slope;
          }
          if (each.syncs) {
            ddp.backward(loss, each.counts[rank]);
          } else {
            const parx::no_sync_scope local = ddp.no_sync();
            ddp.backward(loss, each.counts[rank]);
          }
        }
        found.clear();
        for (const Tensor& each : w) {
          if (each.grad().defined()) found.emplace_back(each.grad()[0].item<double>());
          else found.emplace_back();
          if (each.grad().defined())
            expect((each.grad() == each.grad()[0]).all().item<bool>(), "one value");
        }
        if (trial % 2 == 0) ddp.zero_grad();
        else
          for (auto& each : w) each.mutable_grad().reset();
      }
      return found;
    });
    for (const auto& one : all) {
      for (int i = 0; i < parameters; ++i) {
        const auto at = static_cast<std::size_t>(i);
        BOOST_TEST(one[at].has_value() == expected[at].has_value(),
                   "trial " << trial << ", parameter " << i);
        if (one[at] && expected[at]) {
          BOOST_TEST(std::abs(*one[at] - *expected[at]) <= 1e-12,
                     "trial " << trial << ", parameter " << i << ": " << *one[at] << " instead of "
                              << *expected[at]);
        }
        BOOST_TEST((one[at] == all.front()[at]), "trial " << trial << ": ranks differ");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_way_into_a_backward_pass_is_summed) {
  const std::map<std::string, std::function<void(two&, const Tensor&)>> ways{
      {"a thread",
       [](two& m, const Tensor& x) { std::thread([&] { m.forward(x).sum().backward(); }).join(); }},
      {"retain_graph",
       [](two& m, const Tensor& x) {
         const Tensor loss = m.forward(x).sum() / 2;
         loss.backward({}, true);
         loss.backward();
       }},
      {"two losses",
       [](two& m, const Tensor& x) {
         const Tensor loss = m.forward(x).sum();
         (loss * 0.25).backward({}, true);
         (loss * 0.75).backward();
       }},
      {"inputs",
       [](two& m, const Tensor& x) {
         const Tensor loss = m.forward(x).sum();
         torch::autograd::backward({loss}, {}, true, false, {m.a->weight, m.a->bias});
         torch::autograd::backward({loss}, {}, false, false, {m.b->weight, m.b->bias});
       }},
      {"recomputation",
       [](two& m, const Tensor& x) { recomputed::apply(m.a(x), &m).sum().backward(); }},
      {"penalty",
       [](two& m, const Tensor& x) {
         const Tensor input = x.clone().requires_grad_();
         const auto slope =
             torch::autograd::grad({m.forward(input).sum()}, {input}, {}, true, true);
         (m.forward(x).sum() + 0 * slope[0].sum()).backward();
       }},
  };
  two whole;
  (whole.forward(ones(1)).sum() * 0.5 + whole.forward(ones(2)).sum() * 0.5).backward();
  for (const auto& [name, way] : ways) {
    const auto all = on_ranks(2, [&, &act = way](parx::process_group& group) {
      two model;
      parx::torch_ddp ddp{model, group};
      act(model, ones(group.rank() + 1));
      double most = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        most = std::max(most, (model.parameters()[i].grad() - whole.parameters()[i].grad())
                                  .abs()
                                  .max()
                                  .item<double>());
      }
      return most;
    });
    for (const double each : all) BOOST_TEST(each <= 1e-5, name << ": " << each);
  }
}

BOOST_AUTO_TEST_CASE(a_pass_that_fails_leaves_gradients_and_wrapper_as_they_were) {
  const auto all = on_ranks(2, [&](parx::process_group& group) {
    two model;
    parx::torch_ddp ddp{model, group};
    model.forward(ones()).sum().backward();
    const Tensor before = model.b->weight.grad().clone();
    // Both ranks fail before a sum is under way: the group goes on.
    const std::string said =
        message_of([&] { throws_in_backward::apply(model.b(model.a(ones()))).sum().backward(); });
    expect(torch::equal(model.b->weight.grad(), before), "the gradient is as it was");
    model.forward(ones()).sum().backward();
    expect(torch::allclose(model.b->weight.grad(), before * 2), "the next pass is added");
    return said;
  });
  says(all, "thrown in backward");
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_is_named_on_the_others) {
  std::vector<std::string> said(2);
  parx::threads_options options;
  try {
    parx::run_threads(
        2,
        [&](parx::process_group& group) {
          two model;
          parx::torch_ddp ddp{model, group, {.buckets = {.first_bytes = 16, .bytes = 16}}};
          const Tensor h = model.a(ones());
          said[static_cast<std::size_t>(group.rank())] = message_of([&] {
            model.b(group.rank() == 0 ? throws_in_backward::apply(h) : h).sum().backward();
          });
        },
        options);
  } catch (const std::exception&) {
  }
  says({said[0]}, "thrown in backward");
  BOOST_TEST(said[1] != "no exception");
}

BOOST_AUTO_TEST_CASE(values_buffers_and_frozen_parameters_are_rank_0s) {
  const auto all = on_ranks(3, [](parx::process_group& group) {
    auto model = std::make_shared<mlp>(torch::kFloat);
    const torch::NoGradGuard guard;
    for (auto& p : model->parameters()) p.add_(group.rank());
    model->norm->running_mean.fill_(group.rank() + 5);
    model->norm->num_batches_tracked.fill_(group.rank() + 7);
    parx::torch_ddp ddp{model, group};
    expect(ddp.replicas_equal(), "replicas are equal");
    model->norm->running_mean.add_(group.rank());
    ddp.broadcast_buffers();
    return model->frozen->weight.sum().item<double>() +
           model->norm->running_mean[0].item<double>() +
           static_cast<double>(model->norm->num_batches_tracked.item<std::int64_t>());
  });
  for (const double each : all) BOOST_TEST(each == all[0]);
  mlp fresh(torch::kFloat);
  BOOST_TEST(std::abs(all[0] - fresh.frozen->weight.sum().item<double>() - 12) < 1e-4);
}

BOOST_AUTO_TEST_CASE(zero_grad_under_no_sync_drops_all_that_there_is) {
  const auto all = on_ranks(2, [](parx::process_group& group) {
    double most = 0;
    for (const bool fills_zeros : {false, true}) {
      two model, one_pass;
      parx::torch_ddp ddp{model, group};
      model.forward(ones(5)).sum().backward();
      {
        const auto local = ddp.no_sync();
        model.forward(ones(7)).sum().backward();
        for (auto& p : model.parameters()) {
          if (fills_zeros) p.mutable_grad().zero_();
          else p.mutable_grad().reset();
        }
        model.forward(ones(1)).sum().backward();
      }
      model.forward(ones(3)).sum().backward();
      one_pass.forward(ones(2)).sum().backward();
      for (std::size_t i = 0; i < 4; ++i) {
        const Tensor wrong = model.parameters()[i].grad() - one_pass.parameters()[i].grad();
        most = std::max(most, wrong.abs().max().item<double>());
      }
    }
    return most;
  });
  for (const double each : all) BOOST_TEST(each < 1e-5, each);
}

// Tables of which rows are sent, and small ones, which are summed whole.
BOOST_AUTO_TEST_CASE(gradients_of_embeddings_are_sparse_and_those_of_the_whole_batch) {
  for (const std::int64_t words : {20, 4000}) {
    for (const int world : {1, 2, 3}) {
      const auto on_words = [&](int rank, int step) {  // rank 2 has none in the second step
        if (rank == 2 && step == 1) return torch::empty({0}, torch::kLong);
        return (torch::arange(5) * 3 + rank * 2 + step).remainder(words).to(torch::kLong);
      };
      const auto make = [&](bool sparse) {
        nn::Embedding table(nn::EmbeddingOptions(words, 32).sparse(sparse));
        fill(*table);
        return table;
      };
      nn::Embedding whole = make(false);
      for (int step = 0; step < 3; ++step) {
        Tensor sum = torch::zeros({});
        for (int rank = 0; rank < world; ++rank) {
          sum = sum + whole(on_words(rank, step)).pow(2).sum();
        }
        (sum / world).backward();
      }
      const auto all = on_ranks(world, [&](parx::process_group& group) {
        nn::Embedding table = make(true);
        parx::torch_ddp ddp{table, group, {.buckets = {.first_bytes = 64, .bytes = 64}}};
        for (int step = 0; step < 3; ++step) {
          ddp.backward(table(on_words(group.rank(), step)).pow(2).sum());
          expect(table->weight.grad().is_sparse(), "it is sparse");
        }
        const double error =
            (table->weight.grad().to_dense() - whole->weight.grad()).abs().max().item<double>();
        const auto rows = table->weight.grad().coalesce().indices().size(1);
        expect(rows < 60, "no more rows than were touched: " + std::to_string(rows));
        ddp.zero_grad();
        {
          const auto local = ddp.no_sync();
          ddp.backward(table(on_words(group.rank(), 0)).pow(2).sum());
          ddp.backward(table(on_words(group.rank(), 2)).pow(2).sum());
        }
        ddp.backward(table(on_words(group.rank(), 1)).pow(2).sum());
        const double again =
            (table->weight.grad().to_dense() * 3 - whole->weight.grad()).abs().max().item<double>();
        return std::max(error, again);
      });
      for (const double each : all)
        BOOST_TEST(each < 1e-5, words << " words, " << world << ": " << each);
    }
  }
}

BOOST_AUTO_TEST_CASE(misuse_is_a_sentence) {
  const std::map<std::string, std::function<void(parx::process_group&)>> cases{
      {"was converted",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         model.to(torch::kDouble);
         ddp(ones().to(torch::kDouble)).sum().backward();
       }},
      {"read by torch::load()",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         model.to(torch::kDouble);
         model.forward(ones().to(torch::kDouble)).sum().backward();
       }},
      {"parameter [4, 4], number 2, is not the one",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         model.b = model.replace_module("b", nn::Linear(4, 4));
         model.forward(ones()).sum().backward();
       }},
      {"were dropped twice",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         torch::optim::SGD optimizer(model.parameters(), 0.1);
         const auto local = ddp.no_sync();
         for (int step = 0; step < 3; ++step) {
           model.forward(ones()).sum().backward();
           optimizer.step();
           optimizer.zero_grad();
         }
       }},
      {"was frozen when the model was wrapped",
       [](parx::process_group& group) {
         two model;
         model.b->weight.requires_grad_(false);
         parx::torch_ddp ddp{model, group};
         model.b->weight.requires_grad_(true);
         model.forward(ones()).sum().backward();
       }},
      {"create_graph",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         model.forward(ones()).sum().backward({}, false, true);
       }},
      {"ComplexFloat",
       [](parx::process_group& group) {
         nn::Module model;
         model.register_parameter("w", torch::ones({2}, torch::kComplexFloat));
         parx::torch_ddp ddp{model, group};
       }},
      {"contiguous() before wrapping",
       [](parx::process_group& group) {
         nn::Module model;
         model.register_parameter("w", torch::ones({1}).expand({4}));
         parx::torch_ddp ddp{model, group};
       }},
      {"to(torch::kCPU) before wrapping",
       [](parx::process_group& group) {
         nn::Module model;
         model.register_parameter("w", torch::empty({4}, torch::kMeta));
         parx::torch_ddp ddp{model, group};
       }},
      {"name its layers by register_module()",
       [](parx::process_group& group) {
         nn::Module model;
         parx::torch_ddp ddp{model, group};
       }},
      {"belongs to another wrapper",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp first{model, group};
         parx::torch_ddp second{model, group};
       }},
      {"take its mean()",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         ddp.backward(model.forward(ones()), 2);
       }},
      {"runs [5] Float, a buffer",
       [](parx::process_group& group) {
         nn::Module model;
         model.register_parameter("w", torch::ones({2}));
         model.register_buffer("runs", torch::ones({4 + group.rank()}));
         parx::torch_ddp ddp{model, group};
       }},
      {"no rank's loss reaches a parameter",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         ddp.backward(model.forward(ones()).mean().detach(), 2);
       }},
      {"in one step there was backward(loss, count) and loss.backward()",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group};
         for (int step = 0; step < 2; ++step) {
           {
             const auto local = ddp.no_sync();
             ddp.backward(model.forward(ones()).mean(), 2);
           }
           if (step == 0) ddp.backward(model.forward(ones()).mean(), 2);
           else ddp.backward(model.forward(ones()).mean());
           ddp.zero_grad();
         }
       }},
      {"leave .finish",
       [](parx::process_group& group) {
         two model;
         parx::torch_ddp ddp{model, group, {.replicas = 2}};
       }},
      {"rank 1: w [3]",
       [](parx::process_group& group) {  // of other sizes
         nn::Module model;
         model.register_parameter("w", torch::ones({2 + group.rank()}));
         parx::torch_ddp ddp{model, group};
       }},
  };
  for (const auto& [words, act] : cases) {
    const auto all = on_ranks(
        2, [&act = act](parx::process_group& group) { return message_of([&] { act(group); }); });
    says(all, words);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_count_beside_others_that_do_not_are_refused) {
  const auto all = on_ranks(2, [](parx::process_group& group) {
    two model;
    parx::torch_ddp ddp{model, group};
    const Tensor loss = model.forward(ones()).mean();
    return message_of([&] { group.rank() == 0 ? loss.backward() : ddp.backward(loss, 2); });
  });
  // The first rank to see it ends the pass of the other, which may not have seen it by then.
  const auto says_it = [](const std::string& said) {
    return said.find("1 of 2 ranks called loss.backward()") != std::string::npos;
  };
  BOOST_TEST((says_it(all[0]) || says_it(all[1])), all[0] << all[1]);
  for (const std::string& said : all) {
    BOOST_TEST((says_it(said) || said.find("another rank failed first") != std::string::npos),
               said);
  }
}

BOOST_AUTO_TEST_CASE(a_wrapper_may_outlive_its_model_and_a_model_its_wrapper) {
  on_ranks(2, [](parx::process_group& group) {
    auto model = std::make_shared<two>();
    {
      const parx::torch_ddp ddp{*model, group};
      model->forward(ones(group.rank() + 1)).sum().backward();
    }
    const Tensor left = model->b->bias.grad().clone();
    model->forward(ones()).sum().backward();  // local again
    expect(torch::allclose(model->b->bias.grad(), left + 2), "a local pass is added");
    auto ddp = std::make_unique<parx::torch_ddp<two>>(*model, group);
    model.reset();
    ddp.reset();
    return 0;
  });
}
