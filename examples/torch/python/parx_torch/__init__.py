"""parx as a backend of torch.distributed:

    import parx_torch
    torch.distributed.init_process_group("parx")

Once it is installed, PyTorch 2.5 and newer need no import.
"""

import atexit
import sys

# PyTorch is imported below: its own import may call _register, by an entry point, while this module
# is being imported.


def _leave():
    """The other ranks' calls end, with this rank's exception if that ended the program."""
    if "_C" in globals():
        failure = getattr(sys, "last_value", None)
        _C.leave(f"{type(failure).__name__}: {failure}" if failure is not None else "")


def _create(options, of_backend):
    """The first group loads what was compiled, so that it cannot break `import torch`."""
    try:
        from . import _C
    except ImportError as failure:
        raise ImportError(
            f"parx_torch in {__path__[0]} has no part that was compiled for this Python and "
            f"PyTorch {torch.__version__} ({failure}). In parx's folder: pip install "
            "--force-reinstall --no-build-isolation examples/torch/python; start programs outside "
            "of examples/torch/python"
        ) from failure
    return _C.create(options, of_backend)


def _register():
    """By the import of this module, and by PyTorch's entry points: torch.backends at the end of its
    import, or torch.distributed.backends when the backend is asked for."""
    global torch
    import torch.distributed

    if not torch.distributed.is_available() or hasattr(torch.distributed.Backend, "PARX"):
        return
    devices = {} if torch.__version__.startswith("1.") else {"devices": ["cpu"]}
    torch.distributed.Backend.register_backend("parx", _create, extended_api=True, **devices)
    atexit.register(_leave)


_register()
