// Models whose parameters lie on several ranks in parts: saved by some ranks, loaded by others.
//
// Every element has a value that follows from its tensor's name and its index in the whole, so each
// rank can tell what has to lie on it without knowing how it got there.
#include <parx/checkpoint/save.hpp>

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/checkpoint/manager.hpp>
#include <parx/checkpoint/pretrained.hpp>
#include <parx/comm/collectives/split.hpp>
#include <parx/comm/threads.hpp>
#include <parx/optim.hpp>

#include <bytes_read.hpp>
#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <launch/processes.hpp>
#include <messages.hpp>

using parx_test::mentions;
using parx_test::scratch_folder;

namespace fs = std::filesystem;

namespace {

float element(const std::string& name, std::size_t index, std::uint64_t step = 0) {
  std::size_t sum = 31 * step;
  for (const char c : name) sum = 7 * sum + static_cast<unsigned char>(c);
  return static_cast<float>((sum + index) % 65'521);
}

struct named_shape {
  std::string name;
  parx::shape whole;
};
const std::vector<named_shape> tensors{{"embed.weight", {37, 24}}, {"fc.weight", {24, 18, 5}},
                                       {"fc.bias", {3}},           {"scale", {}},
                                       {"nothing", {0, 4}}};

enum class cut { flat, rows, columns };

// What of a tensor lies on a rank, and which elements these are.
struct share {
  parx::shard_spec spec;
  std::vector<std::size_t> indices;
};

share share_of(const parx::shape& whole, cut how, int rank, int world) {
  const std::size_t n = static_cast<std::size_t>(world), r = static_cast<std::size_t>(rank);
  share mine{parx::shard_spec::whole(whole), {}};
  const std::size_t size = whole.size(), last = whole.rank() == 0 ? 1 : whole[whole.rank() - 1];
  // The borders are uneven on purpose.
  const auto border = [n](std::size_t extent, std::size_t i) {
    return i == n ? extent : extent * i * i / (n * n);
  };
  if (how == cut::columns && whole.rank() > 1) {
    const std::size_t begin = border(last, r), end = border(last, r + 1);
    mine.spec = mine.spec.slice(-1, begin, end);
    for (std::size_t i = 0; i < size; ++i)
      if (i % last >= begin && i % last < end) mine.indices.push_back(i);
    return mine;
  }
  const bool by_rows = how == cut::rows && whole.rank() > 0;
  const std::size_t below = by_rows && whole[0] > 0 ? size / whole[0] : 1;
  const std::size_t extent = by_rows ? whole[0] : size;
  const std::size_t begin = border(extent, r), end = border(extent, r + 1);
  mine.spec = by_rows ? mine.spec.slice(0, begin, end) : mine.spec.flat(begin, end);
  for (std::size_t i = begin * below; i < end * below; ++i) mine.indices.push_back(i);
  return mine;
}

// The parameters of a rank, their AdamW and their average.
struct model {
  model(cut how, int rank, int world, const std::vector<named_shape>& all = tensors) {
    for (const auto& [name, whole] : all) {
      shares.push_back(share_of(whole, how, rank, world));
      list.emplace_back(name, whole);
      list.back().keep_part(shares.back().spec);
      (void)list.back().allocate();
    }
    adamw = std::make_unique<parx::optim::adamw<float>>(list);
    average = std::make_unique<parx::optim::ema<float>>(list);
  }
  // Calls use(name, elements, the indices that they have in the whole) and use(name, number).
  template <typename Use>
  void for_each(Use use) {
    const auto visit = [&](auto& state) {
      state.for_each_state([&](const std::string& name, auto& value) {
        if constexpr (requires { value.data(); }) {
          std::size_t i = 0;
          while (!name.starts_with(list[i].name() + ".")) ++i;
          use(name, value.span(), shares[i].indices);
        } else {
          use(name, value);
        }
      });
    };
    for (std::size_t i = 0; i < list.size(); ++i)
      use(list[i].name(), list[i].value().span(), shares[i].indices);
    visit(*adamw);
    visit(*average);
  }
  void fill(std::uint64_t step = 0) {
    for_each([&](const std::string& name, auto&&... value) { put(name, step, value...); });
  }
  static void put(const std::string& name, std::uint64_t step, std::span<float> values,
                  const std::vector<std::size_t>& indices) {
    for (std::size_t i = 0; i < indices.size(); ++i) values[i] = element(name, indices[i], step);
  }
  static void put(const std::string& name, std::uint64_t step, std::uint64_t& number) {
    number = name.size() + step;
  }
  // What is not as it should be.
  std::string wrong(std::uint64_t step = 0) {
    std::string text;
    for_each([&](const std::string& name, auto&&... value) {
      if (!right(name, step, value...)) text += name + " is wrong; ";
    });
    return text;
  }
  static bool right(const std::string& name, std::uint64_t step, std::span<float> values,
                    const std::vector<std::size_t>& indices) {
    bool all = values.size() == indices.size();
    for (std::size_t i = 0; all && i < indices.size(); ++i)
      all = values[i] == element(name, indices[i], step);
    return all;
  }
  static bool right(const std::string& name, std::uint64_t step, std::uint64_t& number) {
    return number == name.size() + step;
  }
  void add_to(parx::checkpoint_parts& parts, const parx::sharding& how) {
    parts.add_shard("model", how, list).add_shard("optimizer", how, *adamw);
    parts.add_shard("average", how, *average);
  }
  void load(const parx::saved_checkpoint& saved) {
    saved.load("model", list);
    saved.load("optimizer", *adamw);
    saved.load("average", *average);
  }

  std::vector<share> shares;
  std::vector<parx::parameter<float>> list;
  std::unique_ptr<parx::optim::adamw<float>> adamw;
  std::unique_ptr<parx::optim::ema<float>> average;
};

// Saves what `world` ranks have in parts; the message of each rank's failure.
std::vector<std::string> save(const std::string& folder, int world, cut how,
                              std::uint64_t step = 0) {
  return on_ranks(world, [&](parx::process_group& group) -> std::string {
    model mine(how, group.rank(), world);
    mine.fill(step);
    parx::checkpoint_parts parts;
    mine.add_to(parts, parx::sharded_over(group));
    try {
      parx::save(group, parts, folder, step);
    } catch (const parx::error& failure) {
      return failure.what();
    }
    return {};
  });
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const parx::error& failure) {
    return failure.what();
  }
  return "no error";
}

std::string read_text(const fs::path& path) { return parx_test::read_file(path.string()); }

void replace(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read_text(path);
  text.replace(text.find(from), from.size(), to);
  std::ofstream(path, std::ios::binary) << text;
}

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

BOOST_AUTO_TEST_CASE(a_wrong_word_about_copies_is_an_error_when_it_is_saved) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  for (const auto& failure : save(folder, 2, cut::rows)) BOOST_TEST(failure == "");
  const auto saved_as = [&](const std::string& to, bool alike) {
    return on_ranks(2, [&](parx::process_group& group) {
      model mine(cut::rows, alike ? 0 : group.rank(), alike ? 1 : 2, {{"w", {64, 512}}});
      auto how = alike ? parx::sharded_over(group) : parx::replicated_over(group);
      return message_of([&] { parx::save(group, how, mine.list, to); });
    });
  };
  for (const auto& said : saved_as(folder, true)) {
    BOOST_TEST(mentions(said, "the parts of \"w\" are not the whole: elements 0-32767 are in "
                              "model-00001-of-00002.safetensors and again in "
                              "model-00002-of-00002.safetensors"), said);
  }
  for (const auto& said : saved_as(folder, false)) {
    BOOST_TEST(mentions(said, "elements 8192-20479 are in none of the files"), said);
  }
  model first(cut::flat, 0, 1);
  first.load(parx::saved_checkpoint::open(folder));  // the one that was there
  BOOST_TEST(first.wrong() == "");
}

