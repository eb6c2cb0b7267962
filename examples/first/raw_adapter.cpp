// DDP around hand-written backward code: logistic regression over Eigen matrices, no parx::nn
// involved.
//   parxrun -n 4 build/release/bin/raw_adapter
#include <Eigen/Dense>

#include <parx/ddp.hpp>
#include <parx/ddp/raw.hpp>

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Points of four classes around four centres; sample i is the same on whatever rank draws it.
struct points {
  matrix x;
  Eigen::VectorXi y;
};
points draw(int begin, int end) {
  points p{matrix(end - begin, 2), Eigen::VectorXi(end - begin)};
  for (int i = begin; i < end; ++i) {
    std::srand(static_cast<unsigned>(i) * 2654435761u + 1);
    const int label = i % 4;
    const Eigen::RowVector2f centre(label % 2 == 0 ? -1.f : 1.f, label < 2 ? -1.f : 1.f);
    p.x.row(i - begin) = centre + 0.9f * Eigen::RowVector2f::Random();
    p.y(i - begin) = label;
  }
  return p;
}

int main() {
  return parx::run([](parx::world& world) {
    matrix weight = matrix::Random(2, 4);
    Eigen::VectorXf bias = Eigen::VectorXf::Zero(4);

    parx::raw_module<float> model;
    const auto w = model.add("weight", weight, {2, 4});
    const auto b = model.add("bias", bias);
    parx::ddp ddp{model, world};  // weight and bias are rank 0's from here on
    Eigen::Map<matrix> weight_grad(model.grad(w).data(), 2, 4);
    Eigen::Map<Eigen::VectorXf> bias_grad(model.grad(b).data(), 4);

    // 1000 samples, dealt as evenly as possible; the gradient is that of their common mean anyway.
    const auto begin = static_cast<int>(parx::chunk_begin(1000, world.size(), world.rank()));
    const auto end = static_cast<int>(parx::chunk_begin(1000, world.size(), world.rank() + 1));
    const points mine = draw(begin, end);
    for (int step = 0; step < 200; ++step) {
      matrix probability = ((mine.x * weight).rowwise() + bias.transpose()).array().exp();
      probability.array().colwise() /= probability.rowwise().sum().array().eval();
      double loss = 0;
      double right = 0;
      for (int i = 0; i < probability.rows(); ++i) {
        Eigen::Index best = 0;
        probability.row(i).maxCoeff(&best);
        right += best == mine.y(i) ? 1 : 0;
        loss -= std::log(probability(i, mine.y(i)));
        probability(i, mine.y(i)) -= 1;  // now the gradient of the loss by the logits
      }
      auto pass = model.begin_backward(static_cast<double>(mine.x.rows()));
      bias_grad = probability.colwise().sum().transpose();
      pass.ready(b);  // travels while the next gradient is computed
      weight_grad = mine.x.transpose() * probability;
      pass.ready(w);
      pass.end();
      weight -= 0.5f * weight_grad;
      bias -= 0.5f * bias_grad;
      if (step % 50 == 49) {
        const auto count = static_cast<double>(mine.x.rows());
        const double mean_loss = parx::global_mean(world, loss, count);
        const double accuracy = parx::global_mean(world, right, count);
        parx::print0(world, "step {}: loss {:.4f}, accuracy {:.1f} %\n", step + 1, mean_loss,
                     100 * accuracy);
      }
    }
    parx::print0(world, "replicas are {}\n", ddp.replicas_equal() ? "bit-equal" : "different");
  });
}
