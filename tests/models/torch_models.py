"""Trains BERT, GPT-2, Llama, an encoder-decoder, a CNN and an MLP for 20 steps in PyTorch: the same arithmetic, weights and batches
as models_test.cpp. Prints "model.loss", one number for each step."""
import math
import sys

try:
    import torch
except ImportError:
    sys.exit(77)
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
INFINITY = float("inf")


class Weights:
    """Parameters by name, made when they are first asked for; a function of the name and the index alone."""

    def __init__(self):
        self.all = {}

    def __call__(self, name, *shape):
        if name not in self.all:
            k = sum((j + 1) * ord(c) for j, c in enumerate(name)) % 1000
            n = math.prod(shape)
            i = torch.arange(n, dtype=torch.int64)
            value = ((i * 7919 + k * 104729) % 1009).double() / 1009 - 0.5
            scale = 0.2 if len(shape) > 1 else 0.1
            shift = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
            self.all[name] = (value * scale + shift).float().reshape(shape).requires_grad_()
        return self.all[name]


def tokens(step, batch, length, vocabulary):
    i = torch.arange(batch * length, dtype=torch.int64).reshape(batch, length)
    return (i * i * 13 + i * 7 + step % 4 * 101) % vocabulary


def split(x, heads):
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attend(q, k, v, heads, bias, kv_heads=None):
    q, k, v = split(q, heads), split(k, kv_heads or heads), split(v, kv_heads or heads)
    if kv_heads:
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias, -1)
    return (p @ v).transpose(1, 2).flatten(2)


def causal(length):
    return torch.triu(torch.full((length, length), -INFINITY), diagonal=1)


def padding(lengths, keys):
    bias = torch.zeros(len(lengths), 1, 1, keys)
    for b, n in enumerate(lengths):
        bias[b, :, :, n:] = -INFINITY
    return bias


def bert(w, step):
    batch, length, hidden = 4, 12, 16
    ids = tokens(step, batch, length, 100)

    def linear(x, name, out):
        return F.linear(x, w(f"{name}.weight", out, x.shape[-1]), w(f"{name}.bias", out))

    def norm(x, name):
        return F.layer_norm(x, (hidden,), w(f"{name}.weight", hidden), w(f"{name}.bias", hidden), 1e-12)

    e = "bert.embeddings."
    x = F.embedding(ids, w(e + "word_embeddings.weight", 100, hidden))
    x = x + w(e + "position_embeddings.weight", 20, hidden)[:length]
    x = x + w(e + "token_type_embeddings.weight", 2, hidden)[0]
    x = norm(x, e + "LayerNorm")
    for i in range(2):
        layer = f"bert.encoder.layer.{i}."
        q, k, v = (linear(x, f"{layer}attention.self.{part}", hidden) for part in ("query", "key", "value"))
        y = linear(attend(q, k, v, 2, padding([12, 5, 1, 9], length)), layer + "attention.output.dense", hidden)
        x = norm(y + x, layer + "attention.output.LayerNorm")
        y = linear(F.gelu(linear(x, layer + "intermediate.dense", 32)), layer + "output.dense", hidden)
        x = norm(y + x, layer + "output.LayerNorm")
    pooled = torch.tanh(linear(x[:, 0], "bert.pooler.dense", hidden))
    return F.cross_entropy(linear(pooled, "classifier", 4), torch.tensor([0, 3, 1, 2]))


