"""What a header of parx declares for its users: names, signatures and docstrings.

A reader of this repository's style, not of C++: declarations stand at the beginning of their lines, a
docstring is `///` above a declaration or `///<` behind it, and what is private is in a `namespace
detail`, behind `private:`, or in detail/.
"""
import re
from dataclasses import dataclass, field


@dataclass
class Declaration:
    kind: str  # function, class, enum, alias, variable, concept, enumerator
    name: str
    text: str  # the signature, on one line
    doc: str
    line: int
    space: str = ""  # the namespace behind parx::, as "nn::"
    members: list = field(default_factory=list)
    is_documented: bool = False  # by itself, or by the comment above its group


def _marked(text):
    """The text with each comment and string in place of what would mislead a count of brackets."""
    out, i, n = [], 0, len(text)
    while i < n:
        two = text[i:i + 2]
        if two == "//":
            end = text.find("\n", i)
            end = n if end < 0 else end
            out.append(" " * (end - i))
            i = end
        elif two == "/*":
            end = text.index("*/", i) + 2
            out.append(re.sub(r"[^\n]", " ", text[i:end]))
            i = end
        elif text[i] == '"' and text[i - 1] == "R":
            tag = text[i + 1:text.index("(", i)]
            end = text.index(")" + tag + '"', i) + len(tag) + 2
            out.append('"' + re.sub(r"[^\n]", "_", text[i + 1:end - 1]) + '"')
            i = end
        elif text[i] == '"' or (text[i] == "'" and not text[i - 1].isalnum()):
            end = i + 1
            while text[end] != text[i]:
                end += 2 if text[end] == "\\" else 1
            out.append(text[i] + "_" * (end - i - 1) + text[i])
            i = end + 1
        else:
            out.append(text[i])
            i += 1
    marked = re.sub(r"^[A-Z_]+$", lambda m: " " * len(m[0]), "".join(out), flags=re.M)  # macros
    # Preprocessor lines, with those that they go on in; of #if ... #else both branches are read.
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), marked,
                  flags=re.M)


_CLOSING = {"(": ")", "{": "}", "[": "]"}


def _skip(marked, i):
    """The place behind the bracket that closes the one at i."""
    open_, close, depth = marked[i], _CLOSING[marked[i]], 0
    while True:
        if marked[i] == open_:
            depth += 1
        elif marked[i] == close:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1


