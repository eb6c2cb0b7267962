// With virtual replicas the number of ranks does not show: values, buffers and norms have the bits
// of one rank that computes all replicas, also where ranks are lost and join in between.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <data/support.hpp>
#include <messages.hpp>
#include <parx/checkpoint/whole_value.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/hash.hpp>
#include <parx/ddp/sync_batch_norm.hpp>
#include <parx/models/bert.hpp>
#include <parx/models/cnn.hpp>
#include <parx/models/gpt.hpp>
#include <parx/nn.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>

namespace {

using parx::process_group;
using parx::replica_range;
using parx::tensor;

constexpr int steps = 3;
constexpr std::size_t rows_each = 3;  // of a replica in a step

struct texts {
  tensor<std::int32_t> input_ids;
  tensor<std::uint8_t> attention_mask;
  tensor<std::int64_t> labels;
};
struct images {
  tensor<float> x;
  tensor<std::int64_t> labels;
};

constexpr auto criterion = [](const auto& logits, const auto& part) {
  return parx::nn::cross_entropy(logits, part.labels);
};

std::size_t hashed(std::size_t at) { return at * 2654435761U % 1000003U; }

/// A table of 256 KiB: without replicas its gradient is exchanged by rows.
struct of_bert {
  static auto make() {
    return parx::models::bert_classifier<>{{.vocab_size = 4096,
                                            .hidden_size = 16,
                                            .num_hidden_layers = 1,
                                            .num_attention_heads = 2,
                                            .intermediate_size = 16,
                                            .max_position_embeddings = 8}};
  }
  static texts batch(int step, replica_range mine) {
    const std::size_t rows = static_cast<std::size_t>(mine.size()) * rows_each, positions = 6;
    texts made{tensor<std::int32_t>::empty({rows, positions}),
               tensor<std::uint8_t>::full({rows, positions}, 1),
               tensor<std::int64_t>::empty({rows})};
    for (std::size_t i = 0; i < rows * positions; ++i) {
      const std::size_t at = static_cast<std::size_t>(mine.first) * rows_each * positions + i;
      made.input_ids.data()[i] =
          static_cast<std::int32_t>(hashed(at + 977 * static_cast<std::size_t>(step)) % 4096);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t at = static_cast<std::size_t>(mine.first) * rows_each + i;
      made.labels.data()[i] = at % 5 == 2 ? -100 : static_cast<std::int64_t>(at % 4);
    }
    return made;
  }
};

/// With dropout. Every seventh label, and all of replica 5, count for nothing.
struct of_gpt {
  static auto make() {
    return parx::models::gpt<>{
        {.vocab_size = 13, .n_positions = 8, .n_embd = 8, .n_layer = 2, .n_head = 2}};
  }
  static texts batch(int step, replica_range mine) {
    const std::size_t rows = static_cast<std::size_t>(mine.size()) * rows_each, positions = 6;
    texts made{tensor<std::int32_t>::empty({rows, positions}),
               {},
               tensor<std::int64_t>::empty({rows, positions})};
    for (std::size_t i = 0; i < rows * positions; ++i) {
      const std::size_t at = static_cast<std::size_t>(mine.first) * rows_each * positions + i;
      const std::size_t seed = hashed(at + 31 * static_cast<std::size_t>(step));
      const bool counts = at % 7 != 3 && at / (rows_each * positions) != 5;
      made.input_ids.data()[i] = static_cast<std::int32_t>(seed % 13);
      made.labels.data()[i] = counts ? static_cast<std::int64_t>(seed / 13 % 13) : -100;
    }
    return made;
  }
};

/// With the statistics of batches, and dropout.
template <typename Norm = parx::nn::batch_norm<float>>
struct of_cnn {
  template <typename... Others>
  static auto make(Others&... others) {
    return parx::models::cnn<float, Norm>{{.image_rows = 8,
                                           .image_columns = 8,
                                           .hidden_channels = 3,
                                           .hidden_size = 8,
                                           .num_labels = 4},
                                          others...};
  }
  static images batch(int step, replica_range mine) {
    const std::size_t rows = static_cast<std::size_t>(mine.size()) * rows_each;
    images made{tensor<float>::empty({rows, 1, 8, 8}), tensor<std::int64_t>::empty({rows})};
    for (std::size_t i = 0; i < rows * 64; ++i) {
      const std::size_t at = static_cast<std::size_t>(mine.first) * rows_each * 64 + i;
      made.x.data()[i] =
          std::sin(static_cast<float>(hashed(at + 77 * static_cast<std::size_t>(step))));
    }
    for (std::size_t i = 0; i < rows; ++i) {
      made.labels.data()[i] =
          static_cast<std::int64_t>((static_cast<std::size_t>(mine.first) * rows_each + i) % 4);
    }
    return made;
  }
};

/// The same in modules that can be stages.
struct of_images {
  static auto make() {
    using namespace parx::nn;
    return sequential{conv2d{1, 3, 3, {.padding = 1}},
                      batch_norm{3},
                      relu{},
                      max_pool2d{2},
                      conv2d{3, 4, 3, {.padding = 1}},
                      batch_norm{4},
                      relu{},
                      flatten{},
                      dropout{0.25},
                      linear{64, 4}};
  }
  static images batch(int step, replica_range mine) { return of_cnn<>::batch(step, mine); }
};

struct outcome {
  std::vector<double> norms{};
  std::uint64_t values = 0, buffers = 0;

