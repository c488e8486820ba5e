"""Writes src/posenc/client.py, the blocking client, from aio.py.

    python generate_client.py SOURCE OUTPUT

The output is committed. A test generates the output again and compares the two files.
"""

import re
import sys
from pathlib import Path

# Patterns of the asyncio client, and their replacements in the blocking client.
CHANGES = [
    (r"\A.*?\n", '"""Client, whose calls wait for their answers. Made from aio.py by tools/generate_client.py."""\n'),
    (r"\basync (def|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(Client|Rope)\b", r"\1"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bexchange_aio\b", "exchange"),
    (r"\bgrpc\.aio\b", "grpc"),
]


def main(source, output):
    text = Path(source).read_text("utf-8")
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    Path(output).write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
