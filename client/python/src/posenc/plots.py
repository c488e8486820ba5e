"""Draws the pictures of `posenc plot` with matplotlib (pip install
'posenc[plots]').

    client = posenc.connect("localhost:50051")
    ax = posenc.plots.kept(client, "gpt-oss-20b")
    ax.figure.savefig("kept.svg")

Every function draws into `ax` or into a new figure, and returns the axes.
`ropes` is one rope or a dict of ropes by name; each rope gets a curve. A rope
has one of the forms that Client.resolve takes. The numbers come from the server,
or are computed here from the server's frequencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

import matplotlib.colors
import matplotlib.patches
import matplotlib.pyplot
import numpy

from .client import Client, Rope
from .errors import InvalidArgumentError, invalid
from .messages import AnalyzeRopeResponse, Pairing, Profile, ResolveRopeResponse, RopeSource, RopeSpec, RotarySlice
from .sources import SOURCE_FIELDS, rope_source

# The colours of the command `posenc plot`: the palette of Okabe and Ito, with
# grey instead of yellow. Each colour has its own dash pattern.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#767676")
_DASHES = ("-", "--", ":", "-.", (0, (3, 2)), (0, (7, 2)), (0, (7, 2, 1, 2)), (0, (1, 2)))

# Default number of points of a curve over the distance.
_DISTANCES = 1024


def frequencies(client: Client, ropes: Any, *, ax: Any = None) -> Any:
    """Draws radians per position of each pair, on a logarithmic axis."""
    ax = _axes(ax, "pair of channels", "radians per position")
    for name, rope in _named(ropes).items():
        own = numpy.abs(_frequencies(client, rope))
        _curve(ax, name, range(len(own)), own)
    ax.set_yscale("log")
    return _finished(ax, "Frequency of each pair")


def wavelengths(client: Client, ropes: Any, *, trained_length: int = 0, ax: Any = None) -> Any:
    """Draws the number of positions that each pair needs for a full turn, and a line at trained_length."""
    ax = _axes(ax, "pair of channels", "positions per full turn")
    for name, rope in _named(ropes).items():
        values = client.analyze_rope(rope, trained_length=trained_length).wavelengths
        _curve(ax, name, range(len(values)), numpy.abs(values))
    ax.set_yscale("log")
    if trained_length:
        ax.axhline(trained_length, color="black", linewidth=1, linestyle=":", label=f"trained length {trained_length}")
    return _finished(ax, "Wavelength of each pair")


def decay(client: Client, ropes: Any, *, max_distance: int = 4096, distance_step: int = 0, ax: Any = None) -> Any:
    """Draws RoFormer's bound on a score (section 3.4.3) over the distance."""
    ax = _axes(ax, "distance in positions", "bound on a score")
    for name, rope in _named(ropes).items():
        distances, answer = _analyzed(client, rope, max_distance, distance_step)
        _curve(ax, name, distances, answer.decay)
    ax.set_ylim(bottom=0)
    return _finished(ax, "Long-term decay (RoFormer, 3.4.3)")


def similarity(
    client: Client, ropes: Any, *, max_distance: int = 4096, distance_step: int = 0,
    image: Optional[tuple[int, int]] = None, ax: Any = None,
) -> Any:
    """Draws the mean of cos(distance * frequency) over all pairs, for each distance.

    image: (height, width) draws a heat map for one rope.
        The map shows the similarity of the first cell of an image with each other cell.
        A rope with one position axis counts the cells row by row.
        If a rope has two or three axes, the last two axes are height and width.
    """
    if image is not None:
        return _image(client, ropes, image, ax)
    ax = _axes(ax, "distance in positions", "mean of cos(distance x frequency)")
    for name, rope in _named(ropes).items():
        distances, answer = _analyzed(client, rope, max_distance, distance_step)
        _curve(ax, name, distances, answer.similarity)
    return _finished(ax, "Similarity of a vector with itself, moved away")