def gpt(w, step):
    batch, length, hidden = 3, 12, 16
    ids = tokens(step, batch, length + 1, 50)

    def conv1d(x, name, out):
        return x @ w(f"{name}.weight", x.shape[-1], out) + w(f"{name}.bias", out)

    def norm(x, name):
        return F.layer_norm(x, (hidden,), w(f"{name}.weight", hidden), w(f"{name}.bias", hidden))

    wte = w("transformer.wte.weight", 50, hidden)
    x = F.embedding(ids[:, :-1], wte) + w("transformer.wpe.weight", 20, hidden)[:length]
    for i in range(2):
        h = f"transformer.h.{i}."
        q, k, v = conv1d(norm(x, h + "ln_1"), h + "attn.c_attn", 3 * hidden).chunk(3, -1)
        x = x + conv1d(attend(q, k, v, 2, causal(length)), h + "attn.c_proj", hidden)
        y = F.gelu(conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc", 4 * hidden), approximate="tanh")
        x = x + conv1d(y, h + "mlp.c_proj", hidden)
    logits = F.linear(norm(x, "transformer.ln_f"), wte)
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def llama(w, step):
    batch, length, hidden, heads, kv_heads = 3, 12, 16, 4, 2
    width = hidden // heads
    ids = tokens(step, batch, length + 1, 50)

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w(f"{name}.weight", hidden)

    def rotate(x):
        x = x.reshape(batch, length, -1, width)
        frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        c, s = (torch.cat((t, t), -1).float()[:, None] for t in (angle.cos(), angle.sin()))
        turned = torch.cat((-x[..., width // 2:], x[..., :width // 2]), -1)
        return (x * c + turned * s).flatten(2)

    def linear(x, name, out):
        return F.linear(x, w(f"{name}.weight", out, x.shape[-1]))

    x = F.embedding(ids[:, :-1], w("model.embed_tokens.weight", 50, hidden))
    for i in range(2):
        layer = f"model.layers.{i}."
        y = norm(x, layer + "input_layernorm")
        q = rotate(linear(y, layer + "self_attn.q_proj", hidden))
        k = rotate(linear(y, layer + "self_attn.k_proj", kv_heads * width))
        v = linear(y, layer + "self_attn.v_proj", kv_heads * width)
        x = x + linear(attend(q, k, v, heads, causal(length), kv_heads), layer + "self_attn.o_proj", hidden)
        y = norm(x, layer + "post_attention_layernorm")
        y = F.silu(linear(y, layer + "mlp.gate_proj", 24)) * linear(y, layer + "mlp.up_proj", 24)
        x = x + linear(y, layer + "mlp.down_proj", hidden)
    logits = linear(norm(x, "model.norm"), "lm_head", 50)
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def encoder_decoder(w, step):
    batch, keys, length, hidden, vocabulary = 3, 10, 7, 16, 40
    source, target = tokens(step, batch, keys, vocabulary), tokens(step + 1, batch, length + 1, vocabulary)

    def linear(x, name, out):
        return F.linear(x, w(f"{name}.weight", out, x.shape[-1]), w(f"{name}.bias", out))

    def norm(x, name):
        return F.layer_norm(x, (hidden,), w(f"{name}.weight", hidden), w(f"{name}.bias", hidden))

    def attention(x, memory, name, bias):
        weights = w(name + ".in_proj_weight", 3 * hidden, hidden).chunk(3)
        biases = w(name + ".in_proj_bias", 3 * hidden).chunk(3)
        q, k, v = (F.linear(t, a, b) for t, a, b in zip((x, memory, memory), weights, biases))
        return linear(attend(q, k, v, 2, bias), name + ".out_proj", hidden)

    def embed(ids):
        shared = w("shared.weight", vocabulary, hidden)
        t = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angle = t * 10000.0 ** (-torch.arange(0, hidden, 2, dtype=torch.float64) / hidden)
        positions = torch.stack((angle.sin(), angle.cos()), -1).flatten(1).float()
        return F.embedding(ids, shared) * math.sqrt(hidden) + positions

    def feed_forward(x, layer):
        return linear(F.relu(linear(x, layer + "linear1", 32)), layer + "linear2", hidden)

    seen = padding([10, 4, 7], keys)
    memory = embed(source)
    for i in range(2):
        layer = f"encoder.layers.{i}."
        y = norm(memory, layer + "norm1")
        memory = memory + attention(y, y, layer + "self_attn", seen)
        memory = memory + feed_forward(norm(memory, layer + "norm2"), layer)
    memory = norm(memory, "encoder.norm")
    x = embed(target[:, :-1])
    for i in range(2):
        layer = f"decoder.layers.{i}."
        y = norm(x, layer + "norm1")
        x = x + attention(y, y, layer + "self_attn", causal(length))
        x = x + attention(norm(x, layer + "norm2"), memory, layer + "multihead_attn", seen)
        x = x + feed_forward(norm(x, layer + "norm3"), layer)
    logits = F.linear(norm(x, "decoder.norm"), w("shared.weight", vocabulary, hidden))
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)


def images(step, *shape):
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    return (((i * i * 13 + i * 7 + step % 4 * 101) % 97).double() / 97 - 0.4).float().reshape(shape)


def labels(step, count):
    return (torch.arange(count, dtype=torch.int64) * 3 + step % 4) % 10


running = {}  # the CNN's statistics


def cnn(w, step, training=True):
    x = images(step, 6, 2, 13, 12)
    for i in (1, 2):
        channels = 4 * i
        x = F.conv2d(x, w(f"conv{i}.weight", channels, x.shape[1], 3, 3), w(f"conv{i}.bias", channels), padding=1)
        mean, variance = running.setdefault(i, (torch.zeros(channels), torch.ones(channels)))
        x = F.batch_norm(x, mean, variance, w(f"norm{i}.weight", channels), w(f"norm{i}.bias", channels), training)
        x = F.max_pool2d(F.relu(x), 2)
    x = x.flatten(1)
    x = F.relu(F.linear(x, w("hidden.weight", 16, x.shape[1]), w("hidden.bias", 16)))
    return F.cross_entropy(F.linear(x, w("classifier.weight", 10, 16), w("classifier.bias", 10)), labels(step, 6))


def mlp(w, step):
    x = images(step, 6, 20)
    x = F.relu(F.linear(x, w("0.weight", 16, 20), w("0.bias", 16)))
    x = F.relu(F.linear(x, w("2.weight", 16, 16), w("2.bias", 16)))
    return F.cross_entropy(F.linear(x, w("4.weight", 10, 16), w("4.bias", 10)), labels(step, 6))


for model in (bert, gpt, llama, encoder_decoder, cnn, mlp):
    weights = Weights()
    model(weights, 0)
    running.clear()
    if model in (cnn, mlp):
        optimizer = torch.optim.SGD(weights.all.values(), lr=0.05, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(weights.all.values(), lr=1e-3)
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        loss = model(weights, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"{model.__name__}.loss", *losses)
    print(f"{model.__name__}.parameters", sum(p.numel() for p in weights.all.values()))
    if model is cnn:
        print("cnn.evaluated", cnn(weights, 0, training=False).item())
