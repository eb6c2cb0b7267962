"""Prints what torch.optim makes of known values and gradients: "configuration.step value value ..."."""
import sys

try:
    import torch
except ImportError:
    sys.exit(77)


def grid(k, n=20):
    """The same exact numbers as in optim_test.cpp."""
    return torch.tensor([((i * 37 + k * 11) % 17 - 8) / 16 for i in range(n)], dtype=torch.float32)


configurations = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw_options": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3),
}

torch.set_num_threads(1)
for name, make in configurations.items():
    used = torch.nn.Parameter(grid(100))
    sometimes = torch.nn.Parameter(grid(101))
    optimizer = make([used, sometimes])
    for step in range(10):
        used.grad = grid(step)
        sometimes.grad = grid(step + 50) if step % 3 == 1 else None
        optimizer.step()
        print(f"{name}.{step}", *used.tolist(), *sometimes.tolist())

for limit in (0.5, 1000.0):
    a = torch.nn.Parameter(grid(0))
    b = torch.nn.Parameter(grid(1))
    a.grad, b.grad = grid(2), grid(3)
    norm = torch.nn.utils.clip_grad_norm_([a, b], limit)
    print(f"clip.{limit}", norm.item(), *a.grad.tolist(), *b.grad.tolist())

p = torch.nn.Parameter(grid(0))
optimizer = torch.optim.SGD([p], lr=0.4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.05)
rates = []
for step in range(21):
    rates.append(optimizer.param_groups[0]["lr"])
    optimizer.step()
    scheduler.step()
print("cosine", *rates)