def angles(client: Client, rope: Any, *, rows: int = 1024, start: int = 0, ax: Any = None) -> Any:
    """Draws position times frequency in full turns, with a row for each position."""
    _positive(rows, "rows")
    turns = numpy.abs(numpy.outer(numpy.arange(start, start + rows), _frequencies(client, rope))) / (2 * numpy.pi)
    ax = _axes(ax, "pair of channels", "position")
    # Angles below 1e-4 full turns are not visible.
    norm = matplotlib.colors.LogNorm(1e-4, max(1.0, turns.max()), clip=True)
    return _heat_map(ax, numpy.maximum(turns, 1e-4), start, "full turns", "Angles", norm=norm)


def table(
    client: Client, rope: Any = None, *, absolute: Any = None, rows: Optional[int] = 1024, start: int = 0,
    values: str = "cos", channels: Optional[int] = None, ax: Any = None,
) -> Any:
    """Draws the cosines or sines of a rope, or the rows of an absolute encoding.

    values: "cos" or "sin", for a rope.
    channels: number of columns to draw as curves, from the first on. None draws all columns as a heat map.
    rows: number of rows, or None for encodings with a fixed number of rows, such as sincos_grid.
    """
    if values not in ("cos", "sin"):
        raise invalid("values", f"is {values!r}; must be 'cos' or 'sin'")
    positions = None if rows is None else start
    if absolute is not None:
        matrix = numpy.asarray(client.build_table(absolute=absolute, rows=rows, positions=positions), numpy.float64)
    else:
        table = client.build_table(rope=rope, rows=rows, positions=positions)
        matrix = numpy.asarray(getattr(table, values), numpy.float64)
    word = "channel" if absolute is not None else "pair of channels"
    if channels is None:
        most = max(1.0, numpy.abs(matrix).max(initial=0))
        ax = _axes(ax, word, "position")
        return _heat_map(ax, matrix, start, "value", "Table", vmin=-most, vmax=most)
    if not 1 <= channels <= min(len(_COLORS), matrix.shape[1]):
        raise invalid("channels", f"is {channels}; must be in [1, {min(len(_COLORS), matrix.shape[1])}]")
    ax = _axes(ax, "position", "value")
    for channel in range(channels):
        _curve(ax, f"{word} {channel}", numpy.arange(start, start + len(matrix)), matrix[:, channel])
    return _finished(ax, f"First {channels} columns of the table")


def bias(matrix: Any, *, head: int = 0, ax: Any = None) -> Any:
    """Draws one head of a bias [heads, queries, keys], or of the scores of one sequence.
    Masked cells (-inf) are empty."""
    values = numpy.asarray(matrix, numpy.float64)
    if values.ndim != 3 or not 0 <= head < len(values):
        raise invalid("matrix", f"has the shape {values.shape}; [heads, queries, keys] with head {head} is drawn")
    shown = values[head]
    shown = numpy.where(numpy.isfinite(shown), shown, numpy.nan)
    ax = _axes(ax, "key", "query")
    return _heat_map(ax, shown, 0, "added to the score", f"Head {head}", aspect="equal")


