#include "../../examples/first/placements/algebra.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <tensor_parallel/dense.hpp>

#include <parx/tensor_parallel/axis.hpp>
#include "../../examples/first/placements/transitions.hpp"

using namespace parx::tp;
using parx::tensor;
using parx::variable;

namespace {

constexpr std::size_t rows = 6, width = 5, hidden = 7;

/// relu(x W1^T) W2^T + b, with its gradients, by hand.
struct dense_mlp {
  tensor<float> x = integers({rows, width}, 1), w1 = integers({hidden, width}, 2),
                w2 = integers({width, hidden}, 3), b = integers({width}, 4),
                upstream = integers({rows, width}, 5);
  tensor<float> y, dx, dw1, dw2, db = tensor<float>::zeros({width});

  dense_mlp() {
    const auto t = [](const tensor<float>& m) { return m.transpose(0, 1).contiguous(); };
    const auto z = product(x, t(w1));
    const auto h = parx::map([](float v) { return v > 0 ? v : 0; }, z);
    y = product(h, t(w2));
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < width; ++j) {
        y.at(i, j) += b.data()[j];
        db.data()[j] += upstream.at(i, j);
      }
    }
    dw2 = product(t(upstream), h);
    const auto dz = parx::map([](float u, float v) { return v > 0 ? u : 0; },
                              product(upstream, w2), z);
    dw1 = product(t(dz), x);
    dx = product(dz, w1);
  }
};

variable<float> leaf(const tensor<float>& value) { return {value, parx::gradient::wanted}; }