  bool operator==(const outcome&) const = default;
};

template <typename Of>
void take_steps(auto& model, auto& opt, int first, int last, std::vector<double>& norms) {
  for (int step = first; step < last; ++step) {
    model.module().reseed(static_cast<std::uint64_t>(step) + 1);  // as the trainer does
    (void)model.forward_backward(Of::batch(step, model.replicas()), criterion);
    norms.push_back(parx::optim::clip_grad_norm(opt.targets(), 0.5));
    opt.step();
  }
}

/// Of the buffers of all stages.
std::uint64_t hash_of_buffers(auto& model) {
  std::uint64_t hash = 0;
  model.module().for_each_buffer([&](const std::string& path, auto& buffer) {
    hash += parx::detail::hash_of(buffer.value(), parx::detail::fnv1a(path));
  });
  if (process_group* const stages = model.strategy().stages()) {
    parx::all_reduce(*stages, std::span(&hash, 1));
  }
  return hash;
}

const std::string layout = "replicas=8";

template <typename Of>
outcome at(int ranks, jobs::kind kind = jobs::kind::inproc, const std::string& how = layout) {
  std::vector<outcome> found(static_cast<std::size_t>(ranks));
  const auto failures = jobs::run_collecting(kind, ranks, [&](process_group& world) {
    auto net = Of::make();
    parx::parallel model{net, world, parx::layout::parse(how)};
    model.initialize(5);
    parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
    outcome& mine = found[static_cast<std::size_t>(world.rank())];
    take_steps<Of>(model, opt, 0, steps, mine.norms);
    mine.values = model.values_hash();
    mine.buffers = hash_of_buffers(model);
  });
  parx_test::expect_failures(failures, "");
  for (const outcome& each : found) BOOST_TEST((each == found[0]), ranks << ": ranks differ");
  return found[0];
}

template <typename Of>
void expect_one_hash() {
  const outcome alone = at<Of>(1);
  for (const int ranks : {2, 3, 4, 8}) {
    const outcome found = at<Of>(ranks);
    BOOST_TEST(found.values == alone.values, ranks << " ranks: values");
    BOOST_TEST(found.norms == alone.norms, ranks << " ranks: norms");
    BOOST_TEST(found.buffers == alone.buffers, ranks << " ranks: buffers");
  }
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm}) {
    for (const int ranks : {2, 3, 4, 8}) {
      BOOST_TEST((at<Of>(ranks, kind) == alone), ranks << " over " << jobs::name_of(kind));
    }
  }
}

/// Shards over as many ranks; of three, one has a replica less and no range is a subtree.
template <typename Of>
void expect_hash_of_ddp() {
  const outcome alone = at<Of>(1);
  for (const std::string each : {"zero=1,", "zero=2,", "fsdp,", "fsdp,gathered,"}) {
    const std::string how = each + layout;
    for (const int ranks : {1, 2, 3, 4, 8}) {
      BOOST_TEST((at<Of>(ranks, jobs::kind::inproc, how) == alone), how << " on " << ranks);
    }
    for (const auto kind : {jobs::kind::tcp, jobs::kind::shm}) {
      for (const int ranks : {2, 3, 8}) {
        BOOST_TEST((at<Of>(ranks, kind, how) == alone),
                   how << " on " << ranks << " over " << jobs::name_of(kind));
      }
    }
  }
}

/// In two stages, on twice as many ranks.
template <typename Of>
void expect_hash_of_stages(const outcome& expected) {
  for (const int replicas : {1, 2, 3, 4, 8}) {
    BOOST_TEST((at<Of>(2 * replicas, jobs::kind::inproc, "pp=2," + layout) == expected),
               "two stages of each of " << replicas);
  }
  for (const std::string each : {"schedule=gpipe,", "schedule=zb1p,", "zero=1,", "zero=2,"}) {
    const std::string how = "pp=2," + each + layout;
    BOOST_TEST((at<Of>(2, jobs::kind::inproc, how) == expected), how << " on 2");
    BOOST_TEST((at<Of>(4, jobs::kind::tcp, how) == expected), how << " on 4 over tcp");
  }
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm}) {
    for (const int ranks : {2, 6, 8}) {
      BOOST_TEST((at<Of>(ranks, kind, "pp=2," + layout) == expected),
                 "pp=2 on " << ranks << " over " << jobs::name_of(kind));
    }
  }
}

