"""How PyTorch finds the installed parx_torch without an import in the program, and what a program is
told where its compiled part is missing. With the sources' folder as argument.

PyTorch 2.5 and newer is stood in for by a package that has of it what its documentation says of the
autoload mechanism: the last thing that `import torch` does is to call the entry points of the group
torch.backends, and what one of them throws ends the import.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ENDS = """
from importlib.metadata import entry_points
for each in entry_points(group="torch.backends"):
    each.load()()
"""
STANDS_IN = """
class Backend:
    registered = []
    @classmethod
    def register_backend(cls, name, function, extended_api=False, devices=None):
        cls.registered.append((name, extended_api, devices))
        setattr(cls, name.upper(), name)
def is_available():
    return True
"""
ALONE = """
from importlib.metadata import entry_points
import torch, torch.distributed as dist
(point,) = entry_points(group="torch.distributed.backends", name="parx")
point.load()()
point.load()()
def init():
    dist.init_process_group("parx", store=dist.HashStore(), rank=0, world_size=1)
"""
SUMS = """
init()
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [1, 1, 1]
dist.destroy_process_group()
"""
SAYS = """
try:
    init()
except ImportError as failure:
    assert "pip install --force-reinstall --no-build-isolation" in str(failure), failure
else:
    raise AssertionError("there is a compiled part")
"""
ONCE = "import torch; assert torch.distributed.Backend.registered == [('parx', True, ['cpu'])]\n"


def run(what, program, *folders):
    """The folders come first in the path, then that of the installed package."""
    text = "import sys\n" + f"sys.path[0:1] = {[str(each) for each in folders]}\n" + program
    ended = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=60)
    print(f"{'FAILED' if ended.returncode else 'right':6}  {what}\n{ended.stdout}", end="")
    return ended.returncode != 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder, "torch")
        Path(stand_in, "distributed").mkdir(parents=True)
        Path(stand_in, "__init__.py").write_text("__version__ = '2.5.0'\n" + ENDS)
        Path(stand_in, "distributed/__init__.py").write_text(STANDS_IN)
        return any([
            run("torch.backends, by `import torch` of 2.5", ONCE, folder),
            run("torch.backends, by `import parx_torch` first", "import parx_torch\n" + ONCE, folder),
            run("torch.backends, without a compiled part", ONCE, folder, sys.argv[1]),
            run("torch.distributed.backends", ALONE + SUMS),
            run("without a compiled part", ALONE + SAYS, sys.argv[1]),
        ])


if __name__ == "__main__":
    sys.exit(main())
