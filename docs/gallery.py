"""Draws the gallery: docs/gallery.md and its pictures. The page shows the command of
each picture.

    gallery.py POSENC        writes page and pictures
    gallery.py POSENC check  fails if the commands draw other pictures now

The check compares the SVG without its embedded PNGs, whose bytes depend on
zlib."""

import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

DOCS = Path(__file__).resolve().parent
MOST_BYTES, MOST_BYTES_OF_ALL = 200_000, 1_500_000


def spec(dim, more=""):
    return f'{{"rotaryDim":{dim},"pairing":"PAIRING_HALF_SPLIT"{more}}}'


BASE_100 = spec(128, ',"ropeTheta":100')
TWO_AXES = spec(64, ',"axes":{"assignment":"ASSIGNMENT_PER_AXIS","sections":[16,16]}')

# Name, title, caption, arguments of `posenc plot`.
PICTURES = [
    ("frequencies", "Inverse frequency by pair",
     "A pair rotates by its frequency at every position: fast pairs distinguish single positions, slow pairs only "
     "positions that are thousands apart. Llama 3.1's scaling bends the line: fast pairs keep their "
     "frequencies, and the frequencies of slow pairs are divided by 8.",
     ["frequencies", "--preset", "llama-3.1-8b", "--compare-preset", "llama-3-8b"]),
    ("bases", "Base 100 against 10000",
     "The base decides how slow the slowest pairs are. With base 100 the slowest pair completes a rotation within 600 "
     "positions, and vectors have little in common from a distance of 60 on.",
     ["similarity", "--spec", spec(128), "--compare-spec", BASE_100, "--max-distance", "512"]),
    ("wavelengths", "Wavelengths and the trained length",
     "Pairs above the line of the trained length never completed a rotation in training: later positions give them "
     "angles that training never had.",
     ["wavelengths", "--preset", "llama-3-8b", "--trained-length", "8192"]),
    ("channels", "The first 8 sinusoidal channels",
     "Channels 2i and 2i + 1 are sine and cosine of the same frequency; each next pair is slower.",
     ["table", "--sinusoidal", "16", "--order", "interleaved", "--rows", "100", "--channels", "8"]),
    ("sinusoidal", "Rows of the sinusoidal encoding",
     "One row of 128 channels for each position, as it is added to a token's embedding.",
     ["table", "--sinusoidal", "128", "--order", "interleaved", "--rows", "256"]),
    ("angles", "Angles by position and pair",
     "Position times frequency, in full turns.",
     ["angles", "--spec", spec(256), "--rows", "1024"]),
    ("table", "Cosines and sines",
     "Rotations multiply by this table. (The command can also draw 8192 rows of 1024 pairs, with `--rows 8192` "
     "and `\"rotaryDim\":2048`.)",
     ["table", "--spec", spec(128), "--rows", "512"]),
    ("rotation", "A vector before and after its turn",
     "Rotary encodings rotate each pair of channels in its plane, by position times frequency.",
     ["rotation", "--spec", spec(4), "--position", "2", "--vector", "1,0.5", "--width", "560", "--height", "560"]),
    ("decay", "Long-term decay",
     "RoFormer's upper bound on a score (section 3.4.3) falls with the distance.",
     ["decay", "--spec", spec(128), "--max-distance", "256"]),
    ("image", "One axis and two in an image",
     "With positions counted along the rows, cell 64, at the far end of the first row, looks nearer to the first cell "
     "than cell 65, which lies just below it. With an axis for height and one for width, cell 65 is the "
     "neighbour of the first cell.",
     ["similarity", "--spec", spec(64), "--compare-spec", TWO_AXES, "--image", "64x64", "--height", "420"]),
    ("compare", "How readers differ",
     "llama.cpp and mlx-lm round the ends of YaRN's ramp to whole pairs; gpt-oss's own code does not.",
     ["compare", "--preset", "gpt-oss-20b"]),
    ("kept", "What is left of a score",
     "The same difference changes attention scores: 90 % of a score is left up to distance 5443, and 54 % at 18000.",
     ["kept", "--preset", "gpt-oss-20b", "--max-distance", "131072"]),
]

HEAD = """# Gallery

These pictures show what positional encodings do. The command under each picture
draws it, and runs the service inside its own process. `./run gallery` writes this page. `--json`
prints the numbers; `posenc.plots` of the Python client draws with matplotlib.
"""


def draw(posenc, folder):
    """Returns the pictures by name, and the page."""
    page, pictures = HEAD, {}
    for name, title, text, arguments in PICTURES:
        path = folder / f"{name}.svg"
        subprocess.run([posenc, "plot", *arguments, "--output", path], check=True, stdout=subprocess.DEVNULL)
        pictures[name] = path.read_text()
        root = xml.etree.ElementTree.fromstring(pictures[name])
        description = root.find("{http://www.w3.org/2000/svg}desc").text
        command = " ".join(shlex.quote(word) for word in ["posenc", "plot", *arguments, "--output", f"{name}.svg"])
        page += f"\n## {title}\n\n{text}\n\n![{description.strip()}](gallery/{name}.svg)\n\n```sh\n{command}\n```\n"
    return page, pictures


def without_images(svg):
    return re.sub(r"base64,[^\"]*", "", svg)


def main():
    posenc, check = sys.argv[1], sys.argv[2:] == ["check"]
    with tempfile.TemporaryDirectory() as folder:
        page, pictures = draw(Path(posenc).resolve(), Path(folder))
    sizes = {name: len(svg) for name, svg in pictures.items()}
    large = [name for name, size in sizes.items() if size > MOST_BYTES]
    if large or sum(sizes.values()) > MOST_BYTES_OF_ALL:
        sys.exit(f"gallery: too large: {large}, {sum(sizes.values())} bytes in all")
    if check:
        kept = {path.stem: path.read_text() for path in (DOCS / "gallery").glob("*.svg")}
        old = [name for name in kept.keys() | pictures.keys()
               if without_images(kept.get(name, "")) != without_images(pictures.get(name, ""))]
        if (DOCS / "gallery.md").read_text() != page:
            old.append("gallery.md")
        if old:
            sys.exit(f"gallery: old: {', '.join(sorted(old))}; write it with ./run gallery")
        return
    (DOCS / "gallery").mkdir(exist_ok=True)
    for path in (DOCS / "gallery").glob("*.svg"):
        path.unlink()
    for name, svg in pictures.items():
        (DOCS / "gallery" / f"{name}.svg").write_text(svg)
    (DOCS / "gallery.md").write_text(page)
    print(f"gallery: {len(pictures)} pictures, {sum(sizes.values())} bytes")


main()