/// With layers cut over two ranks, on twice as many.
template <typename Of>
void expect_one_hash_of_cut_layers() {
  for (const std::string cut : {"tp=2,", "tp=2,sp,"}) {
    const outcome alone = at<Of>(2, jobs::kind::inproc, cut + layout);
    for (const int replicas : {2, 3, 4}) {
      BOOST_TEST((at<Of>(2 * replicas, jobs::kind::inproc, cut + layout) == alone),
                 cut << " each of " << replicas);
    }
    for (const std::string each : {"zero=1,", "zero=2,", "fsdp,"}) {
      BOOST_TEST((at<Of>(6, jobs::kind::inproc, cut + each + layout) == alone), cut << each);
    }
    BOOST_TEST((at<Of>(6, jobs::kind::tcp, cut + layout) == alone), cut << " over tcp");
  }
  const outcome alone = at<Of>(4, jobs::kind::inproc, "pp=2,tp=2," + layout);
  for (const std::string each : {"", "zero=1,"}) {
    const std::string how = "pp=2,tp=2," + each + layout;
    BOOST_TEST((at<Of>(8, jobs::kind::inproc, how) == alone), how << " on 8");
  }
}

/// Steps [first, last) at the layout `how` on `ranks` ranks, from what `from` has, to `to`; before
/// step `lost`, rank 0 leaves.
template <typename Of>
std::uint64_t continued(const std::string& how, int ranks, int first, int lost, int last,
                        const std::string& from, const std::string& to) {
  std::uint64_t values = 0;
  const auto failures = jobs::run_collecting(jobs::kind::tcp, ranks, [&](process_group& world) {
    std::vector<int> all, others;
    for (int i = 0; i < ranks; ++i) all.push_back(i);
    for (int i = 1; i < ranks; ++i) others.push_back(i);
    process_group group = world.subgroup(all);
    std::optional<process_group> after;
    if (lost < last && world.rank() > 0) after.emplace(world.subgroup(others));
    auto net = Of::make();
    parx::parallel model{net, group, parx::layout::parse(how)};
    model.initialize(5);
    parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
    if (!from.empty()) parx::load(model, opt, from);
    std::vector<double> norms;
    take_steps<Of>(model, opt, first, lost, norms);
    if (lost < last && world.rank() == 0) return;
    if (after) model.regroup(std::move(*after));
    take_steps<Of>(model, opt, lost, last, norms);
    if (!to.empty()) parx::save(model, opt, to);
    const std::uint64_t found = model.values_hash();
    if (world.rank() == 1) values = found;
  });
  parx_test::expect_failures(failures, "");
  return values;
}

