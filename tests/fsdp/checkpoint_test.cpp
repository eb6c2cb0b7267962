// Values and moments of a sharded model on the disk, against the files that one rank of a ddp
// writes after the same steps.
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include <boost/test/unit_test.hpp>

#include <parx/checkpoint.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

#include <comm/jobs.hpp>
#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <messages.hpp>

namespace {

// A table that is large enough to be cut by rows, and layers of odd sizes.
struct net : parx::nn::module<net> {
  parx::nn::embedding<> table{3001, 16};
  parx::nn::linear<> first{16, 33};
  parx::nn::linear<> second{33, 5};

  parx::variable<float> forward(const parx::tensor<std::int64_t>& ids) {
    return second(parx::relu(first(table(ids))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("table", table);
    visit("first", first);
    visit("second", second);
  }
};

template <typename Wrapper, typename Optimizer>
void train(Wrapper& wrapper, Optimizer& optimizer, int rank, int steps) {
  for (int step = 0; step < steps; ++step) {
    auto ids = parx::tensor<std::int64_t>::empty({6});
    auto labels = parx::tensor<std::int64_t>::empty({6});
    for (std::size_t i = 0; i < 6; ++i) {
      ids.data()[i] = static_cast<std::int64_t>(i * 577 + 3) * (rank + 2) * (step + 1) % 3001;
      labels.data()[i] = (static_cast<std::int64_t>(i) + rank + step) % 5;
    }
    parx::nn::cross_entropy(wrapper(ids), labels).backward();
    optimizer.step();
  }
}

const parx::optim::adamw_options options{.lr = 0.02, .weight_decay = 0.1};

// use(fsdp, optimizer, group) on `world` ranks.
template <typename Use>
void with_fsdp(int world, int stage, Use use) {
  on_ranks(world, [&](parx::process_group& group) {
    net model;
    parx::fsdp fsdp{model, group, {.stage = stage, .units = parx::by_type<parx::nn::linear<>>}};
    parx::optim::adamw optimizer{fsdp.parameters(), options};
    use(fsdp, optimizer, group);
    return 0;
  });
}

template <typename Wrapper, typename Optimizer>
void save(Wrapper& fsdp, Optimizer& optimizer, parx::process_group& group,
          const std::string& folder) {
  parx::checkpoint_parts parts;
  add_training_state(fsdp, optimizer, parts);
  parx::save(group, parts, folder);
}

// The tensors that differ; those of `b` are in shards.
std::string differences(const std::string& a, const std::string& b) {
  std::string found;
  for (const std::string part : {"model", "optimizer"}) {
    const auto report = parx::differences_of(parx::safetensors_shards(a, part),
                                             parx::safetensors_shards(b, part));
    found += report.names.text();
    for (const auto& each : report.values) found += " " + each.name;
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_state_of_four_ranks_loads_at_fewer_with_a_ddps_values_and_moments) {
  const parx_test::scratch_folder scratch;
  const std::string plain = scratch.file("ddp");
  on_ranks(4, [&](parx::process_group& group) {
    net model;
    model.initialize(0);
    parx::ddp ddp{model, group, {.order = parx::reduction_order::serial}};
    parx::optim::adamw optimizer{ddp.parameters(), options};
    train(ddp, optimizer, group.rank(), 6);
    if (group.rank() == 0) {
      std::filesystem::create_directories(plain);
      parx::save_state(model, plain + "/model.safetensors");
      parx::save_state(optimizer, plain + "/optimizer.safetensors");
    }
    return 0;
  });
  for (const int stage : {1, 3}) {
    const std::string folder = scratch.file("stage" + std::to_string(stage));
    with_fsdp(4, stage, [&](auto& fsdp, auto& optimizer, parx::process_group& group) {
      train(fsdp, optimizer, group.rank(), 6);
      save(fsdp, optimizer, group, folder);
    });
    BOOST_TEST(differences(plain, folder) == "");
    for (const int world : {1, 2, 3}) {
      const std::string again = scratch.file("again");
      with_fsdp(world, stage, [&](auto& fsdp, auto& optimizer, parx::process_group& group) {
        load_training_state(fsdp, optimizer, parx::saved_checkpoint::open(folder));
        save(fsdp, optimizer, group, again);
      });
      BOOST_TEST(differences(plain, again) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_has_unfrozen_layers_is_saved_and_resumed_with_their_moments) {
  const parx_test::scratch_folder scratch;
  const auto freeze = [](net& model) {
    model.table.freeze();
    model.first.freeze();
  };
  const auto unfreeze_on_the_way = [](net& model, auto& wrapper, auto& optimizer, int rank) {
    train(wrapper, optimizer, rank, 2);
    model.first.unfreeze();
    train(wrapper, optimizer, rank, 2);
    model.table.unfreeze();  // which is cut by rows
    train(wrapper, optimizer, rank, 2);
  };
  const auto save_alone = [](auto& model, auto& optimizer, int rank, const std::string& folder) {
    if (rank > 0) return;
    std::filesystem::create_directories(folder);
    parx::save_state(model, folder + "/model.safetensors");
    parx::save_state(optimizer, folder + "/optimizer.safetensors");
  };
  const std::string plain = scratch.file("ddp"), plain_resumed = scratch.file("ddp_resumed");
  on_ranks(2, [&](parx::process_group& group) {
    net model;
    model.initialize(0);
    freeze(model);
    parx::ddp ddp{model, group, {.order = parx::reduction_order::serial}};
    parx::optim::adamw optimizer{ddp.parameters(), options};
    unfreeze_on_the_way(model, ddp, optimizer, group.rank());
    save_alone(model, optimizer, group.rank(), plain);
    train(ddp, optimizer, group.rank(), 3);
    save_alone(model, optimizer, group.rank(), plain_resumed);
    return 0;
  });
  const auto with_frozen_fsdp = [&](int stage, auto use) {
    on_ranks(2, [&](parx::process_group& group) {
      net model;
      freeze(model);
      parx::fsdp fsdp{model, group, {.stage = stage, .units = parx::by_type<parx::nn::linear<>>}};
      parx::optim::adamw optimizer{fsdp.parameters(), options};
      use(model, fsdp, optimizer, group);
      return 0;
    });
  };
  for (const int stage : {1, 2, 3}) {
    const std::string folder = scratch.file("stage" + std::to_string(stage));
    with_frozen_fsdp(stage, [&](net& model, auto& fsdp, auto& optimizer, auto& group) {
      unfreeze_on_the_way(model, fsdp, optimizer, group.rank());
      save(fsdp, optimizer, group, folder);
    });
    BOOST_TEST(differences(plain, folder) == "", "stage " << stage);
    const std::string resumed = folder + "_resumed";
    with_frozen_fsdp(stage, [&](net& model, auto& fsdp, auto& optimizer, auto& group) {
      load_training_state(fsdp, optimizer, parx::saved_checkpoint::open(folder));
      model.unfreeze();
      train(fsdp, optimizer, group.rank(), 3);
      save(fsdp, optimizer, group, resumed);
    });
    BOOST_TEST(differences(plain_resumed, resumed) == "", "resumed in stage " << stage);
  }
}

BOOST_AUTO_TEST_CASE(a_save_that_one_rank_alone_calls_is_an_error_on_all_that_names_both_calls) {
  const parx_test::scratch_folder scratch;
  const auto from = std::chrono::steady_clock::now();
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp}) {
    for (const int stage : {1, 3}) {
      for (const bool in_one_pass : {false, true}) {  // or in the next step
        const auto failures = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
          net model;
          parx::fsdp fsdp{model, group,
                          {.stage = stage, .units = parx::by_type<parx::nn::linear<>>}};
          parx::optim::adamw optimizer{fsdp.parameters(), options};
          const auto ids = parx::tensor<std::int64_t>::zeros({2});
          const auto loss = parx::nn::cross_entropy(fsdp(ids), ids);
          const auto save_on_rank_0 = [&] {
            if (group.rank() == 0) parx::save(fsdp, scratch.file("parts"));
          };
          if (in_one_pass) save_on_rank_0();
          loss.backward();
          optimizer.step();
          if (!in_one_pass) save_on_rank_0();
          train(fsdp, optimizer, group.rank(), 2);
        });
        parx_test::expect_failures(failures, "checkpoint_test.cpp");
        parx_test::expect_failures(failures, "barrier");
      }
    }
  }
  BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count() < 5.0);
}
