#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""schema.py SCHEMA < DOCUMENT: checks a JSON document against a JSON schema.

As much of the 2020-12 draft as uapi/ needs; a keyword that isn't known is an
error, so that nothing goes unchecked. Says what is wrong and where, and exits
non-zero.
"""

import json
import sys

TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "null": type(None),
}
# Notes, and what is only looked up.
QUIET = {"$comment", "$schema", "$defs", "title", "description"}


def same(a, b):
    """Equality with true and 1 apart."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Checker:
    def __init__(self, schema):
        self.root = schema
        self.wrong = []

    def find(self, ref):
        node = self.root
        for step in ref.removeprefix("#/").split("/"):
            node = node[step]
        return node

    def check(self, value, schema, at):
        def bad(why):
            self.wrong.append(f"{at or 'document'}: {why}")

        for word, arg in schema.items():
            if word in QUIET:
                continue
            if word == "$ref":
                self.check(value, self.find(arg), at)
            elif word == "type":
                if not isinstance(value, TYPES[arg]) or isinstance(value, bool):
                    bad(f"{value!r} is no {arg}")
            elif word == "const":
                if not same(value, arg):
                    bad(f"{value!r} is not {arg!r}")
            elif word == "enum":
                if not any(same(value, a) for a in arg):
                    bad(f"{value!r} is none of {arg}")
            elif word == "anyOf":
                if all(self.fails(value, s) for s in arg):
                    bad(f"{value!r} fits nothing of {arg}")
            elif word == "minimum":
                if isinstance(value, int) and value < arg:
                    bad(f"{value} is less than {arg}")
            elif word == "maximum":
                if isinstance(value, int) and value > arg:
                    bad(f"{value} is more than {arg}")
            elif word == "required":
                for name in arg:
                    if isinstance(value, dict) and name not in value:
                        bad(f"no {name!r}")
            elif word == "properties":
                for name in arg.keys() & (value.keys() if isinstance(value, dict) else ()):
                    self.check(value[name], arg[name], f"{at}/{name}")
            elif word == "additionalProperties":
                for name in (value.keys() if isinstance(value, dict) else ()):
                    if name in schema.get("properties", ()):
                        continue
                    if arg is False:
                        bad(f"{name!r} is not known")
                    else:
                        self.check(value[name], arg, f"{at}/{name}")
            elif word == "items":
                for i, entry in enumerate(value if isinstance(value, list) else ()):
                    self.check(entry, arg, f"{at}/{i}")
            elif word == "maxItems":
                if isinstance(value, list) and len(value) > arg:
                    bad(f"{len(value)} entries, more than {arg}")
            else:
                sys.exit(f"schema.py: the keyword {word!r} is not known")

    def fails(self, value, schema):
        inner = Checker(self.root)
        inner.check(value, schema, "")
        return bool(inner.wrong)


def once(pairs):
    """A member that comes twice is lost on most readers."""
    out = dict(pairs)
    if len(out) != len(pairs):
        sys.exit("schema.py: a member comes twice in " + ", ".join(k for k, _ in pairs))
    return out


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        checker = Checker(json.load(f))
    checker.check(json.load(sys.stdin, object_pairs_hook=once), checker.root, "")
    for line in checker.wrong:
        print(line)
    sys.exit(bool(checker.wrong))


if __name__ == "__main__":
    main()
