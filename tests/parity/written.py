"""Writes sources that other programs here make from transformers' classes."""

import sys


def main(target, text):
    """Writes the text; with --check, only reports whether the file differs."""
    if sys.argv[1:] == ["--check"]:
        if target.read_text() != text:
            return f"{target.name} is not what transformers' classes have: run me"
        return None
    target.write_text(text)
    return None