/// Four ranks, of which one is lost, then four again, then two. The ranks of a ddp go on without
/// the lost one; others begin anew at a checkpoint.
template <typename Of>
void expect_uninterrupted(const std::vector<std::string>& layouts) {
  const std::uint64_t whole = continued<Of>(layouts[0] + layout, 2, 0, 4, 4, "", "");
  for (const std::string& each : layouts) {
    const parx_test::scratch_folder folder;
    const std::string how = each + layout;
    const int many = each.starts_with("pp=2") ? 2 : 1;
    const auto at_step = [&](int step) { return folder.file(std::to_string(step)); };
    if (each == "ddp,") {
      (void)continued<Of>(how, 4, 0, 1, 2, "", at_step(2));
    } else {
      (void)continued<Of>(how, 4 * many, 0, 1, 1, "", at_step(1));
      (void)continued<Of>(how, 3 * many, 1, 2, 2, at_step(1), at_step(2));
    }
    (void)continued<Of>(how, 4 * many, 2, 3, 3, at_step(2), at_step(3));
    BOOST_TEST(continued<Of>(how, 2 * many, 3, 4, 4, at_step(3), "") == whole, how);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpt_with_dropout_ends_in_one_hash_at_any_number_of_ranks) {
  expect_one_hash<of_gpt>();
}

BOOST_AUTO_TEST_CASE(a_cnn_with_statistics_of_batches_ends_in_one_hash_at_any_number_of_ranks) {
  expect_one_hash<of_cnn<>>();
}

BOOST_AUTO_TEST_CASE(a_bert_with_a_large_table_ends_in_one_hash_at_any_number_of_ranks) {
  expect_one_hash<of_bert>();
}

BOOST_AUTO_TEST_CASE(shards_of_a_gpt_end_in_the_hash_of_ddp_at_any_number_of_ranks) {
  expect_hash_of_ddp<of_gpt>();
}

BOOST_AUTO_TEST_CASE(shards_of_a_cnn_end_in_the_hash_of_ddp_at_any_number_of_ranks) {
  expect_hash_of_ddp<of_cnn<>>();
}

BOOST_AUTO_TEST_CASE(shards_of_a_bert_end_in_the_hash_of_ddp_at_any_number_of_ranks) {
  expect_hash_of_ddp<of_bert>();
}

BOOST_AUTO_TEST_CASE(stages_with_statistics_of_batches_end_in_the_hash_of_one) {
  expect_hash_of_stages<of_images>(at<of_images>(1));
}

BOOST_AUTO_TEST_CASE(stages_of_a_bert_end_in_the_hash_of_one) {
  expect_hash_of_stages<of_bert>(at<of_bert>(1));
}

BOOST_AUTO_TEST_CASE(stages_that_share_a_table_end_in_one_hash_of_their_own) {
  const outcome alone = at<of_gpt>(1), staged = at<of_gpt>(2, jobs::kind::inproc, "pp=2," + layout);
  for (int step = 0; step < steps; ++step) {
    const auto i = static_cast<std::size_t>(step);
    BOOST_TEST(staged.norms[i] == alone.norms[i], boost::test_tools::tolerance(1e-5));
  }
  expect_hash_of_stages<of_gpt>(staged);
}

BOOST_AUTO_TEST_CASE(cut_layers_of_a_gpt_end_in_one_hash_at_any_number_of_replicas_of_them) {
  expect_one_hash_of_cut_layers<of_gpt>();
}

BOOST_AUTO_TEST_CASE(cut_layers_of_a_bert_end_in_one_hash_at_any_number_of_replicas_of_them) {
  expect_one_hash_of_cut_layers<of_bert>();
}

BOOST_AUTO_TEST_CASE(a_run_that_loses_a_rank_and_grows_and_shrinks_is_the_uninterrupted_run) {
  expect_uninterrupted<of_cnn<>>({"ddp,", "zero=1,", "zero=2,", "fsdp,"});
  expect_uninterrupted<of_gpt>({"ddp,", "zero=1,", "zero=2,", "fsdp,"});
  expect_uninterrupted<of_gpt>({"pp=2,"});
  expect_uninterrupted<of_bert>({"ddp,", "zero=1,", "zero=2,", "fsdp,", "pp=2,"});
}

BOOST_AUTO_TEST_CASE(what_virtual_replicas_do_not_do_is_refused_by_a_sentence) {
  for (const auto& each : std::map<std::string, std::string>{
           {"hybrid,replicas=8", "with replicas= take fsdp"},
           {"pp=2,dp=3,zero=1,replicas=8", "multiple of the 3 data-parallel ranks"},
           {"replicas=8,microbatches=2", "leave microbatches= out"},
           {"dp=4,replicas=3", "3 replicas cannot be dealt to 4 ranks"}}) {
    BOOST_CHECK_EXCEPTION(
        (void)parx::layout::parse(each.first), parx::usage_error, [&](const auto& thrown) {
          return std::string(thrown.what()).find(each.second) != std::string::npos;
        });
  }
  const auto refused = [](const std::string& said, int ranks, auto run) {
    const auto failures = jobs::run_collecting(jobs::kind::inproc, ranks, run);
    for (const std::string& each : failures) {
      BOOST_TEST(each.find(said) != std::string::npos, "\"" << each << "\" for \"" << said << "\"");
    }
  };
  refused("cannot be dealt to 3 ranks", 3, [](process_group& world) {
    auto net = of_gpt::make();
    parx::parallel model{net, world, {.replicas = 2}};
  });
  refused("cannot be divided into this rank's 4 replicas", 1, [](process_group& world) {
    auto net = of_gpt::make();
    parx::parallel model{net, world, {.replicas = 4}};
    (void)model.forward_backward(of_gpt::batch(0, {0, 1}), criterion);
  });
  refused("cannot be added up with replicas=", 1, [](process_group& world) {
    auto net = of_gpt::make();
    parx::parallel model{net, world, {.replicas = 4}};
    (void)model.no_sync();
  });
  refused("use batch_norm with replicas=", 1, [](process_group& world) {
    auto net = of_cnn<parx::sync_batch_norm<float>>::make(world);
    parx::parallel model{net, world, {.replicas = 4}};
    (void)model.forward_backward(of_cnn<>::batch(0, {0, 4}), criterion);
  });
}
