// What is done to sharded checkpoints afterwards: verified, merged into one file, compared. The
// merged file is read here by a reader of its own, which knows the format and nothing of parx.
#include <parx/checkpoint/verify.hpp>

#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/checkpoint/difference.hpp>
#include <parx/checkpoint/save.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/whole_file.hpp>

#include <checkpoint/file_events.hpp>
#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <messages.hpp>
#include <tensor/shard_oracle.hpp>

using parx::differences_of;
using parx::safetensors_shards;
using parx_test::mentions;
using parx_test::scratch_folder;

namespace fs = std::filesystem;

namespace {

float element(std::size_t index) { return static_cast<float>(index) + 0.5F; }

// Two parameters, cut by rows and by columns.
std::vector<parx::parameter<float>> parts_of(int rank, int world, float more = 0) {
  std::vector<parx::parameter<float>> list{{"table", parx::shape{50, 8}},
                                           {"proj", parx::shape{6, 20}}};
  list[0].keep_part(list[0].spec().chunk(0, rank, world));
  list[1].keep_part(list[1].spec().chunk(1, rank, world));
  for (auto& each : list) {
    float* const values = each.allocate().data();
    each.spec().for_each_run([&](const parx::shard_run& run) {
      for (std::size_t i = 0; i < run.length; ++i)
        values[run.local + i] = element(run.global + i) + more;
    });
  }
  return list;
}

void save(const std::string& folder, std::uint64_t step = 0, float more = 0) {
  on_ranks(3, [&](parx::process_group& group) {
    auto list = parts_of(group.rank(), 3, more);
    parx::checkpoint_parts parts;
    parts.add_shard("model", parx::sharded_over(group), list);
    parx::save(group, parts, folder, step);
    return 0;
  });
}

std::string shard(int number) {
  return "model-0000" + std::to_string(number) + "-of-00003.safetensors";
}

void overwrite(const fs::path& path, std::size_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void replace_all(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = parx_test::read_file(path.string());
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  std::ofstream(path, std::ios::binary) << text;
}

bool any_mentions(const std::vector<std::string>& faults, const std::string& what) {
  for (const auto& each : faults)
    if (mentions(each, what)) return true;
  return false;
}

// The values of a tensor of a safetensors file, found by searching the text of the header: the
// format's own words, https://github.com/huggingface/safetensors#format.
std::vector<float> floats_in(const std::string& path, const std::string& name,
                             const std::string& shape) {
  const std::string file = parx_test::read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const std::string header = file.substr(8, length);
  const std::string before =
      "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[";
  const std::size_t at = header.find(before);
  BOOST_REQUIRE_MESSAGE(at != header.npos, header);
  char* end = nullptr;
  const std::size_t first = std::strtoull(header.c_str() + at + before.size(), &end, 10);
  const std::size_t last = std::strtoull(end + 1, nullptr, 10);
  std::vector<float> values((last - first) / 4);
  std::memcpy(values.data(), file.data() + 8 + length + first, last - first);
  return values;
}

bool counts_up(const std::vector<float>& values, std::size_t size) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != element(i)) return false;
  return values.size() == size;
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_part_is_described_exactly_and_its_copies_share_it_without_rest) {
  shard_oracle::random_cuts cuts;
  for (int round = 0; round < 2000; ++round) {
    const parx::shape whole = cuts.any_shape();
    auto spec = parx::shard_spec::whole(whole);
    auto list = shard_oracle::listing::whole(whole);
    for (std::size_t depth = cuts.below(4); depth > 0; --depth) cuts.cut(spec, list);
    const auto text = parx::json::dump(parx::detail::cuts_to_json(spec));
    const auto read = parx::detail::cuts_from_json(whole, parx::json::parse(text));
    std::vector<std::size_t> indices, shared;
    const auto append = [](std::vector<std::size_t>& to) {
      return [&to](const parx::shard_run& run) {
        for (std::size_t i = 0; i < run.length; ++i) to.push_back(run.global + i);
      };
    };
    read.for_each_run(append(indices));
    BOOST_REQUIRE_MESSAGE(indices == list.indices, text);
    const std::size_t count = 1 + cuts.below(5), bytes = cuts.below(2) == 0 ? 4 : 100'000;
    for (std::size_t index = 0; index < count; ++index) {
      const auto piece = parx::detail::elements_of_copy("w", spec, bytes, {index, count});
      if (piece) piece->spec.for_each_run(append(shared));
    }
    BOOST_REQUIRE(shared == list.indices);
  }
}

BOOST_AUTO_TEST_CASE(merged_or_written_together_there_is_one_file_that_any_program_reads) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out"), merged = scratch.file("merged.safetensors"),
                    together = scratch.file("together.safetensors");
  save(folder);
  parx::merge_shards(parx::safetensors_shards(folder), merged);
  on_ranks(3, [&](parx::process_group& group) {
    auto list = parts_of(group.rank(), 3);
    parx::save(group, parx::sharded_over(group), list, together);
    return 0;
  });
  for (const std::string& path : {merged, together}) {
    BOOST_TEST(counts_up(floats_in(path, "table", "[50,8]"), 400));
    BOOST_TEST(counts_up(floats_in(path, "proj", "[6,20]"), 120));
  }
  BOOST_TEST(parx_test::read_file(merged) == parx_test::read_file(together));
}

