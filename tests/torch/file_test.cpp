// A LibTorch model as a safetensors file.
#include <parx/torch.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

namespace nn = torch::nn;

namespace {

nn::Sequential layers_of(int channels) {
  nn::Sequential model(nn::Conv2d(3, channels, 3), nn::BatchNorm2d(channels));
  torch::Tensor weight = model->parameters()[0];
  weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  return model;
}

bool are_equal(nn::Sequential& a, nn::Sequential& b) {
  for (const auto& item : a->named_parameters()) {
    if (!torch::equal(item.value(), b->named_parameters()[item.key()])) return false;
  }
  for (const auto& item : a->named_buffers()) {
    if (!torch::equal(item.value(), b->named_buffers()[item.key()])) return false;
  }
  return true;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_was_saved_is_loaded_and_nothing_of_another_model) {
  char name[] = "/tmp/parx_torch_XXXXXX";
  BOOST_REQUIRE(::mkdtemp(name) != nullptr);
  const std::filesystem::path folder = name;
  const std::string path = folder / "model.safetensors";

  nn::Sequential saved = layers_of(4), loaded = layers_of(4), other = layers_of(5);
  saved->named_buffers()["1.num_batches_tracked"].fill_(17);
  BOOST_TEST(!are_equal(saved, loaded));
  parx::save_torch(*saved, path);
  parx::load_torch(*loaded, path);
  BOOST_TEST(are_equal(saved, loaded));
  BOOST_TEST(loaded->parameters()[0].is_contiguous(at::MemoryFormat::ChannelsLast));

  // In the file elements are row-major, as Python writes them.
  const parx::safetensors_file file(path);
  const parx::stored_tensor* const weight = file.find("0.weight");
  BOOST_REQUIRE(weight != nullptr);
  const torch::Tensor stored = torch::empty({4, 3, 3, 3});
  file.read(*weight, std::as_writable_bytes(std::span(stored.data_ptr<float>(), 108)));
  BOOST_TEST(torch::equal(stored, saved->parameters()[0]));

  const torch::Tensor before = other->parameters()[1].detach().clone();
  BOOST_CHECK_EXCEPTION(parx::load_torch(*other, path), parx::error, [](const parx::error& e) {
    BOOST_TEST_MESSAGE(e.what());
    return std::string(e.what()).find(
               "\"0.weight\" is F32 [4, 3, 3, 3] there and Float [5, 3, 3, 3]") !=
           std::string::npos;
  });
  BOOST_TEST(torch::equal(other->parameters()[1], before));
  nn::Sequential longer(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::Linear(2, 2));
  BOOST_CHECK_EXCEPTION(parx::load_torch(*longer, path), parx::error, [](const parx::error& e) {
    return std::string(e.what()).find("no tensor \"2.weight\"") != std::string::npos;
  });
  std::filesystem::remove_all(folder);
}
