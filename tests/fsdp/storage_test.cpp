// Wherever values are (whole, gathered, in pages that a host shares) and whatever connects the
// ranks: one hash after 20 steps of AdamW with clipping. Of TinyBERT's words, which are cut by
// rows, no rank ever has all.
#include <parx/fsdp.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "../comm/jobs.hpp"
#include "../messages.hpp"
#include <parx/ddp.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

using namespace parx;

namespace {

/// 2100 rows of 32 floats are more than 256 KiB.
constexpr models::bert_config small_bert{.vocab_size = 2100,
                                         .hidden_size = 32,
                                         .num_hidden_layers = 2,
                                         .num_attention_heads = 2,
                                         .intermediate_size = 48,
                                         .max_position_embeddings = 16};

/// What a run ends with: the hash of all values, and the norms of its steps.
struct outcome {
  std::uint64_t hash = 0;
  std::vector<double> norms;
  friend bool operator==(const outcome&, const outcome&) = default;
};

tensor<std::int64_t> ids_of(int rank, int step, std::size_t bound) {
  auto ids = tensor<std::int64_t>::empty({3, 8});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t mixed = i * 311 + static_cast<std::size_t>(rank) * 97 +
                              static_cast<std::size_t>(step) * 53;
    ids.data()[i] = static_cast<std::int64_t>(i % 8 == 0 ? 1 : mixed % bound);
  }
  return ids;
}

template <typename Wrapper, typename Clip>
outcome train(Wrapper& wrapper, process_group& group, int steps, Clip clip) {
  optim::adamw opt{wrapper.parameters(), {.lr = 1e-2}};
  outcome found;
  const auto mask = tensor<std::uint8_t>::full({3, 8}, 1);
  for (int step = 0; step < steps; ++step) {
    for (int micro = step % 5 == 4 ? 0 : 1; micro < 2; ++micro) {  // every fifth step has two
      const auto labels = ids_of(group.rank(), step + micro, 4).slice(1, 3, 4).reshape({3});
      const auto loss = nn::cross_entropy(
          wrapper(ids_of(group.rank(), 2 * step + micro, 2100), mask), labels);
      if (micro == 0) {
        const auto guard = wrapper.no_sync();
        loss.backward();
      } else {
        loss.backward();
      }
    }
    found.norms.push_back(clip());
    opt.step();
    if (step == 10) {  // values are read between steps as well, with other rows
      const no_grad guard;
      static_cast<void>(wrapper(ids_of(7, step, 2100), mask));
    }
  }
  found.hash = wrapper.values_hash();
  return found;
}

/// The first step whose norms differ.
std::string differences(const outcome& a, const outcome& b) {
  for (std::size_t i = 0; i < a.norms.size(); ++i) {
    if (a.norms[i] == b.norms[i]) continue;
    return ": norm " + std::to_string(a.norms[i]) + " for " + std::to_string(b.norms[i]) +
           " in step " + std::to_string(i);
  }
  return ": equal norms";
}

template <typename Run>
std::vector<outcome> on(jobs::kind network, int world, Run run) {
  std::vector<outcome> found(static_cast<std::size_t>(world));
  const auto failures = jobs::run_collecting(network, world, [&](process_group& group) {
    found[static_cast<std::size_t>(group.rank())] = run(group);
  });
  for (const auto& each : failures) BOOST_TEST(each == "", jobs::name_of(network));
  return found;
}

