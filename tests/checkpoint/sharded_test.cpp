// Models whose parameters lie on several ranks in parts: saved by some ranks, loaded by others.
#include <parx/checkpoint/save.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/checkpoint/pretrained.hpp>
#include <parx/comm/collectives/split.hpp>
#include <parx/comm/threads.hpp>
#include <parx/optim.hpp>

#include <bytes_read.hpp>
#include <checkpoint/shards.hpp>
#include <data/support.hpp>
#include <ddp/ranks.hpp>

using parx_test::scratch_folder;

namespace fs = std::filesystem;

namespace {

using namespace shards;

}  // namespace

BOOST_AUTO_TEST_CASE(shards_of_four_ranks_load_at_one_two_and_three_ranks_with_any_cut) {
  for (const cut before : {cut::flat, cut::rows, cut::columns}) {
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    for (const auto& failure : save(folder, 4, before)) BOOST_TEST(failure == "");
    for (const cut after : {cut::flat, cut::rows, cut::columns}) {
      for (const int world : {1, 2, 3, 4, 7}) {
        for (int rank = 0; rank < world; ++rank) {
          model mine(after, rank, world);
          mine.load(parx::saved_checkpoint::open(folder));
          BOOST_TEST(mine.wrong() == "");
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_reads_the_bytes_of_its_own_part_and_hardly_any_other) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  const std::vector<named_shape> large{{"w", {1024, 1024}}, {"v", {1000, 300}}};
  const std::uint64_t whole = 4 * (1024 * 1024 + 1000 * 300);
  on_ranks(4, [&](parx::process_group& group) {
    model mine(cut::flat, group.rank(), 4, large);
    mine.fill();
    parx::save(group, parx::sharded_over(group), mine.list, folder);
    return 0;
  });
  std::uint64_t sum = 0;
  for (const cut after : {cut::rows, cut::columns}) {
    for (int rank = 0; rank < 3; ++rank) {
      model mine(after, rank, 3, large);
      std::uint64_t own = 0;
      for (const share& each : mine.shares) own += 4 * each.indices.size();
      const std::uint64_t before = bytes_read();
      parx::load(mine.list, folder);
      const std::uint64_t read = bytes_read() - before;
      BOOST_TEST(read >= own);
      BOOST_TEST(read < own + 8'000);  // the manifest, the index and the headers
      sum += own;
    }
  }
  BOOST_TEST(sum == 2 * whole);
}

BOOST_AUTO_TEST_CASE(replicated_tensors_are_written_once_each_rank_a_share) {
  const std::vector<named_shape> some{{"w", {512, 512}}, {"v", {300, 100}}, {"bias", {9}}};
  const std::uint64_t whole = 4 * (512 * 512 + 300 * 100 + 9);
  for (const int shards : {1, 2}) {  // of 4 ranks: all alike, or two times two
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    on_ranks(4, [&](parx::process_group& group) {
      const int mine = group.rank() % shards;
      auto replicas = *parx::split(group, mine);
      model part(cut::flat, mine, shards, some);
      part.fill();
      parx::save(group, parx::sharded_over(group, replicas), part.list, folder);
      return 0;
    });
    std::uint64_t sum = 0, most = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const parx::safetensors_file file(
          (fs::path(folder) / (parx::shard_name("model", {rank, 4}) + ".safetensors")).string());
      std::uint64_t bytes = 0;
      for (const auto& tensor : file.tensors()) bytes += tensor.end - tensor.begin;
      sum += bytes;
      most = std::max(most, bytes);
    }
    BOOST_TEST(sum == whole);
    if (shards == 1) BOOST_TEST(most < whole / 4 + 40);
    model all(cut::flat, 0, 1, some);
    parx::load(all.list, folder);
    for (std::size_t i = 0; i < some.size(); ++i) {
      BOOST_TEST(model::right(some[i].name, 0, all.list[i].value().span(), all.shares[i].indices));
    }
  }
}

BOOST_AUTO_TEST_CASE(files_of_other_programs_are_loaded_in_parts) {
  const scratch_folder scratch;
  std::vector<std::vector<float>> values;
  std::vector<parx::tensor_to_store> stored;
  for (const auto& [name, whole] : tensors) {
    values.emplace_back(whole.size());
    for (std::size_t i = 0; i < values.back().size(); ++i) values.back()[i] = element(name, i);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    stored.push_back({tensors[i].name, parx::dtype::float32,
                      {tensors[i].whole.begin(), tensors[i].whole.end()},
                      std::as_bytes(std::span(values[i]))});
  }
  const fs::path one = scratch.file("one"), many = scratch.file("many");
  fs::create_directories(one);
  fs::create_directories(many);
  parx::write_safetensors((one / "model.safetensors").string(), stored);
  const auto split = std::span<const parx::tensor_to_store>(stored);
  parx::write_safetensors((many / "a.safetensors").string(), split.first(2));
  parx::write_safetensors((many / "b.safetensors").string(), split.last(3));
  std::ofstream(many / "model.safetensors.index.json")
      << R"({"metadata": {"total_size": 1}, "weight_map": {"embed.weight": "a.safetensors",
             "fc.weight": "a.safetensors", "fc.bias": "b.safetensors", "scale": "b.safetensors",
             "nothing": "b.safetensors"}})";
  std::vector<std::vector<double>> wide;
  for (const auto& each : values) wide.emplace_back(each.begin(), each.end());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    stored[i].type = parx::dtype::float64;
    stored[i].data = std::as_bytes(std::span(wide[i]));
  }
  const fs::path doubles = scratch.file("doubles.safetensors");
  parx::write_safetensors(doubles.string(), stored);
  for (const fs::path& from : {one / "model.safetensors", one, many, doubles}) {
    for (const cut how : {cut::flat, cut::rows, cut::columns}) {
      for (int rank = 0; rank < 3; ++rank) {
        model mine(how, rank, 3);
        parx::load(mine.list, from);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          BOOST_TEST(model::right(tensors[i].name, 0, mine.list[i].value().span(),
                                  mine.shares[i].indices));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_model_that_is_saved_whole_into_a_folder_of_shards_takes_their_place) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  for (const auto& failure : save(folder, 3, cut::rows, 1)) BOOST_TEST(failure == "");
  model all(cut::flat, 0, 1);
  all.fill(2);
  parx::save_pretrained(all.list, parx::json::object{}, folder);
  model mine(cut::flat, 0, 1);
  parx::load(mine.list, folder);
  BOOST_TEST(mine.list[0].value().data()[5] == element("embed.weight", 5, 2));
}

BOOST_AUTO_TEST_CASE(rows_of_a_table_that_were_put_off_are_saved_as_if_they_had_not_been) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  const parx::shape whole{9, 3};
  // Gradients of rows 2 and 7 at the first step, of 4 and 7 at the others: whole numbers.
  const auto train = [](const parx::parameter<float>& table, parx::optim::adamw<float>& adamw,
                        std::size_t first_row, int steps) {
    for (int step = 0; step < steps; ++step) {
      std::vector<std::size_t> rows;
      for (const std::size_t row : {step == 0 ? 2U : 4U, 7U}) {
        if (row >= first_row && row < first_row + table.shape()[0]) rows.push_back(row - first_row);
      }
      const auto grad = table.add_rows(rows);
      for (const std::size_t row : rows)
        for (std::size_t i = 0; i < 3; ++i)
          grad.data()[row * 3 + i] = static_cast<float>((row + first_row + i) % 5) - 2;
      adamw.step();
    }
  };
  const auto start = [&](std::size_t begin, std::size_t end) {
    parx::parameter<float> table("table", whole);
    table.keep_part(table.spec().slice(0, begin, end));
    table.expect_row_grad();
    for (std::size_t i = 0; i < 3 * (end - begin); ++i)
      table.allocate().data()[i] = static_cast<float>(3 * begin + i);
    return std::vector<parx::parameter<float>>{table};
  };
  on_ranks(2, [&](parx::process_group& group) {
    const std::size_t begin = group.rank() == 0 ? 0 : 5;
    auto list = start(begin, group.rank() == 0 ? 5 : 9);
    parx::optim::adamw<float> adamw(list, {.lr = 0.1, .weight_decay = 0.5});
    train(list[0], adamw, begin, 4);
    parx::checkpoint_parts parts;
    parts.add_shard("model", parx::sharded_over(group), list);
    parts.add_shard("optimizer", parx::sharded_over(group), adamw);
    parx::save(group, parts, folder);
    return 0;
  });
  auto loaded = start(0, 9), unbroken = start(0, 9);
  parx::optim::adamw<float> one(loaded, {.lr = 0.1, .weight_decay = 0.5});
  parx::optim::adamw<float> other(unbroken, {.lr = 0.1, .weight_decay = 0.5});
  train(unbroken[0], other, 0, 4);
  const auto saved = parx::saved_checkpoint::open(folder);
  saved.load("model", loaded);
  saved.load("optimizer", one);
  train(loaded[0], one, 0, 3);
  train(unbroken[0], other, 0, 3);
  BOOST_TEST(loaded[0].value().span() == unbroken[0].value().span(),
             boost::test_tools::per_element());
}
