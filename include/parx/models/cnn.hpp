// cnn: an image classifier of two convolutions, each with batch norm, ReLU and a pooling of 2 x 2,
// and two linear layers: the network that courses train on MNIST, Fashion-MNIST and CIFAR-10.
//
// Norm is the norm after each convolution. The model's constructor passes further arguments on to
// it: cnn<float, sync_batch_norm<float>>{config, world} normalises over the images of all ranks.
// LeCun et al.: Gradient-Based Learning Applied to Document Recognition (1998); batch norm: Ioffe,
// Szegedy (arXiv 1502.03167).
#pragma once

#include <cstddef>
#include <optional>

#include <parx/autograd/ops/activation.hpp>
#include <parx/autograd/ops/pool.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/check.hpp>
#include <parx/core/json.hpp>
#include <parx/nn/batch_norm.hpp>
#include <parx/nn/conv.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/linear.hpp>

namespace parx::inline PARX_ABI::models {

/// Whether batch norms follow the convolutions.
enum class cnn_norm { batch, none };

/// The numbers are those of MNIST's images.
struct cnn_config {
  std::size_t image_channels = 1;
  std::size_t image_rows = 28;
  std::size_t image_columns = 28;
  std::size_t hidden_channels = 32;  ///< of the first convolution; the second makes twice as many
  std::size_t hidden_size = 128;     ///< of the first linear layer
  std::size_t num_labels = 10;
  double classifier_dropout = 0.25;  ///< before the last layer
  cnn_norm norm = cnn_norm::batch;
};

/// The config.json of such a model, for save_pretrained().
[[nodiscard]] inline json::value to_json(const cnn_config& c) {
  return json::object{{"model_type", "parx_cnn"},
                      {"image_channels", c.image_channels},
                      {"image_rows", c.image_rows},
                      {"image_columns", c.image_columns},
                      {"hidden_channels", c.hidden_channels},
                      {"hidden_size", c.hidden_size},
                      {"num_labels", c.num_labels},
                      {"classifier_dropout", c.classifier_dropout},
                      {"norm", c.norm == cnn_norm::batch ? "batch" : "none"}};
}

template <typename T = float, typename Norm = nn::batch_norm<T>>
class cnn : public nn::module<cnn<T, Norm>> {
 public:
  using value_type = T;

  /// `others` are the further arguments of Norm's constructor. Throws usage_error when the images
  /// are smaller than the two poolings.
  template <typename... Others>
  explicit cnn(cnn_config config = {}, Others&... others)
      : config_(config),
        conv1_(config.image_channels, config.hidden_channels, 3, convolution(config)),
        conv2_(config.hidden_channels, 2 * config.hidden_channels, 3, convolution(config)),
        hidden_(2 * config.hidden_channels * (config.image_rows / 4) * (config.image_columns / 4),
                config.hidden_size, {.activation = activation::relu}),
        dropout_(config.classifier_dropout),
        classifier_(config.hidden_size, config.num_labels) {
    require(config.image_rows >= 4 && config.image_columns >= 4,
            "cnn: nothing is left of images of {} x {} pixels after two poolings of 2 x 2",
            config.image_rows, config.image_columns);
    if (config.norm == cnn_norm::none) return;
    norm1_.emplace(config.hidden_channels, others...);
    norm2_.emplace(2 * config.hidden_channels, others...);
  }

  [[nodiscard]] const cnn_config& config() const noexcept { return config_; }

  /// The logits (n, num_labels) of images (n, image_channels, image_rows, image_columns). Throws
  /// usage_error for other shapes.
  [[nodiscard]] variable<T> forward(const variable<T>& images) {
    require(images.rank() == 4 && images.extent(1) == config_.image_channels &&
                images.extent(2) == config_.image_rows && images.extent(3) == config_.image_columns,
            "cnn: images of shape {} are not (n, {}, {}, {})", to_string(images.shape()),
            config_.image_channels, config_.image_rows, config_.image_columns);
    const variable<T> small = reduced(conv2_, norm2_, reduced(conv1_, norm1_, images));
    return classifier_(dropout_(hidden_(flatten(small))));
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("conv1", conv1_);
    if (norm1_) visit("norm1", *norm1_);
    visit("conv2", conv2_);
    if (norm2_) visit("norm2", *norm2_);
    visit("hidden", hidden_);
    visit("dropout", dropout_);
    visit("classifier", classifier_);
  }

 private:
  /// Without a norm the ReLU is fused into the convolution.
  [[nodiscard]] static nn::conv2d_options convolution(const cnn_config& c) {
    return {.padding = 1,
            .activation = c.norm == cnn_norm::none ? activation::relu : activation::none};
  }
  [[nodiscard]] static variable<T> reduced(nn::conv2d<T>& conv, std::optional<Norm>& norm,
                                           const variable<T>& x) {
    const variable<T> y = conv(x);
    return max_pool2d(norm ? relu((*norm)(y)) : y, {.size = 2});
  }

  cnn_config config_;
  nn::conv2d<T> conv1_, conv2_;
  std::optional<Norm> norm1_, norm2_;
  nn::linear<T> hidden_;
  nn::dropout dropout_;
  nn::linear<T> classifier_;
};

}  // namespace parx::models