def _skip_angles(marked, i):
    """The place behind the > that closes the < at i."""
    depth = 0
    while True:
        c = marked[i]
        if c in _CLOSING:
            i = _skip(marked, i)
            continue
        if c == "<":
            depth += 1
        elif c == ">" and marked[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1


class Header:
    """The declarations of one header."""

    def __init__(self, text):
        self.text = text
        self.marked = _marked(text)
        self.lines = text.split("\n")
        top = re.match(r"(?://[^\n]*\n)+", text)
        self.top = _prose(re.sub(r"^// ?", "", top[0], flags=re.M)) if top else ""
        self.declarations = self._scope(0, len(text), "", None)

    def _line(self, at):
        return self.text.count("\n", 0, at)

    def _doc(self, begin, end):
        """The docstring of the declaration from `begin` to `end`."""
        above, row = [], self._line(begin) - 1
        while row >= 0 and re.match(r"\s*///(?!<)", self.lines[row]):
            above.append(re.sub(r"^\s*/// ?", "", self.lines[row]))
            row -= 1
        if above:
            return _prose("\n".join(reversed(above)))
        row = self._line(max(begin, end - 1))
        behind = re.search(r"///<\s*(.*)", self.lines[row])
        if not behind:
            return ""
        parts = [behind[1]]
        while row + 1 < len(self.lines) and re.match(r"\s*///<", self.lines[row + 1]) is None:
            more = re.match(r"\s*///\s?(.*)", self.lines[row + 1])
            if not more or not re.match(r"\s{8,}///", self.lines[row + 1]):
                break
            parts.append(more[1])
            row += 1
        return _prose("\n".join(parts))

    def _scope(self, i, end, space, owner):
        """The declarations between i and end, of a namespace or (owner given) a class's body."""
        found, is_open = [], owner is None or owner[0] != "class"
        group, last_end = "", i  # a docstring holds for what follows without a blank line
        while i < end:
            if self.marked[i].isspace() or self.marked[i] in ";}":
                i += 1
                continue
            access = re.compile(r"(public|private|protected)\s*:(?!:)").match(self.marked, i)
            if access:
                is_open, i = access[1] == "public", access.end()
                continue
            begin = i
            opened = re.compile(r"(inline\s+)?namespace\b([^{;=]*)\{").match(self.marked, i)
            if opened:
                close = _skip(self.marked, opened.end() - 1)
                name = re.sub(r"\s|inline", "", opened[2])
                name = name.replace("PARX_ABI", "").replace("parx::", "", 1).strip(":")
                name = "" if name == "parx" else re.sub("::+", "::", name)
                if not re.search(r"\bdetail\b", name) and opened[2].strip():
                    found += self._scope(opened.end(), close - 1,
                                         space + (name + "::" if name else ""), None)
                i = close
                continue
            one, i = self._declaration(i, end, space, owner)
            if one is None or not is_open:
                continue
            one.doc = self._doc(begin, i)
            between = self.text[last_end:begin]
            if one.doc:
                group = one.doc
            elif "\n\n" in between or not group:
                group = ""
            one.is_documented = bool(one.doc or group)
            last_end = i
            found.append(one)
        return found

    def _declaration(self, i, end, space, owner):
        """The declaration at i, or None for what is none of a user's; and the place behind it."""
        m, begin, body = self.marked, i, None
        head_end = None
        init = False
        while i < end:
            c = m[i]
            if c == ";":
                break
            if c == "<" and re.search(r"(template\s*|[A-Za-z_0-9]|operator)$", m[begin:i]) and \
                    not re.search(r"operator$", m[begin:i]) and head_end is None:
                try:
                    i = _skip_angles(m, i)
                except IndexError:
                    i += 1
                continue
            if c in "([":
                i = _skip(m, i)
                continue
            if c == "=" and head_end is None and not re.search(r"operator\s*[=!<>+*/|&^-]*$", m[begin:i]) \
                    and m[i + 1] != "=" and m[i - 1] not in "!<>=":
                head_end = i
            if c == ":" and m[i + 1] != ":" and m[i - 1] != ":" and head_end is None and \
                    re.search(r"\)\s*(noexcept\s*)?$", m[begin:i]):
                head_end, init = i, True
            if c == "{":
                close = _skip(m, i)
                if init:
                    before = m[begin:i].rstrip()
                    after = m[close:].lstrip()[:1]
                    if (before[-1].isalnum() or before[-1] in "_>") and after in (",", "{"):
                        i = close
                        continue
                    body = (i, close)
                    i = close
                    break
                if head_end is not None:  # an initializer
                    i = close
                    continue
                if _ends_in_requires(m[begin:i]):
                    i = close
                    continue
                body = (i, close)
                head_end = i
                i = close
                if re.match(r"\s*;", m[i:]):
                    i = m.index(";", i)
                elif _is_class(m[begin:head_end]):
                    i = m.index(";", i)
                break
            i += 1
        stop = head_end if head_end is not None else i
        head = " ".join(self.text[begin:stop].split())
        marked_head = " ".join(m[begin:stop].split())
        # The text without comments, and with its strings.
        head = " ".join(_without_comments(self.text[begin:stop]).split())
        default = ""
        if head_end is not None and not body and m[head_end] == "=":
            default = " ".join(_without_comments(self.text[head_end + 1:i]).split())
        behind = i + 1
        if init and body:
            behind = body[1]
        elif body and not _is_class(marked_head) and m[i:i + 1] != ";":
            behind = body[1]
        return self._made(head, default, body, begin, space, owner), behind

    def _made(self, head, default, body, begin, space, owner):
        line = self._line(begin) + 1
        bare = re.sub(r"\[\[[^\]]*\]\]\s*", "", head)
        bare = re.sub(r"alignas\([^)]*\)\s*", "", bare)
        if re.match(r"(friend|static_assert|extern template|using namespace|extern)\b", bare) or not bare:
            return None
        without = bare
        template = ""
        if bare.startswith("template"):
            close = _skip_angles(bare, bare.index("<"))
            template, without = bare[:close], bare[close:].strip()
            if not without or without.startswith("class ") and not body and "<" in without:
                return None
            if re.match(r"template\b", without):
                without = without[_skip_angles(without, without.index("<")):].strip()
            without = _without_requires(without)
        if template == "" and re.match(r"template\s+(class|struct)\b", bare):
            return None
        if _is_class(without):
            if body is None:
                return None  # declared ahead
            found = re.match(r"(enum class|enum struct|enum|class|struct|union)\s+([A-Za-z_0-9]+)"
                             r"(<)?", without)
            if not found or found[3] or without[found.end():].startswith("::"):
                return None  # nameless, or a specialisation
            kind = "enum" if found[1].startswith("enum") else "class"
            one = Declaration(kind, found[2], without, "", line, space)
            if kind == "enum":
                one.members = self._enumerators(*body)
            else:
                word = "class" if found[1] == "class" else "struct"
                one.members = self._scope(body[0] + 1, body[1] - 1, "", (word, found[2]))
                if template:
                    one.text = template.replace("template ", "template ") + " " + without
            return one
        if re.match(r"using\s+[A-Za-z_0-9]+$", without):
            name = without.split()[1]
            return Declaration("alias", name, f"using {name} = {default}", "", line, space)
        if without.startswith("using "):
            return None
        if without.startswith("concept "):
            return Declaration("concept", without.split()[1], without, "", line, space)
        if default in ("delete", "default"):
            return None
        call = _call(without)
        if call:
            name = call
            if re.search(r"::\s*" + re.escape(name) + r"\s*\(", without.split("(")[0] + "("):
                return None  # the definition of a member
            return Declaration("function", name, without, "", line, space)
        found = re.search(r"([A-Za-z_0-9]+)(\[[^\]]*\])?$", without)
        if not found or body and not default and not re.search(r"\s", without):
            return None
        text = without + (f" = {default}" if default else "")
        return Declaration("variable", found[1], text, "", line, space)

    def _enumerators(self, begin, close):
        found, i = [], begin + 1
        for part in re.finditer(r"([A-Za-z_][A-Za-z_0-9]*)\s*(=[^,}]*)?(,|(?=\}))|$",
                                self.marked[i:close]):
            if not part[1]:
                continue
            at = i + part.start(1)
            found.append(Declaration("enumerator", part[1], part[1], self._doc(at, i + part.end()),
                                     self._line(at) + 1))
        return found


def _ends_in_requires(text):
    """Whether what follows is the body of a requires expression: `requires {`, `requires(T x) {`."""
    text = text.rstrip()
    if text.endswith(")"):
        depth = 0
        for i in range(len(text) - 1, -1, -1):
            depth += (text[i] == ")") - (text[i] == "(")
            if depth == 0:
                text = text[:i].rstrip()
                break
    return re.search(r"\brequires$", text) is not None


def _without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def _without_requires(text):
    """A declaration without the requires clause in front of it."""
    text = text.strip()
    if not text.startswith("requires"):
        return text
    i = len("requires")
    while True:
        while text[i].isspace() or text[i] == "!":
            i += 1
        if text[i] == "(":
            i = _skip(text, i)
        elif text.startswith("requires", i):
            i = text.index("{", i)
            i = _skip(text, i)
        else:
            while i < len(text) and (text[i].isalnum() or text[i] in "_:"):
                i += 1
            if text[i:i + 1] == "<":
                i = _skip_angles(text, i)
        rest = text[i:].lstrip()
        if rest.startswith("&&") or rest.startswith("||"):
            i = text.index(rest[:2], i) + 2
            continue
        return rest


def _is_class(text):
    text = re.sub(r"\[\[[^\]]*\]\]\s*", "", text.strip())
    if text.startswith("template"):
        text = _without_requires(text[_skip_angles(text, text.index("<")):])
    return bool(re.match(r"(enum|class|struct|union)\b(?![^({]*\()", text)) or \
        bool(re.match(r"(enum|class|struct|union)\s+[A-Za-z_0-9]+\s*($|final|:|\{)", text))


def _call(text):
    """The name of the function that this declares, or None."""
    operator = re.search(r"operator\s*(\(\)|\[\]|[^\s(]+|\s+[A-Za-z_:<>0-9]+)\s*\(", text)
    if operator:
        return "operator" + operator[1].strip()
    i = 0
    while i < len(text):
        if text[i] == "<" and i and (text[i - 1].isalnum() or text[i - 1] == "_"):
            try:
                i = _skip_angles(text, i)
            except IndexError:
                return None
            continue
        if text[i] == "(":
            found = re.search(r"(~?[A-Za-z_0-9]+)\s*$", text[:i])
            if found and found[1] not in ("decltype", "explicit", "noexcept", "requires", "alignas"):
                return found[1]
            i = _skip(text, i)
            continue
        i += 1
    return None


def _prose(text):
    """Paragraphs and blocks of code as a docstring has them."""
    return text.strip("\n")