template <typename Body>
void on_axes(Body body) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::string& wrong : on_ranks(ranks, [&](parx::process_group& group) {
           axis a{group};
           return std::string(body(a));
         })) {
      BOOST_TEST(wrong == "", ranks << " ranks: " << wrong);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(column_then_row_is_the_dense_mlp_to_the_last_bit) {
  on_axes([](axis& a) -> std::string {
    const dense_mlp dense;
    const auto own = [&](const tensor<float>& t, int dim) {
      return chunk_of(t, dim, a.rank(), a.size());
    };
    const auto x = leaf(dense.x), b = leaf(dense.b);
    const auto w1 = leaf(own(dense.w1, 0)), w2 = leaf(own(dense.w2, 1));
    const auto h = column_linear(copy_to(a, invariant(x)), sharded<float, 0>(w1));
    const auto y = reduce_from(a, row_linear(relu(h), sharded<float, 1>(w2))) + invariant(b);
    y.local().backward_from(dense.upstream);
    if (!equal(y.local().value(), dense.y)) return "y";
    if (!equal(x.grad(), dense.dx)) return "the gradient of x";
    if (!equal(w1.grad(), own(dense.dw1, 0))) return "the gradient of w1";
    if (!equal(w2.grad(), own(dense.dw2, 1))) return "the gradient of w2";
    if (!equal(b.grad(), dense.db)) return "the gradient of b";
    return "";
  });
}

BOOST_AUTO_TEST_CASE(sequence_parallel_is_the_same_mlp_with_rows_cut_outside_of_it) {
  on_axes([](axis& a) -> std::string {
    const dense_mlp dense;
    const auto own = [&](const tensor<float>& t, int dim) {
      return chunk_of(t, dim, a.rank(), a.size());
    };
    const auto x = leaf(own(dense.x, 0)), b = leaf(dense.b);
    const auto w1 = leaf(own(dense.w1, 0)), w2 = leaf(own(dense.w2, 1));
    const auto whole = gather_from<replicated>(a, sharded<float, 0>(x), rows);
    const auto h = relu(column_linear(whole, sharded<float, 0>(w1)));
    const auto y = reduce_scatter_from<0>(a, row_linear(h, sharded<float, 1>(w2)));
    // The bias is used by the rows of all ranks: copy_to sums its gradient.
    const auto z = y.local() + copy_to(a, invariant(b)).local();
    z.backward_from(own(dense.upstream, 0));
    if (!equal(z.value(), own(dense.y, 0))) return "y";
    if (!equal(x.grad(), own(dense.dx, 0))) return "the gradient of x";
    if (!equal(w1.grad(), own(dense.dw1, 0))) return "the gradient of w1";
    if (!equal(w2.grad(), own(dense.dw2, 1))) return "the gradient of w2";
    if (!equal(b.grad(), dense.db)) return "the gradient of b";
    return "";
  });
}

BOOST_AUTO_TEST_CASE(products_of_matrices_that_are_cut_are_the_dense_product) {
  on_axes([](axis& a) -> std::string {
    const auto left = integers({5, 6}, 1), right = integers({6, 7}, 2);
    const auto upstream = integers({5, 7}, 3), expected = product(left, right);
    const auto dleft = product(upstream, right.transpose(0, 1).contiguous());
    const auto dright = product(left.transpose(0, 1).contiguous(), upstream);
    const auto own = [&](const tensor<float>& t, int dim) {
      return chunk_of(t, dim, a.rank(), a.size());
    };
    {  // the inner axis is cut
      const auto l = leaf(own(left, 1)), r = leaf(own(right, 0));
      const auto y = reduce_from(a, matmul(sharded<float, 1>(l), sharded<float, 0>(r)));
      y.local().backward_from(upstream);
      if (!equal(y.local().value(), expected)) return "S(1) x S(0)";
      if (!equal(l.grad(), own(dleft, 1)) || !equal(r.grad(), own(dright, 0)))
        return "the gradients of S(1) x S(0)";
    }
    {  // columns
      const auto l = leaf(left), r = leaf(own(right, 1));
      const auto y = gather_from(a, matmul(copy_to(a, invariant(l)), sharded<float, 1>(r)), 7);
      y.local().backward_from(upstream);
      if (!equal(y.local().value(), expected)) return "R x S(1)";
      if (!equal(l.grad(), dleft) || !equal(r.grad(), own(dright, 1)))
        return "the gradients of R x S(1)";
    }
    {  // rows
      const auto l = leaf(own(left, 0)), r = leaf(right);
      const auto y = gather_from(a, matmul(sharded<float, 0>(l), copy_to(a, invariant(r))), 5);
      y.local().backward_from(upstream);
      if (!equal(y.local().value(), expected)) return "S(0) x R";
      if (!equal(l.grad(), own(dleft, 0)) || !equal(r.grad(), dright))
        return "the gradients of S(0) x R";
    }
    return "";
  });
}

BOOST_AUTO_TEST_CASE(partial_sums_are_added_scaled_and_multiplied_with_what_is_replicated) {
  on_axes([](axis& a) -> std::string {
    // (3 (s + t) r, summed) for s and t that are sums of integers over the ranks.
    const auto mine = [&](std::uint64_t seed) {
      return integers({4}, seed + static_cast<std::uint64_t>(a.rank()));
    };
    auto s = tensor<float>::zeros({4});
    for (int r = 0; r < a.size(); ++r) {
      for (const std::uint64_t seed : {10U, 20U})
        s = plus(s, integers({4}, seed + static_cast<std::uint64_t>(r)));
    }
    const auto factor = integers({4}, 30), upstream = integers({4}, 40);
    const auto p = leaf(mine(10)), q = leaf(mine(20)), f = leaf(factor);
    const auto y =
        reduce_from(a, 3.0F * (partial(p) + partial(q)) * copy_to(a, invariant(f)));
    y.local().backward_from(upstream);
    for (std::size_t i = 0; i < 4; ++i) {
      const float u = upstream.data()[i];
      if (y.local().value().data()[i] != 3 * s.data()[i] * factor.data()[i]) return "the value";
      if (p.grad().data()[i] != 3 * u * factor.data()[i]) return "the gradient of a summand";
      if (f.grad().data()[i] != 3 * u * s.data()[i]) return "the gradient of the factor";
    }
    return "";
  });
}

BOOST_AUTO_TEST_CASE(a_norm_on_sequence_shards_has_the_gradients_of_the_norm_of_all_rows) {
  on_axes([](axis& a) -> std::string {
    const auto x = integers({rows, width}, 1), upstream = integers({rows, width}, 2);
    const auto gain = integers({width}, 3), shift = integers({width}, 4);
    const auto xs = leaf(x), gains = leaf(gain), shifts = leaf(shift);
    const auto whole = parx::layer_norm(xs, gains, shifts);
    whole.backward_from(upstream);
    const auto own = [&](const tensor<float>& t) { return chunk_of(t, 0, a.rank(), a.size()); };
    const auto here = leaf(own(x)), g = leaf(gain), b = leaf(shift);
    const auto y = layer_norm(sharded<float, 0>(here), copy_to(a, invariant(g)),
                              copy_to(a, invariant(b)));
    y.local().backward_from(own(upstream));
    const auto near = [](const tensor<float>& p, const tensor<float>& q) {
      for (std::size_t i = 0; i < p.size(); ++i) {
        if (std::abs(p.contiguous().data()[i] - q.contiguous().data()[i]) > 1e-5F) return false;
      }
      return p.shape() == q.shape();
    };
    if (!near(y.local().value(), own(whole.value()))) return "y";
    if (!near(here.grad(), own(xs.grad()))) return "the gradient of x";
    if (!near(g.grad(), gains.grad())) return "the gradient of the scale";
    if (!near(b.grad(), shifts.grad())) return "the gradient of the shift";
    return "";
  });
}

BOOST_AUTO_TEST_CASE(the_sum_of_chunks_is_a_part_of_the_sum_and_a_loss_of_it_counts_once) {
  on_axes([](axis& a) -> std::string {
    const auto x = integers({rows, width}, 1);
    const auto here = leaf(chunk_of(x, 1, a.rank(), a.size()));
    const sharded<float, 1> shard(here);
    const auto loss = reduce_from(a, sum(shard * shard));
    loss.backward();
    float expected = 0;
    for (const float v : x) expected += v * v;
    if (loss.local().item() != expected) return "the loss";
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (here.grad().data()[i] != 2 * here.value().data()[i]) return "the gradient";
    }
    return "";
  });
}
