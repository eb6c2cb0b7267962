// placement_tour: an MLP whose matrices are cut over the ranks, by hand.
//
//   parxrun -n 2 placement_tour
//
// A tensor's placement over the ranks is part of its type, and only transitions change it.
// Uncomment one of the mistakes below: it does not compile, and the compiler says what to write
// instead.
#include <parx/tensor_parallel.hpp>

#include "placements/algebra.hpp"
#include "placements/transitions.hpp"

using namespace parx::tp;
using parx::tensor;
using parx::variable;

/// Chunk `rank` of axis `dim`, as a parameter. All ranks make the same whole matrix first.
template <int dim>
sharded<float, dim> own(const tensor<float>& whole, const axis& ranks) {
  const auto begin = [&](int r) { return parx::chunk_begin(whole.extent(dim), ranks.size(), r); };
  const auto part = whole.slice(dim, begin(ranks.rank()), begin(ranks.rank() + 1));
  return sharded<float, dim>(variable<float>(part.clone(), parx::gradient::wanted));
}

int main() {
  return parx::run([](parx::world& world) {
    axis ranks{world};
    const std::size_t batch = 4, width = 6, hidden = 8;
    const auto numbers = [](const parx::shape& s) { return tensor<float>::iota(s, -8, 1); };

    // invariant: the same on all ranks, like everything outside of tensor parallelism.
    const variable<float> input(numbers({batch, width}), parx::gradient::wanted);
    const invariant x(input);
    const invariant bias(variable<float>(tensor<float>::ones({width}), parx::gradient::wanted));

    // W1 (hidden, width) is cut by its outputs, W2 (width, hidden) by its inputs: rank r computes
    // some of the hidden units, from one end to the other, and nothing is sent between the two.
    const sharded<float, 0> w1 = own<0>(numbers({hidden, width}), ranks);
    const sharded<float, 1> w2 = own<1>(numbers({width, hidden}), ranks);

    // The ranks use x for different things, so its gradient is the sum of theirs. The type is
    // replicated, and the backward of copy_to computes the sum.
    const replicated<float> used = copy_to(ranks, x);
    const sharded<float, -1> h = relu(column_linear(used, w1));
    // column_linear(x, w1);     // "without it the gradient of x lacks the columns of the others"
    // column_linear(h, w1);     // "needs whole inputs: gather_from<replicated>(axis, chunk)"
    // copy_to(ranks, used);     // "a second copy_to sums its gradient twice"

    // Each rank multiplies its hidden units with its part of W2: summands of the result.
    const partial<float> summand = row_linear(h, w2);
    // relu(summand);            // "a function of a sum is not the sum of functions"
    // summand + bias;           // "is added once per rank: reduce_from(axis, sums) + term"
    // row_linear(used, w2);     // "needs some columns of its inputs: scatter_to<-1>(axis, x)"

    // All ranks have the sum again, and the bias is added once.
    const invariant<float> y = reduce_from(ranks, summand) + bias;
    // reduce_from(ranks, y);    // "its sum over the ranks counts it once per rank"
    // y + h;                    // "a whole tensor beside a chunk: scatter_to<dim>, or gather_from"

    const invariant<float> loss = sum(y * y);
    loss.backward();
    // used.backward();          // "a replicated loss counts once per rank"

    parx::print0(world, "{} ranks, loss {}, first gradient of x {}, of W1 {}\n", world.size(),
                 loss.local().item(), input.grad().data()[0], w1.local().grad().data()[0]);
  });
}