def rotation(
    client: Client, rope: Any, *, position: int = 1, pair: int = 0, vector: tuple[float, float] = (1.0, 0.0),
    ax: Any = None,
) -> Any:
    """Draws a vector in the plane of a pair, before and after its rotation."""
    resolved = _resolved(client, rope)
    spec = resolved.spec or RopeSpec()
    pairs = len(resolved.inv_freq)
    if resolved.axis_of_pair:
        raise invalid("rope", "has several position axes; this picture shows one")
    if not 0 <= pair < pairs:
        raise invalid("pair", f"is {pair}; must be in [0, {pairs})")
    width = max(resolved.head_dim, spec.rotary_dim)
    offset = width - spec.rotary_dim if spec.slice == RotarySlice.TRAILING else 0

    def channels(pairing: Any) -> list[int]:
        if pairing == Pairing.INTERLEAVED:
            return [offset + 2 * pair, offset + 2 * pair + 1]
        return [offset + pair, offset + pair + pairs]

    head = numpy.zeros((1, 1, 1, width))
    head[..., channels(spec.pairing)] = vector
    turned, _ = client.apply_rope(head, rope=spec, positions=position, layout="bshd")
    after = turned[0, 0, 0, channels(spec.output_pairing or spec.pairing)]
    ax = _axes(ax, "first channel of the pair", "second channel")
    ends: dict[str, Any] = {"before": vector, "after": after}
    for index, (name, (x, y)) in enumerate(ends.items()):
        arrow = {"arrowstyle": "->", "color": _COLORS[index], "linestyle": _DASHES[index], "linewidth": 2}
        ax.annotate("", (x, y), (0, 0), arrowprops=arrow)
        _curve(ax, name, [0, x], [0, y])
    radius = float(numpy.hypot(*vector))
    ax.add_patch(matplotlib.patches.Circle((0, 0), radius, fill=False, color=_COLORS[3], linestyle="-."))
    ax.set_aspect("equal", adjustable="datalim")
    angle = position * resolved.inv_freq[pair]
    return _finished(ax, f"Pair {pair} at position {position} turns by {angle:.6g} rad")


def compare(client: Client, rope: Any, others: Optional[Mapping[str, Any]] = None, *, ax: Any = None) -> Any:
    """Draws the frequencies of other ropes, or of other readers of `rope`, divided by the frequencies of `rope`."""
    own = _frequencies(client, rope)
    ax = _axes(ax, "pair of channels", "ratio of frequencies")
    for name, other in _others(client, rope, others).items():
        theirs = _frequencies(client, other)
        count = min(len(own), len(theirs))
        moving = numpy.flatnonzero(own[:count])
        _curve(ax, name, moving, theirs[moving] / own[moving])
    ax.axhline(1, color="black", linewidth=1, linestyle=":")
    return _finished(ax, "Frequencies of others over one's own")


def kept(
    client: Client, rope: Any, others: Optional[Mapping[str, Any]] = None, *, max_distance: int = 131072,
    ax: Any = None,
) -> Any:
    """Draws the share of a score that is left if another reader rotates q and k.
    The share is the mean of cos(distance * |w - w'|) over all pairs. A line marks the share 0.9.
    The axis of distances is logarithmic."""
    if max_distance < 2:
        raise invalid("max_distance", f"is {max_distance}; must be at least 2")
    own = _frequencies(client, rope)
    distances = numpy.unique(numpy.round(numpy.geomspace(1, max_distance, _DISTANCES)))
    ax = _axes(ax, "distance in positions", "kept(distance)")
    for name, other in _others(client, rope, others).items():
        theirs = _frequencies(client, other)
        width = max(len(own), len(theirs))
        # A pair that only one of the two readers rotates has frequency 0 in the other reader.
        apart = numpy.pad(own, (0, width - len(own))) - numpy.pad(theirs, (0, width - len(theirs)))
        _curve(ax, name, distances, numpy.cos(numpy.outer(distances, apart)).mean(axis=1))
    ax.axhline(0.9, color="black", linewidth=1, linestyle=":")
    ax.set_xscale("log")
    return _finished(ax, "What is left of a score")


def _named(ropes: Any) -> dict[str, Any]:
    """Returns a dict of ropes by name. A dict whose keys are fields of a rope is a single rope."""
    if isinstance(ropes, Mapping) and ropes and not SOURCE_FIELDS & set(ropes):
        kinds = (str, Mapping, RopeSource, RopeSpec, Rope)
        if all(isinstance(value, kinds) for value in ropes.values()):
            return dict(ropes)
    return {ropes if isinstance(ropes, str) and len(ropes) < 40 else "rope": ropes}


