// Models that are cut over ranks: saved in parts, and loaded at other numbers of ranks.
#include <parx/tensor_parallel/plans.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <bytes_read.hpp>
#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <messages.hpp>

#include <parx/checkpoint/save.hpp>
#include <parx/checkpoint/pretrained.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/state_dict.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/mesh.hpp>
#include <parx/parallel.hpp>
#include <parx/tensor_parallel.hpp>

using namespace parx::models;

namespace {

/// At 4 ranks the heads of keys are whole, at 2 they are cut.
llama<> small() {
  return llama<>({.vocab_size = 37, .hidden_size = 16, .intermediate_size = 22,
                  .num_hidden_layers = 1, .num_attention_heads = 4, .num_key_value_heads = 2,
                  .max_position_embeddings = 16});
}

/// What of a model on this rank is not that of seed 5.
std::string unlike_seed_5(llama<>& model, llama<> whole) {
  whole.initialize(5);
  std::vector<parx::parameter<float>> expected = whole.parameters();
  std::string wrong;
  std::size_t at = 0;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    const float* const values = expected[at++].value().data();
    p.spec().for_each_run([&](const parx::shard_run& run) {
      for (std::size_t i = 0; i < run.length; ++i) {
        if (p.value().data()[run.local + i] != values[run.global + i]) wrong = path + " differs";
      }
    });
  });
  return wrong;
}

void require_loads(const std::string& from, std::vector<int> worlds) {
  for (const int world : worlds) {
    const auto wrong = on_ranks(world, [&](parx::process_group& group) {
      auto model = small();
      const auto cut = parx::parallelize(model, group, parx::tp::ready_plan(model));
      parx::load(group, model, from);
      return unlike_seed_5(model, small());
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", world << " ranks: " << each);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_four_ranks_have_saved_in_parts_loads_at_one_two_and_four) {
  const parx_test::scratch_folder scratch;
  on_ranks(4, [&](parx::process_group& group) {
    auto model = small();
    const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model));
    model.initialize(5);
    parx::save(group, tp.sharded(), model, scratch.file("tp4"));
    return 0;
  });
  require_loads(scratch.file("tp4"), {1, 2, 4});
}

BOOST_AUTO_TEST_CASE(a_mesh_with_data_parallel_ranks_saves_every_part_once) {
  const parx_test::scratch_folder scratch;
  on_ranks(4, [&](parx::process_group& world) {
    parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
    auto model = small();
    const auto tp = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
    model.initialize(5);
    parx::save(world, tp.sharded_over(world, mesh["dp"]), model, scratch.file("mesh"));
    return 0;
  });
  require_loads(scratch.file("mesh"), {1, 2});
}

BOOST_AUTO_TEST_CASE(a_ddp_over_cut_layers_names_its_line_and_what_saves_all_parts) {
  const parx_test::scratch_folder scratch;
  const auto said = on_ranks(2, [&](parx::process_group& group) -> std::string {
    auto model = small();
    const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model));
    model.initialize(5);
    try {
      parx::process_group alone = group.subgroup(std::array{group.rank()});
      parx::ddp ddp{model, alone};
      parx::save(ddp, scratch.file("part.safetensors"));
    } catch (const std::exception& wrong) {
      parx::save(group, tp.sharded(), model, scratch.file("all.safetensors"));
      return wrong.what();
    }
    return "saved";
  });
  BOOST_TEST(said[0].find("checkpoint_test.cpp:") != std::string::npos, said[0]);
  BOOST_TEST(said[0].find("this rank holds ") != std::string::npos, said[0]);
  BOOST_TEST(
      said[0].find("parx::save(group, tp.sharded(), model, path)") != std::string::npos,
      said[0]);
  BOOST_TEST(said[1].find("this rank holds ") != std::string::npos, said[1]);
  require_loads(scratch.file("all.safetensors"), {1, 2});  // the group is still usable
}

BOOST_AUTO_TEST_CASE(one_file_of_a_whole_model_is_read_in_parts) {
  const parx_test::scratch_folder scratch;
  auto whole = small();
  whole.initialize(5);
  parx::save_state(whole, scratch.file("model.safetensors"));
  require_loads(scratch.file("model.safetensors"), {2, 4});
}

