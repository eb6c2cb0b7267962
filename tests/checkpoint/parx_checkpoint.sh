#!/bin/bash
# What parx_checkpoint's command line promises, on files that a Python program writes and reads by the
# description of the formats alone:   parx_checkpoint.sh PATH_TO_PARX_CHECKPOINT
set -u
program=$1
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 0; }

# says CODE TEXT ARGUMENT...: ends with that code and says TEXT.
says() {
  local wanted=$1 text=$2 said code=0; shift 2
  said=$(timeout 20 "$program" "$@" 2>&1) || code=$?
  [ "$code" = "$wanted" ] && [[ $said == *"$text"* ]] && return
  failures=$((failures + 1))
  printf 'FAILED: parx_checkpoint %s\n    code %s, not %s with: %s\n    %s\n' "$*" "$code" "$wanted" "$text" "$said"
}

python3 - <<'PYTHON' || exit 1
import json, os, struct

def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, shape, values in tensors:
        packed = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)

# w of shape [2, 3] is 0 .. 5: columns 0 and 1 in one file, column 2 in the other, where b is.
os.mkdir("parts"); os.mkdir("other")
files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
def shards(folder, last, begin):
    w = lambda cut: json.dumps({"w": {"shape": [2, 3], "cuts": [cut]}})
    write(folder + "/" + files[0], [("w", [2, 2], [0, 1, 3, 4])],
          {"parx.parts": w([1, 0, 2]), "parx.step": "5"})
    write(folder + "/" + files[1], [("w", [2, 3 - begin], [2, last]), ("b", [1], [7])],
          {"parx.parts": w([1, begin, 3]), "parx.step": "5"})
    index = {"metadata": {"total_size": 28, "format": "parx shards 1", "step": 5},
             "weight_map": {"w": files[0], "b": files[1]}, "files": files,
             "parts": {"w": {"dtype": "F32", "shape": [2, 3],
                             "in": [[0, {"cuts": [[1, 0, 2]]}], [1, {"cuts": [[1, begin, 3]]}]]},
                       "b": {"dtype": "F32", "shape": [1], "in": [[1, {}]]}}}
    json.dump(index, open(folder + "/model.safetensors.index.json", "w"))
shards("parts", 5, 2)
shards("other", 5.5, 2)
PYTHON

says 0 'w  F32              24 B  [2, 3]' info parts
says 0 'is whole' verify parts
says 0 '' merge parts merged.safetensors
says 0 'no differences' diff parts merged.safetensors
says 1 'w: 1 elements differ, most by 0.5: element 5 is 5 and 5.5' diff parts other
rm other/model-00002-of-00002.safetensors
says 1 'the shard model-00002-of-00002.safetensors is missing' verify other
says 2 'the shard model-00002-of-00002.safetensors is missing' merge other merged.safetensors
mkdir -p run/runs && cp -r parts run/checkpoint-5 && cp -r parts run/checkpoint-10
for command in info verify; do
  says 2 'parx_checkpoint: "run" is the folder of a run, whose checkpoints are below: give "run/checkpoint-10" (of checkpoint-5, checkpoint-10)' $command run
done
says 2 '"run/runs" has no .safetensors files' info run/runs
says 2 'there is no "nowhere"' diff parts nowhere
# A file of any name is the one that is read, and named.
cp merged.safetensors blob
printf 'root:x:0:0:root:/root:/bin/bash\n' > passwd
says 0 'w  F32              24 B  [2, 3]' info blob
says 0 'w  F32              24 B  [2, 3]' info merged
says 0 '"blob" is whole' verify blob
says 0 'no differences' diff blob parts
says 0 '"merged" is whole' verify merged
says 2 'parx_checkpoint: "passwd"' info passwd
says 2 "\"$folder/passwd\"" info "$folder/passwd"
says 1 'passwd"' verify passwd
says 2 'passwd"' merge passwd other.safetensors
says 2 'there is no command "inof": did you mean info?' inof run
says 2 'Usage:' frobnicate
says 0 'Usage:' --help

python3 - <<'PYTHON' || failures=$((failures + 1))
import json, struct
file = open("merged.safetensors", "rb").read()
length, = struct.unpack("<Q", file[:8])
header = json.loads(file[8:8 + length])
def values(name):
    begin, end = header[name]["data_offsets"]
    return list(struct.unpack("<%df" % ((end - begin) // 4), file[8 + length + begin:8 + length + end]))
assert header["w"]["shape"] == [2, 3] and values("w") == [0, 1, 2, 3, 4, 5], header
assert header["b"]["shape"] == [1] and values("b") == [7], header
PYTHON

[ "$failures" = 0 ] || exit 1
echo "parx_checkpoint keeps what it promises"
