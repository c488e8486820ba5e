"""Checks the README's three lines of each language: they equal those of the
client's README, have at most three statements, and rotate."""

import ast
import json
import random
import re
import tempfile
from pathlib import Path

import oracle
from languages import LANGUAGES, ROOT, Failure
from servers import posencd

# A small configuration like Llama's: 4 query heads and 2 key heads of 64.
CONFIG = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 64, "rope_theta": 500000.0,
          "max_position_embeddings": 8192, "rope_scaling": None}
TOKENS, HEAD_DIM = 16, 64
HEADS = {"q": 4, "k": 2}

IMPORT = re.compile(r"^\s*(import\b|from\s+\S+\s+import\b|use\s|using\s|#include\b|package\b"
                    r"|(const|let|var)\b.*\brequire\()")


def block(text, mark, where):
    """Returns the fenced block after the line `mark`."""
    found = re.search(r"^" + re.escape(mark) + r"\n+```[^\n]*\n(.*?)^```", text, re.S | re.M)
    if not found:
        raise Failure(f"{where} has no block after {mark}")
    return found[1]


def collect(clients):
    """Writes the clients' lines into the root README."""
    path = ROOT / "README.md"
    text = path.read_text()
    for client in clients:
        lines = block((client.folder / "README.md").read_text(), "<!-- three lines -->",
                      f"client/{LANGUAGES[client.language]}/README.md")
        mark = re.escape(f"<!-- three lines: {client.language} -->")
        text = re.sub(r"(?sm)^(" + mark + r"\n+```[^\n]*\n).*?^```",
                      lambda found, lines=lines: found[1] + lines + "```", text)
    path.write_text(text)


def without_imports(code):
    return "\n".join(line for line in code.splitlines() if not IMPORT.match(line)).strip() + "\n"


def bare(code, comment):
    """Returns code without comments and without the contents of strings."""
    return re.sub(r'"(?:\\.|[^"\\])*"|' + comment + r"[^\n]*",
                  lambda found: '""' if found[0][0] == '"' else "", code)


def statements(code, language):
    """Returns the number of statements. Python: by its own grammar. Go: lines
    that end outside of parentheses. Others: semicolons outside of parentheses,
    and opened try statements."""
    if language == "python":
        return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(code)))
    code = bare(code, "//")
    depth, count, pending = 0, 0, False
    for letter in code:
        depth += letter in "(["
        depth -= letter in ")]"
        if letter == ";" or (language == "go" and letter == "\n" and pending):
            if depth == 0:
                count, pending = count + 1, False
        elif not letter.isspace():
            pending = True
    return count + len(re.findall(r"\btry\s*\(", code))


def snippet_of(client):
    """Compares the lines, and returns them."""
    own = block((client.folder / "README.md").read_text(), "<!-- three lines -->",
                f"client/{LANGUAGES[client.language]}/README.md")
    root = block((ROOT / "README.md").read_text(), f"<!-- three lines: {client.language} -->",
                 "README.md")
    if own != root:
        raise Failure(f"{client.language}: README.md and the client's README differ:\n"
                      f"{root}\n--- and ---\n{own}")
    lines = without_imports(own)
    count = statements(lines, client.language)
    if not 1 <= count <= 3:
        raise Failure(f"{client.language}: {count} statements, not at most three:\n{lines}")
    return lines


def check_rotated(folder, tensors):
    frequencies = oracle.inverse_frequencies(HEAD_DIM, CONFIG["rope_theta"])
    for name, elements in tensors.items():
        expected = oracle.rotate(elements, HEADS[name], HEAD_DIM, range(TOKENS), frequencies)
        wrong = oracle.misfit(oracle.read_float32(folder / f"{name}.out"), expected,
                              oracle.bound(elements, HEAD_DIM, HEAD_DIM, 4))
        if wrong:
            raise Failure(f"{name}: {wrong}")


def three_lines(clients):
    random.seed(13)
    tensors = {name: oracle.to_float32([random.gauss(0, 1) for _ in
                                        range(TOKENS * heads * HEAD_DIM)])
               for name, heads in HEADS.items()}
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        with posencd(temporary, "three-lines") as target:
            for client in clients:
                folder = Path(temporary) / LANGUAGES[client.language]
                folder.mkdir()
                (folder / "config.json").write_text(json.dumps(CONFIG))
                for name, elements in tensors.items():
                    oracle.write_float32(folder / f"{name}.bin", elements)
                try:
                    (folder / "snippet").write_text(snippet_of(client))
                    client.task("snippet", folder / "snippet", target, folder)
                    check_rotated(folder, tensors)
                except (Failure, OSError) as failure:
                    failed.append(f"{client.language}: {failure}")
                    continue
                print(f"{client.language}: the README's lines rotate q and k as the formula does")
    if failed:
        raise Failure("\n".join(failed))