BOOST_AUTO_TEST_CASE(a_failed_collective_write_is_an_error_on_all_and_keeps_the_old_file) {
  const scratch_folder scratch;
  const std::string path = scratch.write("model.safetensors", "old");
  const auto said = [&](const std::function<void(parx::process_group&, int)>& act) {
    return on_ranks(3, [&](parx::process_group& group) -> std::string {
      try {
        act(group, group.rank());
      } catch (const parx::error& failure) {
        return failure.what();
      }
      return "no error";
    });
  };
  for (const auto& each : said([&](parx::process_group& group, int rank) {
         auto list = parts_of(rank == 2 ? 0 : rank, 3);
         parx::save(group, parx::sharded_over(group), list, path);
       }))
    BOOST_TEST(mentions(each, "so some elements are on none of them"), each);
  for (const auto& each : said([&](parx::process_group& group, int rank) {
         auto list = parts_of(rank, 3);
         if (rank == 1) list[1].rename("other");
         parx::save(group, parx::sharded_over(group), list, path);
       }))
    BOOST_TEST(mentions(each, "other names, types or shapes"), each);
  BOOST_TEST(parx_test::read_file(path) == "old");
  BOOST_TEST(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}) == 1);
}

BOOST_AUTO_TEST_CASE(verify_names_what_is_wrong) {
  const scratch_folder scratch;
  const fs::path good = scratch.file("good"), bad = scratch.file("bad"), other = scratch.file("20");
  save(good.string(), 10);
  save(other.string(), 20);
  BOOST_TEST(parx::faults_of(good).empty());
  const auto after = [&](const std::function<void()>& damage) {
    fs::remove_all(bad);
    fs::copy(good, bad);
    damage();
    return parx::faults_of(bad);
  };
  const auto index = bad / "model.safetensors.index.json";

  auto faults = after([&] { overwrite(bad / shard(2), fs::file_size(bad / shard(2)) - 3, "!"); });
  BOOST_TEST_REQUIRE(faults.size() == 1U);
  BOOST_TEST(mentions(faults[0], shard(2) + ": its checksum is"), faults[0]);

  faults = after([&] { fs::remove(bad / shard(3)); });
  BOOST_TEST(any_mentions(faults, shard(3) + ": it is missing"));
  BOOST_TEST(any_mentions(faults, "the shard " + shard(3) + " is missing"));

  faults = after([&] {
    fs::copy_file(other / shard(1), bad / shard(1), fs::copy_options::overwrite_existing);
  });
  BOOST_TEST(any_mentions(faults, "is of step 20, but the other shards are of step 10"));

  // The table has rows of 8, of which the second shard has those from 17 to 33.
  faults = after([&] { replace_all(index, "[0, 17, 34]", "[0, 18, 34]"); });
  BOOST_TEST(any_mentions(faults, "model.safetensors.index.json: its checksum is"));
  BOOST_TEST(any_mentions(faults, "elements 136-143 are in none of the files"));
  faults = after([&] { replace_all(index, "[0, 17, 34]", "[0, 16, 34]"); });
  BOOST_TEST(any_mentions(faults, "elements 128-135 are in " + shard(1) + " and again in " +
                                      shard(2)));

  // A file whose header says otherwise than the index.
  faults = after([&] {
    fs::remove(bad / "manifest.json");
    replace_all(bad / shard(1), "\\\"table\\\": {\\\"cuts\\\": [[0, 0, 17]]",
                "\\\"table\\\": {\\\"cuts\\\": [[0, 3, 20]]");
  });
  BOOST_TEST(any_mentions(faults, "\"table\" are not the whole: elements 0-23 are in none"));
  BOOST_TEST(any_mentions(parx::faults_of(scratch.file("nowhere")), "holds no tensors"));
}

BOOST_AUTO_TEST_CASE(no_index_is_made_of_shards_of_two_steps) {
  const scratch_folder scratch;
  const fs::path ten = scratch.file("10"), twenty = scratch.file("20");
  save(ten.string(), 10);
  save(twenty.string(), 20);
  const std::vector<std::string> files{shard(1), shard(2), shard(3)};
  BOOST_TEST(parx::detail::index_of_files(ten, files).step == 10U);
  fs::copy_file(twenty / shard(2), ten / shard(2), fs::copy_options::overwrite_existing);
  const std::string told =
      parx_test::message_of([&] { (void)parx::detail::index_of_files(ten, files); });
  BOOST_TEST(mentions(told, shard(2), "it is of step 20, but " + shard(1) + " is of step 10"),
             told);
  // A reader of the old index says the same of the file that it opens.
  fs::remove(ten / "manifest.json");
  const std::string read = parx_test::message_of([&] {
    std::vector<parx::parameter<float>> all{{"table", parx::shape{50, 8}},
                                            {"proj", parx::shape{6, 20}}};
    parx::load(all, ten);
  });
  BOOST_TEST(mentions(read, shard(2), "is of step 20, but the other shards are of step 10"), read);
}

