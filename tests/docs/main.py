"""Runs the commands of docs/tutorial.md and docs/how-to, and compares their output.

    main.py BIN [PAGE...]          BIN: the folder with posenc, posencd and posenc-load
    main.py BIN --write [PAGE...]  also keeps the pictures that the tutorial's commands draw

Each page runs in its own folder, initially a copy of the page's inputs
(docs/tutorial for docs/tutorial.md). Its blocks run in order:

- ```console: after "$ " a command (a line that ends in "\\" continues on the next line), then its
  output on both streams. "..." stands for any text within a line, and alone for any lines.
- ```sh: commands whose output is not compared.

A command that fails makes the page fail; a command that should fail ends in
`|| echo "exit $?"`. The runner's own server answers at a page's localhost:50051. The end of the
output lists the blocks that did not run. A line before a block may be one of these:

- `<!-- needs: TOOL ... -->`: without these programs it is not run.
- `<!-- rehearsed: TOOL ... -->`: it needs a cluster, and is compared with the chart
  instead (rehearse.py), if these programs exist.
- `<!-- shortened: FLAG ... -->`: its posenc-load gets these flags, too, so that it runs in
  seconds on a busy machine.
- `<!-- by hand: WHAT -->`: it is never run, because it needs WHAT.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rehearse import Mismatch, Rehearsal

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MARK = r"<!-- (needs|rehearsed|shortened|by hand): ([^\n]*?) -->\n+"
BLOCK = re.compile(rf"(?:{MARK})?^```(console|sh)\n(.*?)^```$", re.S | re.M)
LONGEST_SECONDS = 600


class Failure(Exception):
    pass


def server(bin_dir, folder):
    """Starts a posencd on a free port, and gives its address."""
    ready = folder / "ready"
    process = subprocess.Popen([bin_dir / "posencd", "--listen", "127.0.0.1:0", "--ready-file", ready],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (ready.exists() and ready.read_text()):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise Failure("posencd does not start")
        time.sleep(0.05)
    return process, ready.read_text().split("\n")[0]


def commands(text):
    """Commands of a console block, each with the lines that follow it."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif not found:
            raise Failure(f"a console block begins with no command: {line}")
        elif found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1][0] += "\n" + line
        else:
            found[-1][1].append(line)
    return found


def pattern(lines):
    """Returns a pattern of the lines, where "..." matches any text."""
    parts = [r"(?:.*\n)*" if line.strip() == "..."
             else r"[^\n]*".join(re.escape(part.rstrip()) for part in line.split("...")) + r"[ ]*\n"
             for line in lines]
    return re.compile("".join(parts))


def run(command, folder, path):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env={**os.environ, "PATH": path},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LONGEST_SECONDS, check=False)
    if done.returncode != 0:
        raise Failure(f"exit {done.returncode} of\n{command}\n{done.stdout}")
    return done.stdout


def rehearse(text, rehearsal):
    all_commands = text.replace("\\\n", " ").splitlines()
    for command in all_commands:
        try:
            rehearsal.command(command)
        except Mismatch as mismatch:
            raise Failure(f"{command}\n{mismatch}") from mismatch
    return len(all_commands)


def run_block(kind, text, folder, path):
    if kind == "sh":
        run(text, folder, path)
        return 1
    all_commands = commands(text)
    for command, expected in all_commands:
        printed = run(command, folder, path)
        if not pattern(expected).fullmatch(printed if printed.endswith("\n") or not printed else printed + "\n"):
            raise Failure(f"{command}\nprints\n{printed}\nand the page says\n" + "\n".join(expected))
    return len(all_commands)


def keep_pictures(page, work, write):
    """Compares the pictures beside the page with those that its commands drew; or
    replaces them."""
    for picture in sorted(work.glob("*.svg")):
        kept = DOCS / page.stem / picture.name
        if f"({page.stem}/{picture.name})" not in page.read_text():
            continue
        if write:
            shutil.copy(picture, kept)
        bare = [re.sub(r"base64,[^\"]*", "", path.read_text()) if path.exists() else "" for path in (picture, kept)]
        if bare[0] != bare[1]:
            raise Failure(f"{kept.relative_to(ROOT)} is old; write it with ./run pages --write")


def run_page(page, bin_dir, write):
    """Returns how many commands ran, and which blocks did not."""
    path = f"{bin_dir}:{ROOT / 'build/tools'}:{os.environ['PATH']}"
    text, process, ran, left_out, rehearsal = page.read_text(), None, 0, [], None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        work = folder / "work"
        inputs = page.with_suffix("")
        shutil.copytree(inputs, work, ignore=shutil.ignore_patterns("*.svg")) if inputs.is_dir() else work.mkdir()
        try:
            for mark, what, kind, block in BLOCK.findall(text):
                tools = what.split() if mark in ("needs", "rehearsed") else []
                missing = [tool for tool in tools if not shutil.which(tool, path=path)]
                if mark == "by hand" or missing:
                    reason = what if mark == "by hand" else f"no {', '.join(missing)}"
                    left_out.append(f"{page.relative_to(ROOT)}: {block.splitlines()[0]} ({reason})")
                    continue
                if process is None and (mark == "rehearsed" or "localhost:50051" in block):
                    process, address = server(bin_dir, folder)
                if mark == "rehearsed":
                    if rehearsal is None:
                        rehearsal = Rehearsal(ROOT, path, lambda command: run(command, work, path), address)
                    ran += rehearse(block, rehearsal)
                    continue
                if mark == "shortened":
                    block = block.replace("posenc-load ", f"posenc-load {what} ")
                if process is not None:
                    block = block.replace("localhost:50051", address)
                ran += run_block(kind, block, work, path)
        finally:
            if process is not None:
                process.terminate()
                process.wait()
        keep_pictures(page, work, write)
    return ran, left_out


def main():
    arguments = sys.argv[1:]
    write = "--write" in arguments
    bin_dir, *names = [argument for argument in arguments if argument != "--write"]
    pages = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
    chosen = [page for page in pages if not names or page.stem in names]
    if names and len(chosen) != len(names):
        sys.exit(f"pages: there are: {', '.join(page.stem for page in pages)}")
    left_out, failed = [], False
    for page in chosen:
        try:
            ran, missing = run_page(page, Path(bin_dir).resolve(), write)
            print(f"{page.relative_to(ROOT)}: {ran} commands")
            left_out += missing
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"{page.relative_to(ROOT)}: FAILED: {failure}", file=sys.stderr)
            failed = True
    for line in left_out:
        print(f"not run: {line}")
    sys.exit(failed)


main()