namespace {

llama_config hugging_face_config() {
  return {.vocab_size = 1009, .hidden_size = 64, .intermediate_size = 176, .num_hidden_layers = 2,
          .num_attention_heads = 8, .num_key_value_heads = 4, .max_position_embeddings = 16};
}

/// A folder as transformers writes it, of seed 5: one file, or several and an index.
void write_hugging_face(const parx_test::scratch_folder& folder, std::size_t files) {
  llama<> whole(hugging_face_config());
  whole.initialize(5);
  std::vector<std::vector<parx::tensor_to_store>> stored(files);
  std::string weight_map;
  const auto name_of = [&](std::size_t i) {
    return files == 1 ? std::string("model.safetensors")
                      : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files);
  };
  std::size_t next = 0;
  whole.for_each_parameter([&](const std::string& path, auto& p) {
    const std::size_t file = next++ % files;
    stored[file].push_back({path, parx::dtype::float32, {p.shape().begin(), p.shape().end()},
                            std::as_bytes(p.value().span())});
    weight_map += fmt::format(R"({}"{}": "{}")", next == 1 ? "" : ", ", path, name_of(file));
  });
  for (std::size_t i = 0; i < files; ++i)
    parx::write_safetensors(folder.file(name_of(i)), stored[i]);
  if (files > 1)
    (void)folder.write("model.safetensors.index.json",
                       fmt::format(R"({{"metadata": {{}}, "weight_map": {{{}}}}})", weight_map));
  (void)folder.write("config.json", parx::json::dump(to_json(hugging_face_config())));
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_rank_reads_its_part_of_hugging_faces_files_and_hardly_any_other_byte) {
  for (const std::size_t files : {1U, 3U}) {
    const parx_test::scratch_folder scratch;
    write_hugging_face(scratch, files);
    for (const int world : {2, 4}) {
      const auto wrong = on_ranks(world, [&](parx::process_group& group) -> std::string {
        llama<> model(hugging_face_config());
        const auto cut = parx::parallelize(model, group, parx::tp::ready_plan(model));
        std::uint64_t own = 0, whole = 0;
        model.for_each_parameter([&](const std::string&, auto& p) {
          own += p.size() * sizeof(float);
          whole += p.global_shape().size() * sizeof(float);
        });
        const std::uint64_t before = bytes_read();
        parx::load_pretrained(model, parx::json::object{}, scratch.file(""));
        const std::uint64_t read = bytes_read() - before;
        // Headers, the index and the configuration.
        if (read < own || read > own + 8'000)
          return fmt::format("{} bytes of {} are read for {}", read, whole, own);
        if (own * static_cast<std::uint64_t>(world) > whole + whole / 50) return "little is cut";
        return unlike_seed_5(model, llama<>(hugging_face_config()));
      });
      for (const std::string& each : wrong)
        BOOST_TEST(each == "", files << " files, " << world << " ranks: " << each);
    }
  }
}

namespace {

llama<> tied_llama() {
  return llama<>({.vocab_size = 24,
                                .hidden_size = 16,
                                .intermediate_size = 16,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 2,
                                .num_key_value_heads = 2,
                                .max_position_embeddings = 8,
                                .embeddings = word_embeddings::tied});
}

/// Loads `from` into a model that wrap(model, group, use) hands to use(wrapper) on two ranks, and
/// returns the file `to` that all write then; or the error of rank 0.
template <typename Wrap>
std::string loaded_by_two(const std::string& from, const std::string& to, Wrap wrap) {
  return on_ranks(2, [&](parx::process_group& group) {
    return parx_test::message_of([&] {
      auto model = tied_llama();
      wrap(model, group, [&](auto& wrapper) {
        parx::load(wrapper, from);
        parx::save(wrapper, to);
      });
    });
  })[0];
}

}  // namespace

// Other programs write a tied matrix under the output's name.
BOOST_AUTO_TEST_CASE(a_tied_matrix_loads_under_every_wrapper_by_the_name_of_the_output) {
  const parx_test::scratch_folder scratch;
  auto saved = tied_llama();
  saved.initialize(1);
  const parx::state_dict values(saved);
  const std::string embedding = "model.embed_tokens.weight", output = "lm_head.weight";
  const auto write = [&](const std::string& name, float added) {
    std::vector<parx::tensor_to_store> stored;
    std::vector<parx::tensor<float>> memory;
    for (const parx::stored_tensor& each : values.tensors()) {
      memory.push_back(values.at<float>(each.name));
      if (each.name != embedding || added != 0)
        stored.push_back({each.name, parx::dtype::float32, each.shape,
                          std::as_bytes(memory.back().span())});
    }
    auto matrix = values.at<float>(embedding);
    matrix.data()[matrix.size() - 1] += added;
    stored.push_back({output, parx::dtype::float32, {24, 16}, std::as_bytes(matrix.span())});
    parx::write_safetensors(scratch.file(name), stored);
  };
  write("output", 0);
  write("both", 1);
  const auto check = [&](const char* what, auto wrap) {
    const std::string to = scratch.file(std::string(what) + ".safetensors");
    BOOST_TEST(loaded_by_two(scratch.file("output"), to, wrap) == "nothing was thrown", what);
    auto read = tied_llama();
    parx::load_state(read, to);
    const parx::state_dict found(read);
    for (const parx::stored_tensor& each : values.tensors())
      BOOST_TEST(found.at<float>(each.name).span() == values.at<float>(each.name).span(),
                 boost::test_tools::per_element());
    const std::string told = loaded_by_two(scratch.file("both"), to, wrap);
    BOOST_TEST(parx_test::mentions(told, embedding + " and " + output +
                                             ": one tensor in the model, two in the file that "
                                             "differ at element 383"),
               what << ": " << told);
  };
  for (const int stage : {1, 2, 3}) {
    check("fsdp", [stage](auto& model, parx::process_group& group, auto use) {
      parx::fsdp fsdp{model, group, {.stage = stage, .units = parx::by_size(1 << 10)}};
      use(fsdp);
    });
  }
  check("tp", [](auto& model, parx::process_group& group, auto use) {
    parx::parallel cut{model, group, {.tp = 2}};
    use(cut);
  });
  check("pipeline", [](auto& model, parx::process_group& group, auto use) {
    parx::parallel pipe{model, group, {.pp = 2}};
    use(pipe);
  });
}
