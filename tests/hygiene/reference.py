"""The guide's reference, made from the docstrings of the headers:

  reference.py SOURCE_DIR           says which pages differ from the headers, and which names have no
                                    docstring; nothing and 0 if all is well
  reference.py SOURCE_DIR --write   writes the pages

A name is public if it stands outside of `detail` in a header that a chapter's header lists
(parx/nn.hpp), or that the guide's table examples/guide/headers.md has. What describes a name is the
docstring above it or behind it, above the first of its overloads, or the header's own first comment
if that begins with the name, if the header is named after it, and for operators. `x_options` are the
options of x; an enum may describe its values.
"""
import re
import sys
import textwrap
from pathlib import Path

import declarations

WIDTH, LINES = 100, 150

# page: title, and the headers that it has, in their order. A pattern ends in * for all of a folder.
# A chapter that is not here has a page of its own name.
PAGES = [
    ("tensor", "Tensors", ["tensor/tensor.hpp", "tensor/shape.hpp", "tensor/arithmetic.hpp",
                           "tensor/*", "types/*"]),
    ("variables", "Variables, gradients and their modes",
     ["autograd/variable.hpp", "autograd/function.hpp", "autograd/gradcheck.hpp",
      "autograd/no_grad.hpp", "autograd/parameter.hpp", "autograd/*"]),
    ("operations", "Operations on variables and tensors", ["autograd/ops/*"]),
    ("losses", "Losses and figures", ["nn/loss.hpp", "nn/losses.hpp", "nn/linear_cross_entropy.hpp",
                                      "autograd/loss.hpp"]),
    ("layers", "Layers and modules", ["nn/module.hpp", "nn/linear.hpp", "nn/*"]),
    ("models", "Models", ["models/*"]),
    ("optimizers", "Optimizers, schedules and mixed precision", ["optim/*", "amp/*"]),
    ("data", "Data sets, loaders and tokenizers", ["data/loader.hpp", "data/sampler.hpp",
                                                   "data/dataset.hpp", "data/*", "data/formats/*",
                                                   "data/text/*"]),
    ("collectives", "Collectives and messages", ["comm/collectives/*", "comm/*"]),
    ("launch", "Launching, meshes and errors", ["launch/*", "mesh/*", "core/error.hpp"]),
    ("parallel", "Any layout", ["parallel/*", "plan/layout.hpp"]),
    ("ddp", "ddp", ["ddp/*"]),
    ("fsdp", "fsdp", ["fsdp/*"]),
    ("tensor_parallel", "Tensor parallel", ["tensor_parallel/*"]),
    ("pipeline", "Pipelines", ["pipeline/*"]),
    ("train", "The trainer", ["train/*"]),
    ("checkpoint", "Files and checkpoints", ["checkpoint/*"]),
    ("trees", "Gradient-boosted trees", ["trees/*"]),
    ("torch", "LibTorch's modules", ["torch/*"]),
    ("plan", "The planner", ["plan/*"]),
]
# Chapters that parx's own chapters need, and a user of parx/parallel.hpp does not.
INNER = {"core", "reduction", "store", "trace", "transport"}
# What the machinery asks of a class, not a user.
HOOKS = {"members", "part_on", "shard_over", "make_whole", "operator->", "operator bool"}


def public_headers(root):
    include = root / "include/parx"
    named = set()
    for chapter in include.glob("*.hpp"):
        named |= set(re.findall(r"^#include <parx/(\S+/\S+)>", chapter.read_text(), re.M))
    listed = include / "autograd/ops.hpp"
    named |= set(re.findall(r"^#include <parx/(\S+/\S+)>", listed.read_text(), re.M))
    table = (root / "examples/guide/headers.md").read_text()
    named |= set(re.findall(r"`([a-z_0-9/]+/[a-z_0-9]+\.hpp)`", table))
    return {each for each in named if "/detail/" not in each
            and not each.endswith(("/src.hpp", "/instances.hpp", "autograd/ops.hpp"))}


