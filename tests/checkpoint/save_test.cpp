// save and load of a model in its wrapper: the same call for each of them, for a file, a folder and
// a training state. What parts of models look like on the disk is in sharded_test.cpp.
#include <parx/checkpoint/save.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/ddp.hpp>
#include <parx/ddp/hook_powersgd.hpp>
#include <parx/fsdp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <messages.hpp>

namespace {

namespace fs = std::filesystem;
using parx_test::scratch_folder;

auto net() { return parx::nn::sequential{parx::nn::linear{6, 16}, parx::nn::linear{16, 3}}; }

template <typename Wrapper, typename Optimizer>
void train(Wrapper& wrapper, Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    auto x = parx::tensor<float>::empty({4, 6});
    for (std::size_t i = 0; i < x.size(); ++i) {
      x.data()[i] = static_cast<float>((i + static_cast<std::size_t>(step) * 5) % 7);
    }
    const std::vector<std::int64_t> classes{0, 1, 2, 1};
    const auto labels = parx::tensor<std::int64_t>::from(classes, {4});
    parx::nn::cross_entropy(wrapper(x), labels).backward();
    optimizer.step();
  }
}

/// The hash of the values after `act` has had a wrapper and its optimizer on each rank.
template <typename Act>
std::vector<std::uint64_t> with_ddp(int ranks, Act act, const parx::comm_hook& hook = {}) {
  return on_ranks(ranks, [&](parx::process_group& group) {
    auto model = net();
    model.initialize(static_cast<std::uint64_t>(ranks));
    parx::ddp ddp{model, group, {.hook = hook}};
    parx::optim::adamw opt{ddp.parameters(), {.lr = 0.01F}};
    act(ddp, opt);
    return ddp.values_hash();
  });
}
template <typename Act>
std::vector<std::uint64_t> with_fsdp(int ranks, Act act) {
  return on_ranks(ranks, [&](parx::process_group& group) {
    auto model = net();
    parx::fsdp fsdp{model, group};
    fsdp.initialize(static_cast<std::uint64_t>(ranks) + 10);
    parx::optim::adamw opt{fsdp.parameters(), {.lr = 0.01F}};
    act(fsdp, opt);
    return fsdp.values_hash();
  });
}
void expect_all(const std::vector<std::uint64_t>& hashes, std::uint64_t expected) {
  BOOST_TEST(std::count(hashes.begin(), hashes.end(), expected) ==
             static_cast<std::ptrdiff_t>(hashes.size()));
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_call_saves_a_ddp_as_a_file_or_a_folder_that_any_wrapper_loads) {
  const scratch_folder scratch;
  const std::string file = scratch.file("model.safetensors"), folder = scratch.file("out");
  const auto saved = with_ddp(2, [&](auto& ddp, auto& opt) {
    train(ddp, opt, 0, 2);
    parx::save(ddp, file);
    parx::save(ddp, folder);
  });
  BOOST_TEST(fs::exists(fs::path(folder) / "model.safetensors"));  // rank 0 has all of it
  for (const std::string& path : {file, folder}) {
    expect_all(with_ddp(3, [&](auto& ddp, auto&) { parx::load(ddp, path); }), saved[0]);
    expect_all(with_fsdp(3, [&](auto& fsdp, auto&) { parx::load(fsdp, path); }), saved[0]);
  }
}

BOOST_AUTO_TEST_CASE(a_training_state_goes_on_in_the_bits_of_the_run_that_never_stopped) {
  const scratch_folder scratch;
  const std::string of_ddp = scratch.file("ddp"), of_fsdp = scratch.file("fsdp");
  const auto save_at_3 = [](const std::string& folder) {
    return [=](auto& wrapper, auto& opt) {
      train(wrapper, opt, 0, 3);
      parx::save(wrapper, opt, folder);
      train(wrapper, opt, 3, 6);
    };
  };
  const auto go_on = [](const std::string& folder) {
    return [=](auto& wrapper, auto& opt) {
      parx::load(wrapper, opt, folder);
      train(wrapper, opt, 3, 6);
    };
  };
  const auto by_ddp = with_ddp(2, save_at_3(of_ddp));
  expect_all(with_ddp(2, go_on(of_ddp)), by_ddp[0]);
  expect_all(with_fsdp(2, go_on(of_ddp)), by_ddp[0]);
  const auto by_fsdp = with_fsdp(2, save_at_3(of_fsdp));
  expect_all(with_ddp(2, go_on(of_fsdp)), by_fsdp[0]);
}

BOOST_AUTO_TEST_CASE(a_training_state_has_what_the_hook_left_out_of_earlier_gradients) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  const parx::powersgd_hook hook({.start_step = 1, .min_compression_rate = 0.5});
  const auto whole = with_ddp(
      2,
      [&](auto& ddp, auto& opt) {
        train(ddp, opt, 0, 3);
        parx::save(ddp, opt, folder);
        train(ddp, opt, 3, 6);
      },
      hook);
  BOOST_TEST(fs::exists(fs::path(folder) / "gradient_hook.safetensors"));
  expect_all(with_ddp(
                 2,
                 [&](auto& ddp, auto& opt) {
                   parx::load(ddp, opt, folder);
                   train(ddp, opt, 3, 6);
                 },
                 hook),
             whole[0]);
}

BOOST_AUTO_TEST_CASE(save_pretrained_leaves_no_shards_of_an_earlier_model_behind) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  (void)with_fsdp(3, [&](auto& fsdp, auto&) { parx::save(fsdp, folder); });
  BOOST_TEST(fs::exists(fs::path(folder) / "model-00003-of-00003.safetensors"));
  const auto saved = with_fsdp(2, [&](auto& fsdp, auto& opt) {
    train(fsdp, opt, 0, 1);
    parx::save_pretrained(fsdp, parx::json::object{}, folder);
  });
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(folder)) names.push_back(each.path().filename());
  std::sort(names.begin(), names.end());
  BOOST_TEST(names == (std::vector<std::string>{"config.json", "model.safetensors"}),
             boost::test_tools::per_element());
  expect_all(with_ddp(2, [&](auto& ddp, auto&) { parx::load(ddp, folder); }), saved[0]);
}

BOOST_AUTO_TEST_CASE(ranks_of_a_ddp_with_different_parts_are_told_to_save_each_part) {
  const scratch_folder scratch;
  const auto said = on_ranks(2, [&](parx::process_group& world) {
    parx::process_group alone = world.subgroup(std::array{world.rank()});
    parx::nn::linear<> layer(2, 2);
    layer.initialize(1);
    for (auto& p : layer.parameters()) p.reduce_over("part");
    parx::ddp ddp{layer, world, {.reduction_groups = {{"part", alone}}}};
    return parx_test::message_of([&] { parx::save(ddp, scratch.file("model.safetensors")); });
  });
  for (const auto& each : said) {
    BOOST_TEST(parx_test::mentions(each, "save_test.cpp:", "may hold different parts"), each);
  }
  BOOST_TEST(!fs::exists(scratch.file("model.safetensors")));
}
