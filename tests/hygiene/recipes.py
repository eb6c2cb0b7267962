"""The files by which sites accept and install parx, tried without ReFrame and EasyBuild:

    recipes.py SOURCE_DIR HELLO_OUTPUT

HELLO_OUTPUT: what hello_all_reduce has written on 4 ranks. Prints a line for each claim that fails.
"""
import glob
import os
import re
import sys
import types

source, hello_output = sys.argv[1:]
failures = []


def claim(text, holds):
    if not holds:
        failures.append(text)


def text_of(path):
    with open(os.path.join(source, path)) as file:
        return file.read()


version = re.search(r'#define PARX_VERSION "(.*)"', text_of('include/parx/core/version.hpp'))[1]
installed = re.search(r'foreach\(tool IN ITEMS (.*)\)', text_of('cmake/install.cmake'))[1].split()
libraries = ['parx' if name == 'parx' else f'parx_{name}' for name in re.search(
    r'foreach\(component IN ITEMS (.*)\)', text_of('cmake/install.cmake'))[1].split()
    if not name.endswith('header_only')]


# EasyBuild: an easyconfig is Python whose names are parameters.
def try_easyconfig():
    paths = glob.glob(source + '/cmake/recipes/easybuild/parx-*.eb')
    claim('there is one easyconfig of parx', len(paths) == 1)
    config = {}
    exec(compile(text_of(paths[0]), paths[0], 'exec'), config)
    for key in ('easyblock', 'name', 'version', 'homepage', 'description', 'toolchain', 'sources',
                'sanity_check_paths', 'moduleclass'):
        claim(f'the easyconfig has {key}', config.get(key))
    claim(f'its version is CMake\'s, {version}', config['version'] == version)
    toolchain = config['toolchain']
    claim('its file is named as EasyBuild looks for it', os.path.basename(paths[0]) ==
          f'{config["name"]}-{config["version"]}-{toolchain["name"]}-{toolchain["version"]}.eb')
    claim('its archive is that of the version',
          f'git archive --prefix=parx-{version}/ -o parx-{version}.tar.gz' in text_of(paths[0]))
    options = re.findall(r'-D(PARX_\w+)', config['configopts'])
    known = text_of('CMakeLists.txt') + text_of('examples/CMakeLists.txt')
    for option in options:
        claim(f'CMake has its option {option}', option in known)
    for program in config['buildopts'].split():
        claim(f'CMake installs its {program}', program in installed + libraries)
    for path in config['sanity_check_paths']['files']:
        name = path.removeprefix('bin/')
        library = re.fullmatch('lib/lib(.*)[.]a', path)
        claim(f'its {path} is installed', name in config['buildopts'].split() or
              (library and library[1] in libraries) or os.path.exists(f'{source}/{path}'))


# ReFrame: of its API what the check uses, evaluated at once instead of when a job has ended.
class Namespace(dict):
    def __init__(self):
        self['parameter'] = lambda values: values[0]
        self['run_before'] = lambda stage: lambda function: function
        self['sanity_function'] = lambda function: function
        self['performance_function'] = lambda unit: lambda function: function


class Meta(type):
    @classmethod
    def __prepare__(mcs, name, bases):
        return Namespace()


class Test(metaclass=Meta):
    def __init__(self):
        self.build_system = types.SimpleNamespace()


def sanity_functions():
    def found(pattern, text):
        return re.findall(pattern, text, re.MULTILINE)
    return {
        'assert_eq': lambda a, b: a == b,
        'assert_found': lambda pattern, text: bool(found(pattern, text)),
        'extractall': lambda pattern, text, _, kind: [kind(each) for each in found(pattern, text)],
        'extractsingle': lambda pattern, text, _, kind: kind(found(pattern, text)[0]),
        'sorted': sorted,
    }


def try_reframe_check():
    tests = {}
    names = ('reframe', 'reframe.utility', 'reframe.utility.sanity')
    modules = {name: types.ModuleType(name) for name in names}
    reframe = modules['reframe']
    reframe.RegressionTest = reframe.RunOnlyRegressionTest = Test
    reframe.simple_test = lambda test: tests.setdefault(test.__name__, test)
    reframe.utility = modules['reframe.utility']
    reframe.utility.sanity = modules['reframe.utility.sanity']
    reframe.utility.sanity.__dict__.update(sanity_functions())
    sys.modules.update(modules)
    path = source + '/cmake/recipes/reframe/parx_check.py'
    check = {'__file__': path, '__name__': 'parx_check'}
    exec(compile(text_of('cmake/recipes/reframe/parx_check.py'), path, 'exec'), check)

    hello = tests['parx_hello']()
    hello.set_flags()
    claim('its program is there', os.path.exists(
        os.path.join(os.path.dirname(path), hello.sourcesdir, hello.sourcepath)))
    with open(hello_output) as file:
        output = file.read()
    hello.stdout = output
    claim('the output of hello_all_reduce is right', hello.every_rank_has_the_sum())
    hello.stdout = output.replace('RANK 3', 'RANK 2')
    claim('and wrong without rank 3', not hello.every_rank_has_the_sum())
    hello.stdout = output.replace('= 6', '= 5')
    claim('or with another sum', not hello.every_rank_has_the_sum())

    # The lines of parx-bench, as its source prints them.
    lines = re.findall(r'"(# (?:Out of bounds values|Avg bus bandwidth)[^"\\]*)',
                       text_of('benchmarks/bench/report.hpp'))
    claim('parx-bench prints both lines', len(lines) == 2)
    bandwidth = tests['parx_bandwidth']()
    bandwidth.set_options()
    bandwidth.stdout = '\n'.join(lines).replace('{} {}', '0 OK').replace('{:g}', '9.25')
    claim('its elements are right', bandwidth.every_element_is_right())
    claim('its bandwidth is read', bandwidth.busbw() == 9.25)
    bandwidth.stdout = bandwidth.stdout.replace('0 OK', '3 FAILED')
    claim('and wrong ones are found', not bandwidth.every_element_is_right())
    operations = text_of('benchmarks/bench/options.hpp')
    claim('parx-bench has its operation', bandwidth.operation in operations)
    bandwidth.set_reference()
    claim('without references nothing is judged', bandwidth.reference == {})
    check['json'].load = lambda file: {'a:b': {'all_reduce': [9.5, -0.1, None]}, 'c': {}}
    check['os'] = types.SimpleNamespace(path=types.SimpleNamespace(
        join=lambda *parts: __file__, dirname=str, abspath=str, exists=lambda path: True))
    bandwidth.set_reference()
    claim('a site\'s reference is ReFrame\'s',
          bandwidth.reference == {'a:b': {'busbw': (9.5, -0.1, None, 'GB/s')}})


try_easyconfig()
try_reframe_check()
for failure in failures:
    print('FAILED:', failure)
sys.exit(1 if failures else 0)
