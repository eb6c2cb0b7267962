"""Words that could mean several things name the types of one meaning:   glossary.py SOURCE_DIR

The glossary's section "Words in names" has a row for each such word: its meaning in the name of a
type, and the chapters of include/parx whose types have it; "-": none. A type (class, struct, enum
class, union or concept) of another chapter that has the word is refused, and so is a row's chapter
without one.
"""

import pathlib
import re
import sys

TYPE = re.compile(r"^\s*(?:template <.*> *)?(?:enum class|class|struct|union|concept) +([a-z_0-9]+)\b"
                  r"(?! *;)", re.M)


def rows(page):
    """{word: chapters} of the section's table."""
    section = page.split("## Words in names", 1)[1]
    table = re.findall(r"^\| \*\*([a-z]+)\*\* \|[^|]*\| ([a-z_, -]+) \|$", section, re.M)
    return {word: set() if given == "-" else set(given.split(", ")) for word, given in table}


def names_of(include):
    """(chapter, file, type) of all types."""
    for path in sorted((include / "parx").rglob("*.hpp")):
        parts = path.relative_to(include / "parx").parts
        for name in TYPE.findall(path.read_text(encoding="utf-8")):
            yield parts[0].removesuffix(".hpp"), path, name


def problems(words, names):
    unused = {(word, chapter) for word, chapters in words.items() for chapter in chapters}
    for chapter, path, name in names:
        for word, chapters in words.items():
            if not {word, word + "s"} & set(name.split("_")):
                continue
            unused.discard((word, chapter))
            if chapter not in chapters:
                yield f'{path}: {name}: "{word}" has another meaning: see examples/guide/glossary.md'
    for word, chapter in sorted(unused):
        yield f'glossary.md: no type of {chapter} has the word "{word}"'


example = rows("## Words in names\n| **cut** | of a layer | nn, trees |\n| **keeper** | said | - |\n")
found = list(problems(example, [("nn", "a", "layer_cut"), ("ddp", "b", "cut_rows"),
                                ("nn", "c", "keepers"), ("nn", "d", "cuttable")]))
assert [each.split(":")[0] for each in found] == ["b", "c", "glossary.md"], found

root = pathlib.Path(sys.argv[1])
given = rows((root / "examples/guide/glossary.md").read_text(encoding="utf-8"))
assert given, "the glossary has no words in names"
wrong = list(problems(given, names_of(root / "include")))
print("\n".join(wrong) or f"{len(given)} words have one meaning each")
sys.exit(bool(wrong))