BOOST_AUTO_TEST_CASE(a_mismatched_folder_is_reported_and_nothing_is_loaded) {
  const scratch_folder scratch;
  const fs::path folder = scratch.file("out"), other = scratch.file("other");
  for (const auto& failure : save(folder.string(), 3, cut::flat, 10)) BOOST_TEST(failure == "");
  for (const auto& failure : save(other.string(), 3, cut::flat, 20)) BOOST_TEST(failure == "");
  model mine(cut::rows, 0, 2);
  mine.fill(1);
  const std::string shard = "model-00002-of-00003.safetensors";
  const auto said = [&] { return message_of([&] { parx::load(mine.list, folder); }); };

  // Another model, by name; a list without a tensor, too.
  model fewer(cut::rows, 0, 2, {{"embed.weight", {37, 24}}, {"fc.weight", {24, 90}}, {"new", {3}}});
  const std::string differences = message_of([&] { parx::load(fewer.list, folder); });
  BOOST_TEST(mentions(differences, "missing from the file: new"), differences);
  BOOST_TEST(mentions(differences, "unknown to the model: fc.bias, nothing, scale"), differences);
  BOOST_TEST(mentions(differences, "fc.weight: [24, 18, 5] F32 in the file, [24, 90]"),
             differences);
  // Moments are never left out in silence.
  parx::optim::sgd<float> sgd(mine.list, {.momentum = 0.9});
  const std::string moments = message_of([&] {
    parx::saved_checkpoint::open(folder).load("optimizer", sgd);
  });
  BOOST_TEST(mentions(moments, "missing from the file: embed.weight.momentum_buffer"), moments);

  fs::copy_file(other / shard, folder / shard, fs::copy_options::overwrite_existing);
  BOOST_TEST(mentions(said(), shard + "\" is of step 20, but the other shards are of step 10"),
             said());
  BOOST_TEST(mentions(message_of([&] { (void)parx::saved_checkpoint::open(folder); }),
                      shard + ": its checksum is"));
  fs::remove(folder / shard);
  BOOST_TEST(mentions(said(), shard + ": it is missing"), said());
  fs::remove(folder / "manifest.json");
  BOOST_TEST(mentions(said(), "the shard " + shard + " is missing"), said());
  replace(folder / "model.safetensors.index.json", "\"elements\":", "\"cut\":");
  BOOST_TEST(mentions(said(), "but its index speaks of"), said());
  BOOST_TEST(mine.wrong(1) == "");
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

BOOST_AUTO_TEST_CASE(a_collective_load_that_fails_on_one_rank_fails_on_all) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  for (const auto& failure : save(folder, 2, cut::rows)) BOOST_TEST(failure == "");
  const auto said = on_ranks(3, [&](parx::process_group& group) {
    model mine(cut::rows, group.rank(), 3);
    if (group.rank() == 1) mine.list[1].rename("other");
    return message_of([&] { parx::load(group, mine.list, folder); });
  });
  for (const auto& each : said) BOOST_TEST(mentions(each, "missing from the file: other"), each);
}

