"""Writes torch_ops.txt: results and gradients of PyTorch's operations in float64, by name.

    python3 torch_ops.py > torch_ops.txt        (made with PyTorch 1.13.1)

A line is a name and numbers: NAME.y of the result, NAME.0, NAME.1 ... of the gradients of the inputs
for the upstream gradient grid(9, shape of the result), and NAME.special of special_values.
"""
import sys

try:
    import torch
except ImportError:
    sys.exit(77)
import torch.nn.functional as F

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
nan, inf = float("nan"), float("inf")
special_values = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 30.0, -30.0]


def grid(k, *shape):
    """The same exact numbers as in ops_test.cpp: none is 0, the first 17 differ."""
    n = 1
    for extent in shape:
        n *= extent
    return torch.tensor([((i * 37 + k * 11) % 17 - 8) / 16 + 1 / 64 for i in range(n)]).reshape(shape)


def show(name, values):
    print(name, *(repr(float(v)).replace("nan", "nan") for v in values.flatten().tolist()))


def case(name, f, *shapes, positive=()):
    inputs = [grid(k, *s) + (0.75 if k in positive else 0) for k, s in enumerate(shapes)]
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = f(*inputs)
    show(name + ".y", y)
    (y * grid(9, *y.shape)).sum().backward()
    for k, x in enumerate(inputs):
        show(f"{name}.{k}", torch.zeros_like(x) if x.grad is None else x.grad)


def unary(name, f, positive=False):
    case(name, f, (2, 8), positive=(0,) if positive else ())
    show(name + ".special", f(torch.tensor(special_values)))


def values(name, v):
    show(name + ".y", v.to(torch.float64))


mask = torch.tensor([[True, False, True], [False, False, True]])
index = torch.tensor([[1, 0, 1], [0, 0, 1]])
picks = torch.tensor([2, 0, 2])

# elementary.hpp
for name in "exp expm1 sqrt rsqrt log log2 log10 log1p square reciprocal abs sign floor ceil trunc round sin cos tan atan sinh cosh erf".split():
    unary(name, getattr(torch, name), positive=name in "sqrt rsqrt log log2 log10 reciprocal".split())
unary("asin", torch.asin)
unary("acos", torch.acos)
# compare.hpp
case("maximum", torch.maximum, (2, 3), (2, 3))
case("maximum_rows", torch.maximum, (2, 3), (3,))
case("maximum_ties", lambda a: torch.maximum(a, a.detach()), (2, 3))
case("minimum", torch.minimum, (2, 1), (2, 3))
unary("clamp", lambda x: x.clamp(-0.3, 0.2))
unary("clamp_min", lambda x: x.clamp(min=-0.1))
unary("clamp_max", lambda x: x.clamp(max=0.1))
case("where", lambda a, b: torch.where(mask, a, b), (2, 3), (3,))
case("masked_fill", lambda a: a.masked_fill(mask, 2.5), (2, 3))
case("lerp", lambda a, b: torch.lerp(a, b, 0.3), (2, 3), (2, 3))
for name, e in ("2", 2), ("3", 3), ("half", 0.5), ("1", 1), ("0", 0), ("minus_half", -0.5), ("minus_1", -1), ("minus_2", -2), ("other", 1.7):
    unary("pow_" + name, lambda x: x.pow(e), positive=True)
case("pow_of", torch.pow, (2, 3), (3,), positive=(0,))
case("pow_base", lambda x: torch.pow(2.0, x), (2, 3))
for name in "lt le gt ge eq ne".split():
    values(name, getattr(torch, name)(torch.tensor(special_values), torch.tensor(special_values).flip(0)))
