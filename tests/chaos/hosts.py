"""A second host for a trial: a network namespace joined to the trial's own by a cable of two ends."""

import os
import subprocess
import time

ADDRESS, OTHER_ADDRESS = "10.77.0.1", "10.77.0.2"
NOBODY = "02:00:00:00:00:99"


class SecondHost:
    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        own = os.readlink("/proc/self/ns/net")
        for _ in range(500):
            if os.readlink(f"/proc/{self.holder.pid}/ns/net") != own:
                break
            time.sleep(0.01)
        self.inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        self._ip("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
                 str(self.holder.pid))
        for inside, address in ([], ADDRESS), (self.inside, OTHER_ADDRESS):
            self._ip("address", "add", f"{address}/24", "dev", "cable", inside=inside)
            self._ip("link", "set", "cable", "up", inside=inside)
            self._ip("link", "set", "lo", "up", inside=inside)

    def separate(self):
        """From now on every packet goes to nobody, and nobody is told."""
        for inside, address in ([], OTHER_ADDRESS), (self.inside, ADDRESS):
            self._ip("neighbour", "replace", address, "lladdr", NOBODY, "dev", "cable",
                     "nud", "permanent", inside=inside)

    def close(self):
        self.holder.kill()
        self.holder.wait()

    @staticmethod
    def _ip(*arguments, inside=()):
        subprocess.run([*inside, "ip", *arguments], check=True)