BOOST_AUTO_TEST_CASE(a_folder_that_holds_other_things_is_not_replaced) {
  const scratch_folder scratch;
  const fs::path folder = scratch.file("out");
  for (const auto& failure : save(folder.string(), 2, cut::flat)) BOOST_TEST(failure == "");
  for (const auto& failure : save(folder.string(), 2, cut::flat)) BOOST_TEST(failure == "");
  std::ofstream(folder / "thesis.tex") << "years";
  for (const auto& failure : save(folder.string(), 2, cut::flat)) {
    BOOST_TEST(mentions(failure, "parx::save did not write"), failure);
  }
  BOOST_TEST(read_text(folder / "thesis.tex") == "years");
}

BOOST_AUTO_TEST_CASE(where_a_disk_is_full_all_ranks_say_whose_and_the_old_one_stays) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  processes::job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3, [&](parx::world& group) {
      model mine(cut::flat, group.rank(), 3, {{"w", {3000, 1000}}});
      mine.fill(1);
      parx::save(group, parx::sharded_over(group), mine.list, folder);
      mine.fill(2);
      if (group.rank() == 2) {
        const rlimit a_megabyte{1 << 20, RLIM_INFINITY};
        ::setrlimit(RLIMIT_FSIZE, &a_megabyte);
      }
      const std::string said = message_of(
          [&] { parx::save(group, parx::sharded_over(group), mine.list, folder); });
      parx::require(mentions(said, "model-00003-of-00003") && mentions(said, "ulimit -f") &&
                        (group.rank() == 2 || mentions(said, "rank 2: ")),
                    "it said: {}", said);
      parx::load(group, mine.list, folder);
      parx::require(model::right("w", 1, mine.list[0].value().span(), mine.shares[0].indices),
                    "the old one is not there");
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(kill_any_rank_at_any_moment_and_the_last_checkpoint_is_whole) {
  std::mt19937 random(std::random_device{}());
  const std::vector<named_shape> some{{"w", {600, 1000}}, {"v", {300, 100}}};
  for (int round = 0; round < 6; ++round) {
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    processes::job all;
    for (int rank = 0; rank < 3; ++rank) {
      all.start(rank, 3, [&](parx::world& group) {
        parx::checkpoint_manager checkpoints(group, folder, {.save_total_limit = 2});
        model mine(cut::flat, group.rank(), 3, some);
        for (std::uint64_t step = 1;; ++step) {
          mine.fill(step);
          parx::checkpoint_parts parts;
          mine.add_to(parts, parx::sharded_over(group));
          if (step == 1) checkpoints.probe(parts);
          checkpoints.save(step, parts);
        }
      });
    }
    const auto first = fs::path(folder) / "checkpoint-1";
    const auto begin = std::chrono::steady_clock::now();
    while (!fs::exists(first) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(9))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    const auto victim = static_cast<unsigned>(random() % 3);
    ::kill(all.pid(victim), SIGKILL);
    const auto ends = all.wait();
    for (unsigned rank = 0; rank < 3; ++rank)
      BOOST_TEST(ends[rank].exit_code == (rank == victim ? 128 + SIGKILL : 1), ends[rank].text);
    std::vector<std::string> passed_over;
    const auto found = parx::detail::list_checkpoints(
        folder, [&](const parx::error& reason) { passed_over.emplace_back(reason.what()); });
    BOOST_TEST(passed_over.empty());
    BOOST_TEST_REQUIRE(!found.empty());
    for (const auto& one : found) {
      const auto saved = parx::saved_checkpoint::open(one.path());
      for (int rank = 0; rank < 2; ++rank) {
        model mine(cut::rows, rank, 2, some);
        mine.load(saved);
        BOOST_TEST(mine.wrong(saved.step()) == "");
      }
    }
  }
}
