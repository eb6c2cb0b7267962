#!/usr/bin/env python3
"""Writes include/parx/data/text/detail/unicode_*.hpp from Python's Unicode data.

usage: make_unicode_tables.py INCLUDE_DIR      (the tables name the version of Unicode they come from)
"""
import sys
import unicodedata

folder = sys.argv[1] + "/parx/data/text/detail/"
version = unicodedata.unidata_version
codes = [c for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000]
category = {c: unicodedata.category(chr(c)) for c in codes}


def ranges(wanted):
    result = []
    for c in filter(wanted, codes):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return [tuple(r) for r in result]


def decomposed(c):
    """Canonical decomposition without non-spacing marks; Hangul is computed, not looked up."""
    return [ord(x) for x in unicodedata.normalize("NFD", chr(c)) if unicodedata.category(x) != "Mn"]


def lowercase_runs():
    """Runs (first, last, step, difference) of letters; those with a mark in their lower case have none."""
    runs = []
    for c in codes:
        lower = chr(c).lower()
        if lower == chr(c) or len(lower) != 1:
            continue
        difference = ord(lower) - c
        if runs and runs[-1][3] == difference:
            first, last, step, _ = runs[-1]
            if c - last == step or (first == last and c - last <= 2):
                runs[-1] = (first, c, c - last, difference)
                continue
        runs.append((c, c, 1, difference))
    return runs


def wrapped(items):
    lines, line = [], " "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = " "
        line += " " + item + ","
    return "\n".join(lines + [line])


def table(comment, kind, name, rows):
    items = ["{" + ", ".join(hex(x).upper().replace("X", "x") if x >= 0 else str(x) for x in r) + "}" for r in rows]
    return f"/// {comment}\ninline constexpr std::array<{kind}, {len(items)}> {name}{{{{\n{wrapped(items)}\n}}}};\n"


def write(name, about, body, include="\n#include <parx/core/abi.hpp>\n"):
    with open(folder + name, "w") as out:
        out.write(f"""// {about}
//
// Unicode {version}, from U+0080 on. Written by tests/data/make_unicode_tables.py; sorted, for binary search.
#pragma once

#include <array>
#include <cstdint>
{include}
namespace parx::inline PARX_ABI::data::detail {{

{body}
}}  // namespace parx::data::detail
""")


kind = "code_range"
write("unicode_categories.hpp", "Which characters are of which kind.", "\n".join([
    "struct code_range {\n  std::uint32_t first;\n  std::uint32_t last;\n};\n",
    table("White_Space.", kind, "space_ranges", ranges(lambda c: chr(c).isspace())),
    table("Control, format and private-use characters that are no white space: Cc, Cf, Co.", kind, "control_ranges",
          ranges(lambda c: category[c] in ("Cc", "Cf", "Co") and not chr(c).isspace())),
    table("Punctuation: P*.", kind, "punctuation_ranges", ranges(lambda c: category[c][0] == "P")),
    table("Non-spacing marks: Mn.", kind, "mark_ranges", ranges(lambda c: category[c] == "Mn")),
]))
write("unicode_letters.hpp", "Letters and numbers.", "\n".join([
    table("Letters: L*.", kind, "letter_ranges", ranges(lambda c: category[c][0] == "L")),
    table("Numbers: N*.", kind, "number_ranges", ranges(lambda c: category[c][0] == "N")),
]), "\n#include <parx/data/text/detail/unicode_categories.hpp>\n")
write("unicode_lowercase.hpp", "Letters that have a lower case of one character.",
      "/// The letters first, first + step, ..., last; adding the difference gives the lower case.\n"
      "struct lowercase_run {\n  std::uint32_t first;\n  std::uint32_t last;\n  std::uint32_t step;\n"
      "  std::int32_t difference;\n};\n\n"
      + table("Lowercase_Mapping.", "lowercase_run", "lowercase_runs", lowercase_runs()))

bases, longer = [], []
for c in codes:
    if 0xAC00 <= c <= 0xD7A3 or category[c] == "Mn":
        continue
    parts = decomposed(c)
    if parts == [c]:
        continue
    if len(parts) == 1:
        bases.append((c, parts[0]))
    else:
        assert 2 <= len(parts) <= 3, (hex(c), parts)
        longer.append((c, *parts, *[0] * (3 - len(parts))))
write("unicode_decompositions.hpp", "What NFD leaves of a letter when its non-spacing marks are dropped.",
      "struct base_character {\n  std::uint32_t code;\n  std::uint32_t base;\n};\n\n"
      "/// Two or three characters; the third is 0 where there are two.\n"
      "struct long_decomposition {\n  std::uint32_t code;\n  std::uint32_t first;\n"
      "  std::uint32_t second;\n  std::uint32_t third;\n};\n\n"
      + table("One character is left.", "base_character", "base_characters", bases) + "\n"
      + table("More are left: spacing marks of Indic scripts, musical symbols.", "long_decomposition", "long_decompositions",
              longer))