outcome with_ddp(process_group& group, int steps) {
  models::bert_classifier<> model{small_bert};
  model.initialize(7);
  ddp wrapper{model, group, {.order = reduction_order::serial}};
  return train(wrapper, group, steps,
               [&] { return optim::clip_grad_norm(wrapper.parameters(), 0.5); });
}
outcome with_fsdp(process_group& group, int steps, const fsdp_options& options) {
  models::bert_classifier<> model{small_bert};
  fsdp wrapper{model, group, options};
  wrapper.initialize(7);
  return train(wrapper, group, steps,
               [&] { return parx::optim::clip_grad_norm(wrapper.parameters(), 0.5); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(tinybert_ends_in_the_bits_of_ddp_in_every_stage_storage_and_network) {
  constexpr int steps = 20;
  const auto layers = by_type<models::bert_layer<>>;
  for (const int world : {2, 3, 4}) {
    const auto expected =
        on(jobs::kind::inproc, world, [](process_group& group) { return with_ddp(group, steps); });
    for (const jobs::kind network : {jobs::kind::inproc, jobs::kind::tcp}) {
      for (const fsdp_options& options :
           {fsdp_options{.stage = 1, .units = layers}, fsdp_options{.stage = 2, .units = layers},
            fsdp_options{.stage = 3, .units = layers, .values = value_storage::gathered},
            fsdp_options{.stage = 3, .units = layers}}) {
        const bool shares = options.stage == 3 && options.values == value_storage::by_hosts;
        if (network == jobs::kind::tcp && (shares || options.stage == 1)) continue;
        const auto found = on(network, world, [&](process_group& group) {
          return with_fsdp(group, steps, options);
        });
        BOOST_TEST((found == expected), "stage " << options.stage << " on " << world
                                                 << " ranks over " << jobs::name_of(network)
                                                 << differences(found[0], expected[0]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(tables_may_stay_in_units) {
  const auto expected =
      on(jobs::kind::inproc, 2, [](process_group& group) { return with_ddp(group, 6); });
  for (const int stage : {1, 3}) {
    const auto found = on(jobs::kind::inproc, 2, [&](process_group& group) {
      return with_fsdp(group, 6, {.stage = stage, .tables = embedding_tables::in_units});
    });
    BOOST_TEST((found == expected), "stage " << stage << differences(found[0], expected[0]));
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_table_that_hosts_have_each_go_to_their_owners_on_all_of_them) {
  const auto expected =
      on(jobs::kind::inproc, 4, [](process_group& group) { return with_ddp(group, 6); });
  for (const int stage : {1, 2, 3}) {
    const auto found = on(jobs::kind::hybrid, 4, [&](process_group& group) {
      models::bert_classifier<> model{small_bert};
      model.initialize(group.rank() == 0 ? 7 : 8);  // rank 0's values are everybody's
      model.reseed(7);                              // dropout is not
      fsdp wrapper{model, group, {.stage = stage, .shard_within = "host"}};
      wrapper.module().for_each_parameter([&](const std::string& path, auto& part) {
        if (path == "bert.embeddings.word_embeddings.weight" && part.shape() != shape{1050, 32})
          throw std::runtime_error(part.spec().text());
      });
      return train(wrapper, group, 6,
                   [&] { return parx::optim::clip_grad_norm(wrapper.parameters(), 0.5); });
    });
    BOOST_TEST((found == expected), "stage " << stage << differences(found[0], expected[0]));
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_share_no_memory_cannot_share_pages) {
  for (const auto& failure : jobs::run_collecting(jobs::kind::tcp, 2, [](process_group& group) {
         with_fsdp(group, 1, {.values = value_storage::shared});
       })) {
    BOOST_TEST(parx_test::mentions(failure, "do not all share memory"), failure);
  }
}

BOOST_AUTO_TEST_CASE(
    a_model_that_the_machine_has_no_memory_for_is_refused_before_any_is_allocated) {
  on(jobs::kind::inproc, 2, [](process_group& group) {
    // 80 layers of 12 x 16384^2: 258 billion parameters, a terabyte.
    models::gpt<> model{{.vocab_size = 100, .n_positions = 8, .n_embd = 16384, .n_layer = 80}};
    const std::string said = parx_test::message_of([&] { fsdp wrapper{model, group}; });
    if (!parx_test::mentions(said, "usage: fsdp at ", "stage 3, of ", " parameters needs "))
      throw std::runtime_error(said);
    return outcome{};
  });
}

BOOST_AUTO_TEST_CASE(a_rank_owns_rows_of_the_words_and_no_other) {
  on(jobs::kind::inproc, 3, [](process_group& group) {
    models::bert_classifier<> model{small_bert};
    fsdp wrapper{model, group};
    wrapper.module().for_each_parameter([&](const std::string& path, auto& part) {
      if (path != "bert.embeddings.word_embeddings.weight") return;
      if (part.shape() != shape{700, 32}) throw std::runtime_error(part.spec().text());
      if (part.spec().run_at(0).global != static_cast<std::size_t>(group.rank()) * 700 * 32)
        throw std::runtime_error(part.spec().text());
    });
    return outcome{};
  });
}