def short(text):
    """A signature for a reader: without the words that say nothing about the call."""
    text = re.sub(r"\[\[[^\]]*\]\]\s*|\b(inline|static|constexpr|explicit|virtual|typename)\s+", "",
                  text)
    text = re.sub(r",?\s*call_site( [a-z_]+)?( = call_site::current\(\))?", "", text)
    text = re.sub(r"std::type_identity_t<(variable<\w+>|tensor<\w+>|\w+)>", r"\1", text)
    text = re.sub(r"\b(std|parx)::", "", text)
    text = re.sub(r"\bconst ([\w:]+(<[^()]*?>)?)&&? ?(?=[\w,).])", r"\1 ", text)
    text = re.sub(r"\b(noexcept|override|final)\b", "", text)
    text = re.sub(r"\(\s*,\s*", "(", text)
    text = re.sub(r"\b(\w+) ([,)])", r"\1\2", text)
    return re.sub(r"([(<])\s+", r"\1", " ".join(text.split()).strip())


def call(one):
    """`name(arguments) -> result` of a function, `type name = default` of a field."""
    text = short(one.text)
    if one.kind == "function":
        at = text.find(one.name + "(") if not one.name.startswith("operator") else text.find("operator")
        result, text = text[:max(at, 0)].strip(), text[max(at, 0):]
        text = re.sub(r"\)\s*const\s*&?$", ")", text).replace(") const", ")")
        result = _without_template(result)
        says = result not in ("", "void", "auto", "decltype(auto)") and len(result) <= 40
        return f"{text} -> {result}" if says and "->" not in text else text
    if one.kind == "variable":
        return re.sub(r"\s*=\s*\{\}$", "", text)
    return text


def _without_template(text):
    """The type that a function returns, without what stands before it."""
    while text.startswith("template"):
        depth = 0
        for i, c in enumerate(text):
            depth += (c == "<") - (c == ">")
            if c == ">" and depth == 0:
                text = text[i + 1:].strip()
                break
        else:
            return ""
    return "" if text.startswith("requires") else text.removeprefix("const ").rstrip("& ")