def _others(client: Client, rope: Any, others: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns `others` if it is given; otherwise the specs of all default readers that do not refuse the rope."""
    if others is not None:
        return dict(others)
    source = rope_source(rope)
    if source.spec is not None:
        raise invalid("others", "is missing; a spec means the same to every reader")
    found: dict[str, Any] = {}
    for profile in (Profile.HF, Profile.VLLM, Profile.LLAMA_CPP, Profile.MLX):
        try:
            found[profile.name.lower()] = client.resolve(source, profile=profile).spec
        except InvalidArgumentError:
            continue  # this reader refuses it
    return found


def _frequencies(client: Client, rope: Any) -> Any:
    return numpy.asarray(_resolved(client, rope).inv_freq)


def _resolved(client: Client, rope: Any) -> ResolveRopeResponse:
    resolved = client.resolve(rope)
    spec = resolved.spec or RopeSpec()
    if spec.nope:
        raise invalid("rope", "has no positional encoding (NoPE): there is nothing to draw")
    if len(resolved.inv_freq) != spec.rotary_dim // 2:
        raise invalid("rope", "has frequencies by head or by axis; a picture shows one for each pair")
    return resolved


def _analyzed(client: Client, rope: Any, max_distance: int, step: int) -> tuple[Any, AnalyzeRopeResponse]:
    _positive(max_distance, "max_distance")
    step = step or -(-max_distance // _DISTANCES)
    answer = client.analyze_rope(rope, max_distance=max_distance, distance_step=step)
    return step * numpy.arange(len(answer.decay)), answer


def _image(client: Client, rope: Any, image: tuple[int, int], ax: Any) -> Any:
    height, width = image
    if min(height, width) < 1:
        raise invalid("image", f"is {image}; must be a height and a width")
    resolved = _resolved(client, rope)
    cells = numpy.arange(height * width)
    axes = resolved.axis_of_pair
    if not axes:
        distance = numpy.outer(cells, numpy.ones(len(resolved.inv_freq)))
    else:
        count = max(axes) + 1
        if count > 3:
            raise invalid("rope", f"has {count} position axes; an image has two, or three with time")
        places = [numpy.zeros_like(cells), cells // width, cells % width][3 - count :]
        distance = numpy.stack([places[axis] for axis in axes], axis=1)
    similar = numpy.cos(distance * numpy.asarray(resolved.inv_freq)).mean(axis=1).reshape(height, width)
    ax = _axes(ax, "column", "row of the image")
    title = f"Similarity of the first of {height} x {width} cells"
    return _heat_map(ax, similar, 0, "similarity", title, aspect="equal")


def _positive(value: int, name: str) -> None:
    if value < 1:
        raise invalid(name, f"is {value}; must be positive")


def _axes(ax: Any, x: str, y: str) -> Any:
    if ax is None:
        _, ax = matplotlib.pyplot.subplots(figsize=(8, 4.8), layout="constrained")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    return ax


def _curve(ax: Any, name: str, x: Iterable[Any], y: Iterable[Any]) -> None:
    index = len(ax.lines) % len(_COLORS)
    ax.plot(list(x), list(y), label=name, color=_COLORS[index], linestyle=_DASHES[index])


def _heat_map(ax: Any, matrix: Any, start: int, label: str, title: str, aspect: str = "auto", **scale: Any) -> Any:
    """Draws the rows from the top; the first row has the number `start`.
    The number of a row or column is at the middle of the row or column."""
    rows, columns = matrix.shape
    extent = (-0.5, columns - 0.5, start + rows - 0.5, start - 0.5)
    image = ax.imshow(matrix, cmap="cividis", aspect=aspect, extent=extent, interpolation="nearest", **scale)
    ax.figure.colorbar(image, ax=ax, label=label)
    ax.set_title(title)
    return ax


def _finished(ax: Any, title: str) -> Any:
    ax.set_title(title)
    ax.grid(color="#dddddd")
    if len(ax.lines) > 1:
        ax.legend()
    return ax
