// Files of a parallel model: saved at one layout and loaded at another, they have the same bits;
// training goes on at another layout as if nothing had happened.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>
#include <parx/checkpoint/state_dict.hpp>
#include <parx/optim/adamw.hpp>
#include <data/support.hpp>

namespace {

using parx::process_group;

template <typename Use>
void on_ranks(int ranks, const std::string& layout, Use use) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, ranks, [&](process_group& world) {
    auto net = small::llama();
    parx::parallel model{net, world, parx::layout::parse(layout)};
    use(model, world.rank() == 0);
  });
  parx_test::expect_failures(failures, "");
}

/// The hash of the values after steps [first, last) from what `from` has, saved in `to`.
std::uint64_t trained(int ranks, const std::string& layout, int first, int last,
                      const std::string& from, const std::string& to) {
  std::uint64_t hash = 0;
  on_ranks(ranks, layout, [&](auto& model, bool is_first) {
    model.initialize(5);
    parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
    if (!from.empty()) parx::load(model, opt, from);
    for (int step = first; step < last; ++step) {
      const auto& readers = model.data_group();
      (void)model.forward_backward(small::some(step, readers.rank(), readers.size()),
                                   small::criterion);
      opt.step();
    }
    if (!to.empty()) parx::save(model, opt, to);
    const std::uint64_t found = model.values_hash();
    if (is_first) hash = found;
  });
  return hash;
}

struct way {
  std::string layout;
  int ranks;
};

/// One process reads the file into a model without a wrapper.
void require_values_of_seed_7(const std::string& file, const std::string& from) {
  auto found = small::llama(), expected = small::llama();
  parx::load_state(found, file);
  expected.initialize(7);
  std::vector<parx::parameter<float>> values = expected.parameters();
  std::size_t at = 0;
  found.for_each_parameter([&](const std::string& path, auto& each) {
    const auto& wanted = values[at++].value();
    BOOST_TEST(std::equal(each.value().begin(), each.value().end(), wanted.begin(), wanted.end()),
               from << ": " << path);
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_and_a_folder_of_any_layout_load_at_any_other) {
  const std::vector<way> ways{{"ddp", 2},
                              {"fsdp", 3},
                              {"tp=2,sp", 2},
                              {"pp=2,schedule=zb1p", 2},
                              {"pp=2,dp=2,zero=1", 4},
                              {"pp=2,dp=2,tp=2,zero=3", 8}};
  const parx_test::scratch_folder scratch;
  for (const way& from : ways) {
    const std::string file = scratch.file("model.safetensors"), folder = scratch.file("model");
    std::uint64_t saved = 0;
    on_ranks(from.ranks, from.layout, [&](auto& model, bool is_first) {
      model.initialize(7);
      parx::save(model, file);
      parx::save(model, folder);
      const std::uint64_t hash = model.values_hash();
      if (is_first) saved = hash;
    });
    require_values_of_seed_7(file, from.layout);
    for (const way& to : ways) {
      for (const std::string& path : {file, folder}) {
        on_ranks(to.ranks, to.layout, [&](auto& model, bool) {
          model.initialize(8);
          parx::load(model, path);
          if (model.values_hash() != saved || !model.replicas_equal()) {
            throw std::runtime_error(from.layout + " to " + to.layout + ": other values");
          }
        });
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(training_goes_on_at_another_layout_with_the_same_bits) {
  const parx_test::scratch_folder scratch;
  const std::string folder = scratch.file("state");
  const std::vector<way> ways{{"ddp,microbatches=2", 2},
                              {"fsdp,microbatches=2", 2},
                              {"pp=2,microbatches=2", 4},
                              {"pp=2,zero=2,microbatches=2", 4}};
  const std::uint64_t straight = trained(2, "ddp,microbatches=2", 0, 6, "", "");
  for (const way& before : ways) {
    (void)trained(before.ranks, before.layout, 0, 3, "", folder);
    for (const way& after : ways) {
      BOOST_TEST(trained(after.ranks, after.layout, 3, 6, folder, "") == straight,
                 before.layout << " to " << after.layout);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_file_as_it_is_published_and_a_smaller_vocabulary_load_at_every_layout) {
  const parx_test::scratch_folder scratch;
  auto smaller = small::tied_gpt();
  smaller.initialize(7);
  const parx::state_dict values(smaller);
  std::vector<parx::tensor<float>> memory;
  std::vector<parx::tensor_to_store> tensors;
  const auto put = [&](const std::string& name, const parx::tensor<float>& of) {
    memory.push_back(of);
    tensors.push_back({name,
                       parx::dtype::float32,
                       {of.shape().begin(), of.shape().end()},
                       std::as_bytes(memory.back().span())});
  };
  for (const auto& each : values.tensors())
    put(each.name.substr(std::string("transformer.").size()), values.at<float>(each.name));
  for (int i = 0; i < 4; ++i)
    put("h." + std::to_string(i) + ".attn.bias", parx::tensor<float>::ones({1, 1, 4, 4}));
  const std::string file = scratch.file("gpt2.safetensors");
  parx::write_safetensors(file, tensors);

  for (const std::size_t words : {small::words, small::words + 6}) {
    std::uint64_t expected = 0;
    for (const way& each : std::vector<way>{{"ddp", 1},
                                            {"fsdp,gathered", 3},
                                            {"zero=1", 2},
                                            {"tp=2", 2},
                                            {"pp=2", 2},
                                            {"pp=2,tp=2,zero=3", 8}}) {
      std::vector<std::uint64_t> hashes(static_cast<std::size_t>(each.ranks));
      const auto failures =
          jobs::run_collecting(jobs::kind::inproc, each.ranks, [&](process_group& world) {
            auto config = smaller.config();
            config.vocab_size = words;
            parx::models::gpt<float> net(config);
            parx::parallel model{net, world, parx::layout::parse(each.layout)};
            model.initialize(8);
            parx::load(model, file, parx::state_match::common_rows);
            hashes[static_cast<std::size_t>(world.rank())] = model.values_hash();
          });
      parx_test::expect_failures(failures, "");
      if (expected == 0) expected = hashes[0];
      for (const std::uint64_t hash : hashes) BOOST_TEST(hash == expected, each.layout);
    }
    if (words == small::words) {
      auto same = small::tied_gpt();
      parx::load_state(same, file);
      BOOST_TEST(parx::state_dict(same).at<float>("transformer.wte.weight").span() ==
                     values.at<float>("transformer.wte.weight").span(),
                 boost::test_tools::per_element());
    }
  }
}
