"""Which closures two compilers lay out differently:   closures.py GCC.txt CLANG.txt

Both are what llvm-dwarfdump says of an object, its lines of tags, names, files and lines. A closure is
known by where its lambda stands; several instances of a template have several layouts there.
"""
import re
import sys

TAG = re.compile(r"^0x[0-9a-f]+:(\s*)(DW_TAG_\w+|NULL)")
ATTRIBUTE = re.compile(r'\s+DW_AT_(name|decl_file|decl_line)\s*\((.*)\)\s*$')


def closures(path):
    """(header, line) of each lambda of parx -> the set of its captures, each a tuple of names."""
    classes, stack, entry = [], [], {}
    with open(path, errors="replace") as lines:
        for line in lines:
            if tag := TAG.match(line):
                indent, kind = len(tag[1]), tag[2]
                while stack and stack[-1][0] >= indent:
                    stack.pop()
                entry = {"members": []}
                if kind in ("DW_TAG_class_type", "DW_TAG_structure_type"):
                    classes.append(entry)
                elif kind == "DW_TAG_member" and stack:
                    stack[-1][1]["members"].append(entry)
                stack.append((indent, entry))
            elif attribute := ATTRIBUTE.match(line):
                entry[attribute[1]] = attribute[2].strip('"')
    found = {}
    for one in classes:
        is_closure = one.get("name", "<lambda").startswith("<lambda")
        if is_closure and one["members"] and "/include/parx/" in one.get("decl_file", ""):
            where = one["decl_file"].split("/include/")[1], int(one["decl_line"])
            # g++ writes __name, and name#0 for the first of a pack.
            names = (re.sub(r"^__|#\d+$", "", each.get("name", "?")) for each in one["members"])
            found.setdefault(where, set()).add(tuple(names))
    return found


def main():
    by_gcc, by_clang = closures(sys.argv[1]), closures(sys.argv[2])
    both = sorted(by_gcc.keys() & by_clang.keys())
    wrong = [where for where in both if not by_gcc[where] & by_clang[where]]
    for where in wrong:
        print(f"{where[0]}:{where[1]}: g++ keeps {sorted(by_gcc[where])}, clang "
              f"{sorted(by_clang[where])}: say what the lambda captures, [&, this] or one by one")
    print(f"{len(both)} closures of two compilers compared")
    return 1 if wrong or len(both) < 100 else 0


sys.exit(main())
