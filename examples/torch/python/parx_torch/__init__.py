"""parx as a backend of torch.distributed:

    import parx_torch
    torch.distributed.init_process_group("parx")
"""

import atexit
import sys

import torch.distributed

from . import _C


def _leave():
    """The other ranks' calls end, with this rank's exception if that ended the program."""
    failure = getattr(sys, "last_value", None)
    _C.leave(f"{type(failure).__name__}: {failure}" if failure is not None else "")


def _register():
    """Called when this module is imported, or by the entry point torch.distributed.backends."""
    if hasattr(torch.distributed.Backend, "PARX"):
        return
    devices = {} if torch.__version__.startswith("1.") else {"devices": ["cpu"]}
    torch.distributed.Backend.register_backend("parx", _C.create, extended_api=True, **devices)
    atexit.register(_leave)


_register()