// As where a rank writes to a file system of its own, or a quota cuts a file behind its back.
BOOST_AUTO_TEST_CASE(
    a_file_that_rank_0_does_not_find_whole_is_an_error_on_all_and_nothing_appears) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  save(folder, 10);
  for (const bool is_gone : {true, false}) {
    const parx_test::file_events events([&](int file, const std::string& path) {
      if (!path.ends_with(shard(2))) return;
      struct stat status {};
      (void)::fstat(file, &status);
      BOOST_REQUIRE((is_gone ? ::unlink(path.c_str()) : ::ftruncate(file, status.st_size - 1)) ==
                    0);
    });
    const auto told = on_ranks(3, [&](parx::process_group& group) {
      return parx_test::message_of([&] {
        auto list = parts_of(group.rank(), 3, 1);
        parx::save(group, parx::sharded_over(group), list, folder);
      });
    });
    for (const std::string& each : told)
      BOOST_TEST(mentions(each, "rank 1 has written " + shard(2), "rank 0 does not find them"),
                 each);
    BOOST_TEST(parx::faults_of(folder).empty());
    BOOST_TEST(safetensors_shards(folder).step().value() == 10U);
    for (const auto& entry : fs::directory_iterator(fs::path(folder).parent_path()))
      BOOST_TEST((entry.path() == folder || entry.path().filename() == ".parx-lock"), entry.path());
  }
}

BOOST_AUTO_TEST_CASE(a_difference_is_named_with_its_size_and_place) {
  const scratch_folder scratch;
  const std::string a = scratch.file("a"), b = scratch.file("b"), one = scratch.file("one");
  save(a);
  save(b);
  fs::create_directories(one);
  parx::merge_shards(parx::safetensors_shards(a), one + "/model.safetensors");
  BOOST_TEST(differences_of(safetensors_shards(a), safetensors_shards(b)).empty());
  BOOST_TEST(
      differences_of(safetensors_shards(a), safetensors_shards(one)).empty());
  // The last two elements of a shard's data: "proj" of rank 1, row 5, columns 12 and 13.
  const float more[2]{116.0F, 3.0F};
  overwrite(fs::path(b) / shard(2), fs::file_size(fs::path(b) / shard(2)) - 8,
            {reinterpret_cast<const char*>(more), 8});
  const auto report = differences_of(safetensors_shards(a), safetensors_shards(b));
  BOOST_TEST(report.names.empty());
  BOOST_TEST_REQUIRE(report.values.size() == 1U);
  const auto& proj = report.values[0];
  BOOST_TEST(proj.name == "proj");
  BOOST_TEST(proj.elements == 2U);
  BOOST_TEST(proj.where == 113U);
  BOOST_TEST(proj.first == 113.5);
  BOOST_TEST(proj.second == 3.0);
  BOOST_TEST(proj.largest == 110.5);
}

BOOST_AUTO_TEST_CASE(more_shards_than_files_may_be_open_are_read_verified_and_merged) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("many");
  constexpr int ranks = 150;
  on_ranks(ranks, [&](parx::process_group& group) {
    std::vector<parx::parameter<float>> list{{"table", parx::shape{2 * ranks, 3}}};
    list[0].keep_part(list[0].spec().chunk(0, group.rank(), ranks));
    float* const values = list[0].allocate().data();
    list[0].spec().for_each_run([&](const parx::shard_run& run) {
      for (std::size_t i = 0; i < run.length; ++i) values[run.local + i] = element(run.global + i);
    });
    parx::save(group, parx::sharded_over(group), list, folder);
    return 0;
  });
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{100, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const std::string failure = parx_test::message_of([&] {
    for (int time = 0; time < 2; ++time) {
      const safetensors_shards shards(folder);
      std::vector<parx::parameter<float>> whole{{"table", parx::shape{2 * ranks, 3}}};
      static_cast<void>(whole[0].allocate());
      parx::load_state(whole, shards);
      const auto values = whole[0].value().span();
      parx::require(counts_up({values.begin(), values.end()}, 6 * ranks), "other values");
    }
    parx::require(parx::faults_of(folder).empty(), "damaged");
    // Of a shard that is replaced while it is read, the new one is not taken for the old.
    const safetensors_shards shards(folder);
    const auto* const table = shards.find("table");
    const auto nothing = [](const auto&...) {};
    shards.for_each_source(*table, parx::shard_spec::whole({2 * ranks, 3}), nothing);
    const fs::path first = fs::path(folder) / shards.files().front();
    fs::copy_file(first, scratch.file("copy"));
    fs::rename(scratch.file("copy"), first);
    const std::string said = parx_test::message_of([&] {
      shards.for_each_source(*table, parx::shard_spec::whole({2 * ranks, 3}), nothing);
    });
    parx::require(mentions(said, "was replaced while it was read"), "{}", said);
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  BOOST_TEST(failure == "nothing was thrown");
}
