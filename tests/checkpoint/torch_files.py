# Reads the safetensors file argv[1] with PyTorch and prints its tensors; writes argv[2], another one,
# for the test to read. The format is put together by hand here: `safetensors` is not in Debian.
import json
import struct
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
         "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
         "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {torch_type: name for name, torch_type in TYPES.items()}


def load(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    assert (8 + length) % 8 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]),
                                         dtype=TYPES[info["dtype"]]).reshape(info["shape"])
    return tensors


def save(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy())
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


tensors = load(sys.argv[1])
for name, tensor in tensors.items():
    print(name, *tensor.double().flatten().tolist())
layer = torch.nn.Linear(3, 4)
layer.load_state_dict(tensors)
torch.manual_seed(5)
save(sys.argv[2], {"weight": torch.randn(4, 3).to(torch.bfloat16),
                   "bias": torch.arange(4).to(torch.float64) / 8,
                   "mask": torch.tensor([True, False])})
