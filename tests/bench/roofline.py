#!/usr/bin/env python3
"""Draws rows of `./run bench core --json FILE` as a roofline.

    roofline.py FILE PICTURE.svg

Shows rotations by the fastest instruction set: operations per second over operations
per byte that is read or written. A pair takes 6 operations (4 products, 2 sums), so
the type of the elements gives the horizontal position. The slanted lines are the
reference loops of the same run (a copy out of place, a scaling in place): the bound
for a rotation that only moves its bytes.
"""

import json
import math
import sys

TYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
LEVELS = (("L1", 16 << 10), ("L2", 256 << 10), ("64 MB", 64 << 20))
COLOURS = {"L1": "#8a5a00", "L2": "#0b6e4f", "64 MB": "#1f4e9c"}
YARDSTICKS = ("best_copy", "vector_copy", "best_scale", "in_place_scale")
PANELS = (("out", "into other memory"), ("in_place", "in place"))
WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 320, 60, 40, 70
ACROSS, UP = (0.08, 1.2), (4.0, 400.0)


def intensity(dtype):
    """Operations per byte: 3 per element, which is read and written."""
    return 3 / (2 * TYPES[dtype])


def place(value, limits, length):
    low, high = map(math.log, limits)
    return (math.log(value) - low) / (high - low) * length


def at(panel, x, y):
    left = LEFT + panel * (WIDTH + GAP)
    return left + place(x, ACROSS, WIDTH), TOP + HEIGHT - place(y, UP, HEIGHT)


def text(x, y, words, anchor="middle", colour="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def draw_panel(panel, rows, mode, title):
    out = []
    left, right = LEFT + panel * (WIDTH + GAP), LEFT + panel * (WIDTH + GAP) + WIDTH
    out.append(text((left + right) / 2, TOP - 14, title))
    out.append(
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
    )
    for tick in (5, 10, 20, 50, 100, 200, 400):
        _, y = at(panel, ACROSS[0], tick)
        out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>')
        out.append(text(left - 6, y + 4, tick, "end"))
    for dtype in ("float64", "float32", "float16"):
        x, _ = at(panel, intensity(dtype), UP[0])
        name = "16 bits" if dtype == "float16" else dtype
        out.append(text(x, TOP + HEIGHT + 16, f"{name}: {intensity(dtype):.2g}"))
    clip = f'clip-path="url(#panel{panel})"'
    out.append(
        f'<clipPath id="panel{panel}"><rect x="{left}" y="{TOP}" width="{WIDTH}" '
        f'height="{HEIGHT}"/></clipPath>'
    )
    for level, size in LEVELS:
        here = [r for r in rows if r["bytes"] == size and r["mode"] == mode]
        if not here:
            continue
        # Bytes that the reference loop reads and writes.
        bandwidth = max(2 * r["gbps"] / r["ratio"] for r in here)
        x1, y1 = at(panel, ACROSS[0], ACROSS[0] * bandwidth)
        x2, y2 = at(panel, ACROSS[1], ACROSS[1] * bandwidth)
        colour = COLOURS[level]
        out.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="1.5" {clip}/>'
        )
        x, y = at(panel, ACROSS[0] * 1.04, ACROSS[0] * 1.04 * bandwidth)
        out.append(text(x, y - 12, f"{level}, {bandwidth:.0f} GB/s", "start", colour))
        for row in here:
            # Separates types of the same width.
            shift = {"float16": 0.97, "bfloat16": 1.03}.get(row["dtype"], 1)
            work = intensity(row["dtype"])
            x, y = at(panel, work * shift, work * 2 * row["gbps"])
            filled = colour if row["pairing"] == "half_split" else "white"
            shape = 4 if row["dtype"] != "bfloat16" else 3
            out.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{shape}" fill="{filled}" stroke="{colour}">'
                f"<title>{row['dtype']} {row['pairing']} {level}: {row['gbps']:.0f} GB/s a side, "
                f"{row['ratio']:.2f} of {row['ratio_to']}</title></circle>"
            )
    return out


def main():
    source, picture = sys.argv[1:3]
    rows = json.load(open(source))
    fastest = rows[-1]["isa"]  # rows have the slowest set first; peers use the fastest
    rows = [
        r
        for r in rows
        if r["isa"] == fastest
        and r["ratio_to"] in YARDSTICKS
        and r["case"] in ("L1", "L2", "memory")
        and r["layout"] == "token_major"
        and r["dtype"] in TYPES
    ]
    width = LEFT + 2 * WIDTH + GAP + 20
    height = TOP + HEIGHT + 66
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for panel, (mode, title) in enumerate(PANELS):
        out += draw_panel(panel, rows, mode, f"{fastest}, one thread, {title}")
    out.append(text(14, TOP - 26, "10^9 operations a second", "start"))
    out.append(
        text(
            width / 2,
            TOP + HEIGHT + 36,
            "operations for each byte read or written; filled: half-split, open: interleaved; "
            "of 16 bits, left float16, right bfloat16",
        )
    )
    out.append(text(width / 2, TOP + HEIGHT + 54, "lines: the best copy or scaling in the same run"))
    out.append("</svg>")
    with open(picture, "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