# further_activations.hpp
unary("relu", F.relu)
unary("sigmoid", torch.sigmoid)
unary("tanh", torch.tanh)
unary("silu", F.silu)
unary("gelu", F.gelu)
unary("softplus", F.softplus)
unary("softplus_2_10", lambda x: F.softplus(x, 2, 10))
unary("leaky_relu", F.leaky_relu)
unary("leaky_relu_2", lambda x: F.leaky_relu(x, 0.2))
unary("elu", F.elu)
unary("elu_2", lambda x: F.elu(x, 0.2))
unary("selu", F.selu)
unary("celu", lambda x: F.celu(x, 0.5))
unary("hardtanh", lambda x: F.hardtanh(x, -0.2, 0.3))
unary("relu6", lambda x: F.relu6(x * 20))
unary("hardsigmoid", lambda x: ((x * 10 + 3) / 6).clamp(0, 1))  # F.hardsigmoid's slope is a float
unary("hardswish", lambda x: F.hardswish(x * 10))
unary("logsigmoid", F.logsigmoid)
unary("mish", F.mish)
unary("softsign", F.softsign)
case("prelu", F.prelu, (2, 3, 2), (3,))
case("glu", lambda x: F.glu(x, 1), (2, 4, 2))
# reductions.hpp
case("sum", lambda x: x.sum((0, 2)), (2, 3, 2))
case("mean", lambda x: x.mean(1), (2, 3, 2))
case("mean_all", torch.mean, (2, 3))
case("var", lambda x: x.var(1), (3, 4))
case("var_0", lambda x: x.var((0, 2), unbiased=False), (2, 3, 2))
case("var_all", torch.var, (3, 4))
case("stddev", lambda x: x.std(1), (3, 4))
case("max", lambda x: x.amax((1, 2)), (2, 3, 2))
case("max_ties", lambda x: x.round().amax(1), (2, 8))
case("min", lambda x: x.amin(0), (2, 3, 2))
case("max_all", torch.max, (2, 3))
case("min_all", torch.min, (2, 3))
case("max_at", lambda x: x.max(1)[0], (2, 3, 2))
case("min_at", lambda x: x.min(-1)[0], (2, 3, 2))
row = torch.tensor([[1.0, nan, 3.0, nan], [2.0, 5.0, 5.0, -1.0]])
values("argmax", row.argmax(1))
values("argmin", row.argmin(1))
values("amax_nan", row.amax(1))
values("amin_nan", row.amin(1))
case("logsumexp", lambda x: torch.logsumexp(x, (0, 2)), (2, 3, 2))
values("logsumexp_inf", torch.logsumexp(torch.tensor([[inf, 1.0], [-inf, -inf], [-inf, 2.0], [nan, 1.0]]), 1))
case("norm", lambda x: torch.norm(x, 2, 1), (3, 4))
case("norm_1", lambda x: torch.norm(x, 1, (0, 1)), (3, 4))
case("norm_3", lambda x: torch.norm(x, 3, 0), (3, 4))
case("norm_inf", lambda x: torch.norm(x, inf, 1), (3, 4))
case("norm_0", lambda x: torch.norm(x, 0, 1) + 0 * x.sum(), (3, 4))
case("norm_all", torch.norm, (3, 4))
case("prod", lambda x: x.prod(1), (2, 3, 2))
case("prod_zeros", lambda x: torch.floor(x * 4 + 0.1).prod(0) + x.prod(0), (2, 3, 2))
case("cumsum", lambda x: x.cumsum(1), (2, 3, 2))
case("cumsum_last", lambda x: x.cumsum(-1), (2, 4))
case("softmax", lambda x: x.softmax(1), (2, 3, 2))
case("log_softmax", lambda x: x.log_softmax(-1), (2, 3))
# index.hpp
case("gather", lambda x: x.gather(0, index), (2, 3))
case("gather_1", lambda x: x.gather(1, index), (3, 4))
case("scatter_add", lambda x, s: x.scatter_add(0, index, s), (2, 3), (2, 3))
case("scatter_add_1", lambda x, s: x.scatter_add(1, index, s), (3, 4), (2, 3))
case("scatter", lambda x, s: x.scatter(1, torch.tensor([[1, 0, 2], [0, 2, 1]]), s), (2, 3), (2, 3))
case("index_select", lambda x: x.index_select(1, picks), (2, 3, 2))
case("index_select_last", lambda x: x.index_select(-1, picks), (2, 3))
case("index_add", lambda x, s: x.index_add(0, picks, s), (3, 2), (3, 2))
case("masked_select", lambda x: x.masked_select(mask), (2, 3))
values("one_hot", F.one_hot(index, 3))
case("sort", lambda x: x.sort(1)[0], (2, 5))
case("sort_down", lambda x: x.sort(0, descending=True)[0], (3, 4))
values("sort_places", row.sort(stable=True, dim=1)[1])
values("sort_places_down", row.sort(stable=True, dim=1, descending=True)[1])
case("topk", lambda x: x.topk(2, 1)[0], (2, 5))
case("topk_smallest", lambda x: x.topk(2, 0, largest=False)[0], (3, 4))
# arrange.hpp
case("concat", lambda a, b: torch.cat((a, b), 1), (2, 3), (2, 1))
case("stack", lambda a, b: torch.stack((a, b), -1), (2, 3), (2, 3))
case("split", lambda x: x.split(2, 1)[1] * 2, (2, 3))
case("split_sizes", lambda x: x.split((1, 2), 1)[1], (2, 3))
case("chunk", lambda x: x.chunk(2, 0)[0], (5, 2))
case("unbind", lambda x: x.unbind(1)[2], (2, 3))
case("expand", lambda x: x.expand(4, 2, 3), (2, 1))
case("movedim", lambda x: x.movedim(0, 2), (2, 3, 4))
case("repeat", lambda x: x.repeat(2, 1, 3), (2, 2))
case("repeat_interleave", lambda x: x.repeat_interleave(2, 0), (2, 2))
case("flip", lambda x: x.flip((0, 2)), (2, 3, 2))
case("roll", lambda x: x.roll(1, 1), (2, 4))
case("roll_back", lambda x: x.roll(-5, 0), (3, 2))
case("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), (2, 3))
for mode in "reflect", "replicate", "circular":
    case("pad_" + mode, lambda x: F.pad(x, (2, 1), mode), (1, 2, 4))
case("triu", lambda x: x.triu(1), (2, 3, 4))
case("tril", lambda x: x.tril(-1), (3, 3))
# einsum.hpp
case("einsum_matmul", lambda a, b: torch.einsum("ij,jk->ik", a, b), (2, 3), (3, 4))
case("einsum_batched", lambda a, b: torch.einsum("bij,bkj->bik", a, b), (2, 2, 3), (2, 4, 3))
case("einsum_implicit", lambda a, b: torch.einsum("ba,ca", a, b), (2, 3), (4, 3))
case("einsum_heads", lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), (2, 3, 2, 2), (2, 4, 2, 2))
case("einsum_outer", lambda a, b: torch.einsum("i,j->ji", a, b), (2,), (3,))
case("einsum_trace", lambda a: torch.einsum("ii->", a), (3, 3))
case("einsum_diagonal", lambda a: torch.einsum("iji->ji", a), (3, 2, 3))
case("einsum_sum", lambda a: torch.einsum("ij->j", a), (2, 3))
case("einsum_dots", lambda a, b: torch.einsum("...d,de->...e", a, b), (2, 3, 4), (4, 2))
case("einsum_three", lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), (2, 3), (3, 2), (2, 4))
case("einsum_left_sum", lambda a, b: torch.einsum("ijm,jk->k", a, b), (2, 3, 2), (3, 4))
case("bmm", torch.bmm, (2, 2, 3), (2, 3, 2))
case("mv", torch.mv, (2, 3), (3,))
case("dot", torch.dot, (3,), (3,))
case("outer", torch.outer, (2,), (3,))
# conv_transpose.hpp
case("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), (2, 2, 7), (3, 2, 3), (3,))
case("conv1d_groups", lambda x, w: F.conv1d(x, w, dilation=2, padding=2, groups=2), (2, 4, 6), (4, 2, 3))
case("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
     (2, 2, 3, 4), (2, 3, 3, 3), (3,))
case("conv_transpose2d_groups", lambda x, w: F.conv_transpose2d(x, w, groups=2, dilation=2), (2, 4, 2, 3), (4, 1, 2, 3))
case("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=3, padding=1, output_padding=2),
     (2, 2, 4), (2, 3, 3), (3,))
# further_pools.hpp
case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), (2, 2, 7))
case("avg_pool1d", lambda x: F.avg_pool1d(x, 2, 1), (2, 2, 5))
case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), (2, 2, 7))
case("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), (2, 2, 7))
case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (2, 3)), (1, 2, 5, 7))
# upsample.hpp
case("upsample", lambda x: F.interpolate(x, scale_factor=2), (1, 2, 2, 3))
case("upsample_to", lambda x: F.interpolate(x, (3, 7)), (1, 2, 2, 3))
case("upsample_linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (1, 2, 3))
case("upsample_bilinear", lambda x: F.interpolate(x, (3, 7), mode="bilinear", align_corners=False), (1, 2, 4, 3))
case("upsample_corners", lambda x: F.interpolate(x, (5, 4), mode="bilinear", align_corners=True), (1, 2, 2, 3))
case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (1, 8, 2, 1))
case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 3), (4,), (4,))
case("instance_norm", lambda x: F.instance_norm(x), (2, 3, 4))
# losses.hpp
labels = torch.tensor([2, -100, 0])
case("l1_loss", F.l1_loss, (2, 3), (2, 3))
case("smooth_l1_loss", lambda p, t: F.smooth_l1_loss(p, t, beta=0.3), (2, 3), (2, 3))
case("huber_loss", lambda p, t: F.huber_loss(p, t, delta=0.3), (2, 3), (2, 3))
case("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, (2, 3), (2, 3), positive=(1,))
case("binary_cross_entropy_pos_weight",
     lambda p, t: F.binary_cross_entropy_with_logits(p, t, pos_weight=torch.tensor(3.0)), (2, 3), (2, 3), positive=(1,))
case("binary_cross_entropy", lambda p, t: F.binary_cross_entropy(p.sigmoid(), t.sigmoid()), (2, 3), (2, 3))
case("nll_loss", lambda x: F.nll_loss(x, labels), (3, 4))
case("nll_loss_weight", lambda x: F.nll_loss(x, labels, torch.tensor([0.5, 1.0, 2.0, 0.0])), (3, 4))
case("kl_div", lambda x, t: F.kl_div(x, t), (2, 3), (2, 3), positive=(1,))
case("kl_div_batch", lambda x, t: F.kl_div(x, t, reduction="batchmean", log_target=True), (2, 3), (2, 3))
case("cosine_embedding_loss", lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1.0, -1.0, -1.0]), 0.1), (3, 4), (3, 4))
case("triplet_margin_loss", lambda a, p, n: F.triplet_margin_loss(a, p, n), (3, 4), (3, 4), (3, 4))
case("margin_ranking_loss", lambda a, b: F.margin_ranking_loss(a, b, torch.tensor([1.0, -1.0, 1.0]), 0.2), (3,), (3,))
case("gaussian_nll_loss", F.gaussian_nll_loss, (2, 3), (2, 3), (2, 3), positive=(2,))
# recurrent.hpp: x, states, weights and biases
case("gru_cell", lambda x, h, a, b, c, d: torch.gru_cell(x, h, a, b, c, d), (3, 4), (3, 2), (6, 4), (6, 2), (6,), (6,))
case("gru_cell_without_bias", lambda x, h, a, b: torch.gru_cell(x, h, a, b), (3, 4), (3, 2), (6, 4), (6, 2))
case("lstm_cell", lambda x, h, c, a, b, d, e: torch.cat(torch.lstm_cell(x, (h, c), a, b, d, e), 1), (3, 4), (3, 2), (3, 2), (8, 4), (8, 2), (8,), (8,))
# The layers' weights follow the inputs.
def recurrent(name, make, shape, states):
    layers = make()
    for k, p in enumerate(layers.parameters()):
        p.data = grid(k + 1, *p.shape)
    x = grid(0, *shape).requires_grad_()
    first = [grid(k + 2, *s).requires_grad_() for k, s in enumerate(states)]
    y, last = layers(x, first[0] if len(first) == 1 else tuple(first)) if first else layers(x)
    last = [last] if isinstance(last, torch.Tensor) else last
    loss = (y * grid(9, *y.shape)).sum()
    for k, each in enumerate(last):
        loss = loss + (each * grid(k + 3, *each.shape)).sum()
    loss.backward()
    show(name + ".y", torch.cat([y.flatten()] + [each.flatten() for each in last]))
    show(name + ".dx", torch.cat([x.grad.flatten()] + [each.grad.flatten() for each in first]))
    for n, p in layers.named_parameters():
        show(f"{name}.{n}", p.grad)


from torch import nn
recurrent("gru", lambda: nn.GRU(3, 2, 2), (3, 2, 3), [(2, 2, 2)])
recurrent("gru_bidirectional", lambda: nn.GRU(2, 2, 1, bidirectional=True, batch_first=True), (2, 3, 2), [])
recurrent("lstm", lambda: nn.LSTM(3, 2, 2), (3, 2, 3), [(2, 2, 2), (2, 2, 2)])
recurrent("lstm_bidirectional", lambda: nn.LSTM(2, 2, 1, bidirectional=True, bias=False), (3, 2, 2), [])
