"""ReFrame: whether an installed parx works on a site, and how fast it is.

    reframe -C SITE.py -c cmake/recipes/reframe/parx_check.py -r

It loads the module `parx` (-S modules=... names another one) and runs on two nodes. What the site
expects of the network stands in references.json beside this file, in GB/s with the shares by which
a result may be below and above it; a system without an entry is measured and not judged:

    {"cluster:cpu": {"all_reduce": [9.5, -0.1, null], "all_gather": [10.2, -0.1, null]}}
"""
import json
import os

import reframe as rfm
import reframe.utility.sanity as sn


def references_for(operation):
    """As ReFrame has them: {"cluster:cpu": {"busbw": (value, lower, upper, unit)}}."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'references.json')
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        systems = json.load(file)
    return {
        system: {'busbw': (*operations[operation], 'GB/s')}
        for system, operations in systems.items()
        if operation in operations
    }


@rfm.simple_test
class parx_hello(rfm.RegressionTest):
    """A program of a user: compiled with what the module gives, and run over two nodes."""

    descr = 'hello_all_reduce, compiled and run on 2 nodes with 2 ranks each'
    valid_systems = ['*']
    valid_prog_environs = ['*']
    modules = ['parx']
    sourcesdir = '../../../examples/first'
    sourcepath = 'hello_all_reduce.cpp'
    build_system = 'SingleSource'
    build_locally = False
    num_tasks = 4
    num_tasks_per_node = 2
    num_cpus_per_task = 1
    time_limit = '10m'

    @run_before('compile')
    def set_flags(self):
        self.build_system.cxxflags = ['-std=c++20', '-O2', '$(pkg-config --cflags parx)']
        self.build_system.ldflags = ['$(pkg-config --libs parx)']

    @sanity_function
    def every_rank_has_the_sum(self):
        total = self.num_tasks * (self.num_tasks - 1) // 2
        line = rf'^\[RANK (\d+)\] WORLD_SIZE={self.num_tasks} sum of ranks = {total}$'
        ranks = sn.extractall(line, self.stdout, 1, int)
        return sn.assert_eq(sn.sorted(ranks), list(range(self.num_tasks)))


@rfm.simple_test
class parx_bandwidth(rfm.RunOnlyRegressionTest):
    """The bus bandwidth of a collective, with every element checked."""

    operation = parameter(['all_reduce', 'all_gather', 'reduce_scatter', 'broadcast'])
    descr = 'bandwidth of a collective of 64 MiB between 2 nodes'
    valid_systems = ['*']
    valid_prog_environs = ['*']
    modules = ['parx']
    executable = 'parx-bench'
    num_tasks = 2
    num_tasks_per_node = 1
    time_limit = '10m'

    @run_before('run')
    def set_options(self):
        self.executable_opts = ['--op', self.operation, '-b', '64M', '-e', '64M']

    @run_before('performance')
    def set_reference(self):
        self.reference = references_for(self.operation)

    @sanity_function
    def every_element_is_right(self):
        return sn.assert_found(r'^# Out of bounds values : 0 OK$', self.stdout)

    @performance_function('GB/s')
    def busbw(self):
        return sn.extractsingle(r'^# Avg bus bandwidth    : (\S+)$', self.stdout, 1, float)
