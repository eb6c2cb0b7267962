"""The sockets of a job's processes: to throw garbage at, and to cut."""

import ctypes
import os
import random
import socket
import struct

LISTENING, ESTABLISHED = "0A", "01"


def _tcp_table():
    """inode -> (state, own port, peer's port)"""
    table = {}
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(name).readlines()[1:]:
            field = line.split()
            port = [int(field[i].rsplit(":", 1)[1], 16) for i in (1, 2)]
            table[field[9]] = (field[3], port[0], port[1])
    return table


def _inodes(pid):
    """inode -> descriptor of a process, for its sockets"""
    found = {}
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if target.startswith("socket:["):
                found[target[8:-1]] = int(descriptor)
    except OSError:
        pass  # it has ended meanwhile
    return found


def listening_ports():
    return sorted({own for state, own, _ in _tcp_table().values() if state == LISTENING})


def unix_names():
    """Names of all bound Unix sockets, abstract ones with their leading zero byte."""
    names = set()
    for line in open("/proc/net/unix").readlines()[1:]:
        field = line.split()
        if len(field) > 7:
            names.add(field[7].replace("@", "\0", 1) if field[7].startswith("@") else field[7])
    return sorted(names)


def connections(pids):
    """(rank, peer's rank, descriptor in the rank's process) of each connection between ranks."""
    table, owner, held = _tcp_table(), {}, []
    for rank, pid in enumerate(pids):
        for inode, descriptor in _inodes(pid).items():
            state, own, peer = table.get(inode, ("", 0, 0))
            if state == ESTABLISHED:
                owner[own, peer] = rank
                held.append((rank, own, peer, descriptor))
    return [(rank, owner[peer, own], descriptor)
            for rank, own, peer, descriptor in held if (peer, own) in owner]


def cut(pid, descriptor):
    """Resets a connection of another process, as a firewall does: both ends are told."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        copy = libc.syscall(438, pidfd, descriptor, 0)  # pidfd_getfd
        if copy < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        nowhere = struct.pack("H14x", socket.AF_UNSPEC)  # dissolves the association by a reset
        refused = libc.connect(copy, nowhere, len(nowhere))
        os.close(copy)
        if refused:
            raise OSError(ctypes.get_errno(), "connect to nowhere")
    finally:
        os.close(pidfd)


def throw_garbage(rng: random.Random):
    """At some of the ports and Unix sockets here; returns what must stay open during the job."""
    kept = []
    targets = [("127.0.0.1", port) for port in listening_ports()] + unix_names()
    for _ in range(rng.randint(1, 12) if targets else 0):
        target = rng.choice(targets)
        family = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
        try:
            end = socket.socket(family, socket.SOCK_STREAM)
            end.settimeout(0.2)
            end.connect(target)
        except OSError:
            end = socket.socket(family, socket.SOCK_DGRAM)  # some Unix sockets are no streams
            if family != socket.AF_UNIX:
                continue
            try:
                end.connect(target)
            except OSError:
                continue
        try:
            bytes_sent = rng.choice([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00",
                                     b"", b"\0" * 64, b"\xff" * 64,
                                     rng.randbytes(rng.randint(1, 5000))])
            if family == socket.AF_UNIX and rng.random() < 0.5:
                socket.send_fds(end, [bytes_sent or b"x"], [0] * rng.randint(1, 4))
            else:
                end.sendall(bytes_sent)
        except OSError:
            pass  # refused already
        how = rng.choice(["keep", "close", "reset"])
        if how == "keep":
            kept.append(end)
            continue
        if how == "reset" and family == socket.AF_INET:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()
    return kept