def escaped(text):
    """Prose whose < and * do not mean anything to Markdown; what is in backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([<*|\[\]])", r"\\\1", parts[i])
        parts[i] = re.sub(r"(?<![\w])_|_(?![\w])", r"\\_", parts[i])
    return "".join(parts)


def wrapped(text, first, rest):
    lines = textwrap.wrap(text, WIDTH - 1, initial_indent=first, subsequent_indent=rest,
                          break_long_words=False, break_on_hyphens=False)
    # A line that would begin a list, a heading or a table keeps its sign.
    return [lines[0]] + [re.sub(r"^(\s*)([-+#>]|\d+[.)])(?=\s|$)",
                                lambda m: m[1] + (m[2][:-1] + "\\" + m[2][-1]), line)
                         for line in lines[1:]]


def paragraphs(doc):
    """(is code, lines) of a docstring: what is set in by two spaces or more is code."""
    found, block, is_code = [], [], False
    for line in doc.split("\n"):
        here = bool(re.match(r"\s{2,}\S", line)) or (is_code and not line.strip())
        if not line.strip() and not here:
            if block:
                found.append((is_code, block))
            block, is_code = [], False
            continue
        if here != is_code and block:
            found.append((is_code, block))
            block = []
        is_code = here
        block.append(line)
    if block:
        found.append((is_code, block))
    return found


def described(head, doc, indent):
    """A list item: `head`, and what its docstring says."""
    first, rest = " " * indent + "- ", " " * (indent + 2)
    parts = paragraphs(doc)
    if not parts:
        return wrapped(head, first, rest)
    lines = []
    text = head + ":" if not parts[0][0] else head
    if not parts[0][0]:
        text += " " + escaped(" ".join(" ".join(parts[0][1]).split()))
        parts = parts[1:]
    lines += wrapped(text, first, rest)
    for is_code, block in parts:
        if is_code:
            inner = textwrap.dedent("\n".join(block)).rstrip().split("\n")
            lines += [rest + "```"] + [(rest + each).rstrip() for each in inner] + [rest + "```"]
        else:
            lines += wrapped(escaped(" ".join(" ".join(block).split())), rest, rest)
    return lines


def grouped(declared):
    """Overloads together: lists of declarations of one kind and name, of which one has a docstring."""
    groups = []
    for one in declared:
        before = groups[-1][-1] if groups else None
        same = before and before.kind == one.kind == "function" and before.name == one.name
        if same and (not one.doc or one.doc == before.doc):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def unique(items):
    return list(dict.fromkeys(items))


def is_for_compilers(one):
    """An overload that exists to say in one sentence what is wrong."""
    return "a compile-time error that says" in one.doc


def class_lines(one, space, doc):
    name = re.match(r"(?:template <.*?>\s*)?(?:struct|class) (.*)", short(one.text))[1]
    template = re.match(r"template (<.*?>) (?:struct|class)", short(one.text))
    name = re.sub(r"\s*(:(?!:).*|\{.*)$", "", name)
    head = f"`{space}{name}{'' if not template else short(template[1]).replace('class ', '')}`"
    lines = described(f"**{head}**", doc, 0)
    fields, plain = [], []  # without docstrings

    def end_fields():  # members stand in their order, which is that of names in braces
        nonlocal fields, lines
        if fields:
            lines += wrapped(", ".join(unique(fields)), "  - ", "    ")
        fields = []

    for group in grouped(one.members):
        member = group[0]
        if member.name in HOOKS or member.name.startswith("~") or is_for_compilers(member):
            continue
        if member.kind in ("alias", "concept"):
            continue
        if member.kind == "class":
            lines += described(f"`{member.name}`", member.doc, 2) if member.doc else []
            continue
        if member.kind == "enum":
            lines += enum_lines(member, "", 2)
            continue
        if not member.doc and "override" in member.text:
            continue
        heads = unique(f"`{call(each)}`" for each in group)
        if member.doc:
            if member.kind == "variable":
                end_fields()
            lines += described(", ".join(heads), member.doc, 2)
        elif member.kind == "variable":
            fields += heads
        else:
            plain += heads
    end_fields()
    if plain:
        lines += wrapped(", ".join(unique(plain)), "  - ", "    ")
    return lines


def enum_lines(one, space, indent=0):
    values = []
    for value in one.members:
        doc = f" ({escaped(' '.join(value.doc.split()))})" if value.doc else ""
        values.append(f"`{value.name}`{doc}")
    doc = escaped(" ".join(one.doc.split()))
    text = f"**`{space}{one.name}`**" + (f": {doc}" if doc else ":") + " " + ", ".join(values)
    return wrapped(text, " " * indent + "- ", " " * (indent + 2))


def doc_of(one, header, stem):
    """The description of a name, or None where there is none."""
    if one.doc:
        return one.doc
    if one.name == stem or re.match(r"%s\b" % re.escape(one.name), header.top):
        return ""  # the comment at the beginning of its section is about it
    if one.name.startswith("operator") and header.top:
        return ""
    if one.kind == "class" and one.name.endswith("_options"):
        return ""
    if one.kind == "enum" and one.members and all(each.doc for each in one.members):
        return ""
    return "" if one.is_documented else None


def section(path, header, complaints):
    """The lines of one header."""
    stem = Path(path).stem
    top = paragraphs(header.top)
    blocks = [[f"## {path}", ""]]
    for is_code, block in top:
        if is_code:
            inner = textwrap.dedent("\n".join(block)).rstrip().split("\n")
            blocks[0] += ["```"] + inner + ["```", ""]
        else:
            blocks[0] += wrapped(escaped(" ".join(" ".join(block).split())), "", "") + [""]
    declared = [one for one in header.declarations if one.space != "std::" and one.space != "fmt::"]
    for group in grouped(declared):
        one = group[0]
        if is_for_compilers(one) or one.space.startswith("std") or one.kind == "concept" and not one.doc:
            continue
        doc = doc_of(one, header, stem)
        if doc is None:
            complaints.append(f"include/parx/{path}:{one.line}: {one.kind} {one.name} has no docstring")
            doc = ""
        space = one.space
        if one.kind == "class":
            blocks.append(class_lines(one, space, doc))
        elif one.kind == "enum":
            blocks.append(enum_lines(one, space))
        elif one.kind == "alias":
            blocks.append(described(f"`using {space}{short(one.text)[6:]}`", doc, 0))
        else:
            heads = unique(f"`{space}{call(each)}`" for each in group)
            blocks.append(described(", ".join(heads), doc, 0))
    return blocks


def pages(root, complaints):
    """{file name: text} of the whole reference."""
    headers = public_headers(root)
    left = {each for each in headers if each.split("/")[0] not in INNER}
    made, index = {}, []
    placed = {pattern.split("/")[0] for _, _, patterns in PAGES for pattern in patterns}
    others = sorted({each.split("/")[0] for each in left} - placed)
    for page, title, patterns in PAGES + [(each, each, [f"{each}/*"]) for each in others]:
        mine = []
        for pattern in patterns:
            if pattern.endswith("*"):
                folder = pattern[:-1].rstrip("/")
                mine += sorted(each for each in left | set() if str(Path(each).parent) == folder
                               and each not in mine)
            elif pattern in headers:
                mine.append(pattern)
            else:
                complaints.append(f"tests/hygiene/reference.py: no public header is {pattern}")
        mine = unique(each for each in mine
                      if each in left or each.split("/")[0] in INNER)
        left -= set(mine)
        parts, lines = [], []
        limit = LINES - 6
        named = []
        for path in mine:
            text = (root / "include/parx" / path).read_text()
            blocks = section(path, declarations.Header(text), complaints)
            if len(blocks) == 1:
                continue
            whole = sum(len(each) for each in blocks) + 1
            if lines and len(lines) + min(whole, limit // 2) > limit:
                parts.append((lines, named))
                lines, named = [], []
            named.append(path)
            for at, block in enumerate(blocks):
                if lines and len(lines) + len(block) > limit:
                    parts.append((lines, named))
                    lines, named = [f"## {path}, continued", ""], [path]
                lines += block
            lines.append("")
        if lines:
            parts.append((lines, named))
        files = [f"{page}.md" if i == 0 else f"{page}_{i + 1}.md" for i in range(len(parts))]
        for i, (content, named) in enumerate(parts):
            more = f", {i + 1} of {len(parts)}" if len(parts) > 1 else ""
            head = [f"# {title}{more}", "",
                    "Made from the headers by `tests/hygiene/reference.py`. [All pages](README.md).", ""]
            made[files[i]] = "\n".join(head + content).rstrip("\n") + "\n"
            index.append((files[i], title + more, named))
    for each in sorted(left):
        complaints.append(f"tests/hygiene/reference.py: no page has {each}")
    lines = ["# Reference", "",
             "What the headers below `parx/` give a user, with their own words: names in `parx::`,",
             "arguments, defaults, shapes, units, errors. `std::`, `const &` and the caller's line are",
             "left out of signatures. Options in braces are named in the order that they have here.",
             "Operations by PyTorch's names: [operations](../operations.md);",
             "collectives by MPI's: [from MPI](../from_mpi.md); environment variables: [the",
             "list](../environment.md). Written by `python3 tests/hygiene/reference.py . --write`.", ""]
    for file, title, named in index:
        text = f"[{title}]({file}):"
        for folder in unique(str(Path(each).parent) for each in named):
            names = [Path(each).stem for each in named if str(Path(each).parent) == folder]
            text += f" `{folder}/` " + ", ".join(names) + ";"
        lines += wrapped(text[:-1], "- ", "  ")
    made["README.md"] = "\n".join(lines) + "\n"
    return made


def main():
    root = Path(sys.argv[1])
    folder = root / "examples/guide/reference"
    complaints = []
    made = pages(root, complaints)
    if "--write" in sys.argv:
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.md"):
            if old.name not in made:
                old.unlink()
        for name, text in made.items():
            (folder / name).write_text(text)
    there = {each.name: each.read_text() for each in folder.glob("*.md")}
    for name in sorted(made.keys() | there.keys()):
        if made.get(name) != there.get(name):
            complaints.append(f"examples/guide/reference/{name}: not what the headers say; write it by "
                              "`python3 tests/hygiene/reference.py . --write`")
    for name, text in made.items():
        if text.count("\n") > LINES:
            complaints.append(f"examples/guide/reference/{name} has {text.count(chr(10))} lines, more "
                              f"than {LINES}")
        complaints += [f"examples/guide/reference/{name}: more than {WIDTH} columns: {line}"
                       for line in text.split("\n") if len(line) > WIDTH]
    print("\n".join(complaints) if complaints else f"the reference has {len(made)} pages")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
