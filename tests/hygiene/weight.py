"""What programs weigh; weight.sh says how it is called."""
import os
import re
import subprocess
import sys
import tempfile

what, source, compiler = sys.argv[1:]
include = os.path.join(os.path.abspath(source), 'include')
figures_file = os.path.join(source, 'tests/hygiene/weight.txt')
margin = 1.02
compiled_form = ['-DPARX_SEPARATE_COMPILATION', '-DPARX_COMPILED_MODELS']
# name, what a program of README has in it that no other has, flags
programs = [('hello_header_only', 'parx::print0(world, "{} ranks', []),
            ('hello_compiled', 'parx::print0(world, "{} ranks', compiled_form),
            ('training_compiled', 'parx::parallel model{', compiled_form)]


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f'{" ".join(command)}\n{done.stderr[:4000]}')
    return done.stdout


def program_of_readme(text):
    with open(os.path.join(source, 'README.md')) as file:
        blocks = re.findall(r'^```cpp\n(.*?)^```', file.read(), re.M | re.S)
    found = [block for block in blocks if text in block and 'int main' in block]
    if len(found) != 1:
        sys.exit(f'README.md has {len(found)} whole programs with `{text}` in them, not one')
    return found[0]


def folder_of(header):
    return os.path.dirname(header).removeprefix('parx').lstrip('/') or '.'


def lines_by_header(file, flags):
    """Lines with text of each header of parx that the program reaches."""
    lines = {}
    header = None
    for line in output_of([compiler, *flags, '-E', file]).splitlines():
        mark = re.match(r'# \d+ "(.*)"', line)
        if mark:
            path = mark[1]
            header = os.path.relpath(path, include) if path.startswith(include) else None
            if header:
                lines.setdefault(header, 0)
        elif header and line.strip():
            lines[header] += 1
    return lines


def text_of(header):
    with open(os.path.join(include, header)) as file:
        return file.read()


def headers_by_name(headers):
    """By name: which header defines a class, and which a function or variable of a namespace."""
    types, others = {}, {}
    for header in headers:
        text = text_of(header)
        for name in re.findall(
                r'^\s*(?:class|struct|union)\s+(?:alignas\(\S+\)\s+)?(\w+)[^;()]*\{', text, re.M):
            types.setdefault(name, header)
        for name in re.findall(r'^[\w\[][^(=\n]*?(\w+)(?:<[^>\n]*>)?(?:\(| = )', text, re.M):
            others.setdefault(name, header)
    return types, others


def without_brackets(text):
    """A demangled name without what stands in <> and (): the arguments."""
    result, depth = '', 0
    text = re.sub(r'operator(<=>|->\*|<<=|>>=|<<|>>|->|<=|>=|<|>|\(\))', 'operator', text)
    text = text.replace('[abi:cxx11]', '').replace('{lambda(', 'lambda(')
    for letter in text:
        depth -= letter in '>)'
        if depth == 0 and letter not in '>)':
            if letter not in '<(':
                result += letter
        depth += letter in '<('
    return result


def bytes_by_folder(file, flags, headers):
    """Bytes of the functions in the object code, by the folder of what each belongs to."""
    types, others = headers_by_name(headers)
    with tempfile.TemporaryDirectory() as folder:
        object_file = os.path.join(folder, 'object.o')
        output_of([compiler, *flags, '-O2', '-c', file, '-o', object_file])
        listed = output_of(['nm', '-S', '-C', object_file])
    found = {}
    for size, name in re.findall(r'^\S+ (\S+) [tTwW] (.*)$', listed, re.M):
        words = without_brackets(name).split()
        called = next((word for word in reversed(words) if '::' in word), words[0])
        names = called.split('::')
        place = 'std' if names[0] != 'parx' else 'others'
        if names[0] == 'parx':
            header = next((types[each] for each in names if each in types), None)
            header = header or next((others[each] for each in names if each in others), None)
            if header:
                place = folder_of(header)
        found[place] = found.get(place, 0) + int(size, 16)
    return found


