"""Prints outputs and gradients of PyTorch's layers for known weights and inputs."""
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


def report(name, model, x, wants_dx=True):
    for k, p in enumerate(model.parameters()):
        p.data = grid(k + 1, *p.shape)
    x = x.clone().requires_grad_(wants_dx)
    y = model(x)
    (y * grid(9, *y.shape)).sum().backward()
    print(f"{name}.y", *y.flatten().tolist())
    if wants_dx:
        print(f"{name}.dx", *x.grad.flatten().tolist())
    for parameter_name, p in model.named_parameters():
        print(f"{name}.{parameter_name}", *p.grad.flatten().tolist())


report("linear", nn.Linear(5, 3), grid(0, 4, 5))
report("linear_plain", nn.Linear(5, 3, bias=False), grid(0, 2, 2, 5))
report("conv2d", nn.Conv2d(2, 3, 3, padding=1), grid(0, 2, 2, 5, 6))
report("conv2d_stride", nn.Conv2d(2, 3, 2, stride=2, bias=False), grid(0, 1, 2, 4, 6))
report("conv2d_dilation", nn.Conv2d(2, 3, 3, padding=2, dilation=2), grid(0, 2, 2, 5, 6))
report("conv2d_groups", nn.Conv2d(4, 6, 3, padding=1, groups=2), grid(0, 2, 4, 5, 6))
report("conv2d_depthwise", nn.Conv2d(4, 4, 3, stride=2, dilation=2, padding=3, groups=4), grid(0, 2, 4, 5, 6))
for name, f in ("relu", nn.ReLU()), ("gelu", nn.GELU()):
    report("conv2d_" + name, nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), f), grid(0, 2, 2, 5, 6))
report("layer_norm", nn.LayerNorm(6), grid(0, 3, 6))
report("max_pool2d", nn.MaxPool2d(2), grid(0, 1, 2, 4, 6))
report("max_pool2d_odd", nn.MaxPool2d(2), grid(0, 2, 3, 5, 7))
report("avg_pool2d", nn.AvgPool2d(3, 2, 1), grid(0, 1, 2, 5, 6))
report("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, 3)), grid(0, 1, 2, 5, 7))
report("relu", nn.ReLU(), grid(0, 3, 4))
report("gelu", nn.GELU(), grid(0, 3, 4))
report("gelu_tanh", nn.GELU(approximate="tanh"), grid(0, 3, 4))
report("silu", nn.SiLU(), grid(0, 3, 4))
for name, f in ("relu", nn.ReLU()), ("gelu", nn.GELU()), ("gelu_tanh", nn.GELU(approximate="tanh")), ("silu", nn.SiLU()):
    report("linear_" + name, nn.Sequential(nn.Linear(5, 3), f), grid(0, 4, 5))
report("tanh", nn.Tanh(), grid(0, 3, 4))
report("sigmoid", nn.Sigmoid(), grid(0, 3, 4))
report("sequential", nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)),
       grid(0, 2, 1, 6, 6))

norm = nn.BatchNorm2d(3)
report("batch_norm", norm, grid(0, 4, 3, 2, 2))
for name, buffer in norm.named_buffers():
    print(f"batch_norm.{name}", *buffer.flatten().tolist())
norm.eval()
norm.zero_grad()
report("batch_norm_eval", norm, grid(2, 4, 3, 2, 2))

embedding = nn.Embedding(5, 3)
embedding.weight.data = grid(1, 5, 3)
y = embedding(torch.tensor([[4, 0], [4, 2]]))
(y * grid(9, 2, 2, 3)).sum().backward()
print("embedding.y", *y.flatten().tolist())
print("embedding.weight", *embedding.weight.grad.flatten().tolist())

logits = grid(3, 4, 5).requires_grad_()
loss = nn.functional.cross_entropy(logits, torch.tensor([1, -100, 4, 0]))
loss.backward()
print("cross_entropy", loss.item(), *logits.grad.flatten().tolist())
prediction = grid(3, 4, 5).requires_grad_()
loss = nn.functional.mse_loss(prediction, grid(4, 4, 5))
loss.backward()
print("mse", loss.item(), *prediction.grad.flatten().tolist())
