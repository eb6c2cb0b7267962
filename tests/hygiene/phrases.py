"""Which words that programs look for in texts are those of the library:   phrases.py SOURCE_DIR

A sentence of include/ is for people and may be reworded at any time. So no program decides by one: what it
looks for in a line (find, starts_with, a table of marks, ...) is in no string of include/. Where a program has
to know the form of the library's output, both use one constant of a header (parx/core/log.hpp).
"""
import re
import sys
from pathlib import Path

# Comments, characters, and strings, adjacent ones as one; raw strings as they are.
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"'
    r'|(?P<text>"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*)'
    r"|'(?:\\.|[^'\\])+'", re.S)
PIECE = re.compile(r'"((?:\\.|[^"\\\n])*)"')
# In front of a string that is looked for: a search, or a comparison, or a table or a constant of views, which
# texts for people are not made of.
SEARCH = re.compile(
    r"(?:\b(?:r?find|starts_with|ends_with|contains|find_first_of|text_between|number_behind|has_any|mentions)"
    r"\s*\([^;\"]*|[=!]=\s*|\bstring_view\b[^;]*[={(,]\s*|\bmarks\w*\s*[({][^;]*)$")
# Two words: one alone may be a name of a field.
IS_PHRASE = re.compile(r"[A-Za-z'].* .*[A-Za-z']")
# Usages, forms of output, and constants that are said.
SHOWN = re.compile(r"\\n|%|\{\}")
SAID = re.compile(r"\w+_text\s*=\s*$")


def strings(path):
    """(line, text, the code in front of it) of each string of a file."""
    source = path.read_text()
    for token in TOKEN.finditer(source):
        if token["raw"] is not None:
            text = token["raw"]
        elif token["text"] is not None:
            text = "".join(PIECE.findall(token["text"]))
        else:
            continue
        before = re.sub(r"//[^\n]*", "", source[max(0, token.start() - 1500):token.start()])
        before = re.split(r"[;]|\{\n|\}\n", before)[-1]
        yield source.count("\n", 0, token.start()) + 1, text, before


def main():
    root = Path(sys.argv[1])
    library = [(path, line, text) for path in sorted((root / "include").rglob("*.hpp"))
               for line, text, before in strings(path)]
    searched, wrong = 0, []
    for path in sorted((root / "examples" / "tools").rglob("*.[hc]pp")):
        for line, text, before in strings(path):
            if (not SEARCH.search(before) or SAID.search(before) or not IS_PHRASE.search(text)
                    or SHOWN.search(text)):
                continue
            searched += 1
            for owner, at, sentence in library:
                if text in sentence:
                    wrong.append(f'{path.relative_to(root)}:{line}: looks for "{text}", which are words of '
                                 f"{owner.relative_to(root)}:{at}: let it read a record")
                    break
    print("\n".join(wrong + [f"{searched} phrases that programs look for, {len(library)} strings of include/"]))
    return 1 if wrong or searched < 20 or len(library) < 2000 else 0


sys.exit(main())