class weight:
    def __init__(self, lines=0, size=None, folders=None, headers=None):
        self.lines = lines  # of declarations
        self.size = size  # bytes of object code; None: not known
        self.folders = folders or {}  # bytes by folder
        self.headers = headers or set()


def measured(text, flags, with_code):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, 'program.cpp')
        with open(file, 'w') as out:
            out.write(program_of_readme(text))
        flags = ['-std=c++20', f'-I{include}', *flags]
        lines = lines_by_header(file, flags)
        result = weight(sum(lines.values()), headers=set(lines))
        if with_code:
            result.folders = bytes_by_folder(file, flags, result.headers)
            result.size = sum(result.folders.values())
        return result


def recorded():
    """name: weight, of weight.txt."""
    result = {}
    with open(figures_file) as file:
        for line in file:
            if line.startswith('#') or not line.strip():
                continue
            first, *rest = line.split()
            if line[0] != ' ':
                current = result[first] = weight(int(rest[2]), int(rest[0]))
                continue
            current.folders[first] = int(rest[0])
            current.headers |= {os.path.normpath(f'parx/{first}/{each}.hpp') for each in rest[1:]}
    return result


def write(weights):
    with open(figures_file, 'w') as out:
        out.write('# Written by weight.sh record. Of each program: bytes of object code (g++ 12,\n'
                  '# x86-64, -O2) and lines of declarations. Of each folder of include/parx: bytes, and\n'
                  '# the headers that are reached.\n')
        for name, each in weights.items():
            out.write(f'{name} {each.size} bytes {each.lines} lines\n')
            names = {}
            for header in sorted(each.headers):
                name_of_it = os.path.basename(header).removesuffix('.hpp')
                names.setdefault(folder_of(header), []).append(name_of_it)
            for folder in sorted(names.keys() | each.folders.keys()):
                size = str(each.folders.get(folder, 0))
                out.write(' '.join([f'  {folder}', size, *names.get(folder, [])]) + '\n')


def explain(before, now):
    new = now.headers - before.headers
    roots = {}
    for header in sorted(now.headers & before.headers):
        for included in re.findall(r'^#\s*include <(parx/[^>]+)>', text_of(header), re.M):
            if included in new:
                roots.setdefault(included, header)
    for included, header in roots.items():
        print(f'  {header} now includes {included}')
    if new:
        rest = ', ...' if len(new) > 40 else ''
        print(f'  new headers, {len(new)}: {", ".join(sorted(new)[:40])}{rest}')
    grown = {each: (before.folders.get(each, 0), size) for each, size in now.folders.items()}
    grown = sorted(((b - a, each, a, b) for each, (a, b) in grown.items() if b > a), reverse=True)
    for _, each, a, b in grown[:12]:
        print(f'  code of {each}: {a} -> {b} bytes')


def main():
    if what == 'record':
        write({name: measured(text, flags, True) for name, text, flags in programs})
        return 0
    known = recorded()
    heavier = False
    for name, text, flags in programs:
        now = measured(text, flags, what == 'check_all' or name.startswith('hello'))
        before = known.get(name, weight(size=0))
        for unit, a, b in (('bytes of object code', before.size, now.size),
                           ('lines of declarations', before.lines, now.lines)):
            if b is None:
                continue
            print(f'{name}: {b} {unit} ({a} recorded)')
            if b > a * margin:
                print(f'{name} has grown by {100 * (b - a) / max(a, 1):.1f} %:')
                explain(before, now)
                heavier = True
            elif b * margin < a:
                print(f'{name} is lighter: record it, so that it stays so')
    if heavier:
        print('Every user pays for it at every compilation. If it is worth that: '
              'bash tests/hygiene/weight.sh record .')
    return heavier


sys.exit(main())
