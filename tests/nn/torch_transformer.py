"""Prints outputs and gradients of PyTorch's transformer layers for known weights and inputs."""
import sys

try:
    import torch
except ImportError:
    sys.exit(77)
from torch import nn

torch.set_num_threads(1)


def grid(k, *shape):
    """The same exact numbers as in torch_values.hpp."""
    n = 1
    for extent in shape:
        n *= extent
    return torch.tensor([((i * 37 + k * 11) % 17 - 8) / 16 for i in range(n)], dtype=torch.float32).reshape(shape)


def report(name, model, inputs, call):
    for k, p in enumerate(model.parameters()):
        p.data = grid(k + 1, *p.shape) + (1 if "norm" in list(dict(model.named_parameters()))[k] else 0)
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = call(model, *inputs)
    (y * grid(9, *y.shape)).sum().backward()
    print(f"{name}.y", *y.flatten().tolist())
    for i, x in enumerate(inputs):
        print(f"{name}.dx{i}", *x.grad.flatten().tolist())
    for parameter_name, p in model.named_parameters():
        print(f"{name}.{parameter_name}", *p.grad.flatten().tolist())


x, memory = grid(0, 2, 5, 8), grid(5, 2, 7, 8)
causal = torch.triu(torch.full((5, 5), float("-inf")), diagonal=1)
padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])  # True: nobody looks
memory_padding = torch.tensor([[False] * 4 + [True] * 3, [False] * 7])

report("mha", nn.MultiheadAttention(8, 2, batch_first=True), [x],
       lambda m, a: m(a, a, a, attn_mask=causal, need_weights=False)[0])
report("cross", nn.MultiheadAttention(8, 4, bias=False, batch_first=True), [x, memory],
       lambda m, a, b: m(a, b, b, key_padding_mask=memory_padding, need_weights=False)[0])
# A grad-requiring input keeps PyTorch off its inference fast path; dropout is off.
for order, first in (("post", False), ("pre", True)):
    report(f"encoder_{order}", nn.TransformerEncoderLayer(8, 2, 12, 0.0, "relu", batch_first=True, norm_first=first),
           [x], lambda m, a: m(a, src_key_padding_mask=padding))
    report(f"decoder_{order}", nn.TransformerDecoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=first),
           [x, memory], lambda m, a, b: m(a, b, tgt_mask=causal, memory_key_padding_mask=memory_padding))
layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=True)
report("encoder_stack", nn.TransformerEncoder(layer, 2, nn.LayerNorm(8)), [x], lambda m, a: m(a))

logits = grid(3, 4, 5).requires_grad_()
loss = nn.functional.cross_entropy(logits, torch.tensor([1, -100, 4, 0]), label_smoothing=0.1)
loss.backward()
print("smoothed", loss.item(), *logits.grad.flatten().tolist())
