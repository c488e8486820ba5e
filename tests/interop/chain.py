"""Keys pass through all languages: torch or NumPy makes them, Python rotates
them, each language moves them on, and the final keys are compared with the
formula."""

import subprocess
import tempfile
from pathlib import Path

import oracle
from languages import LANGUAGES, LIMIT_SECONDS, ROOT, Failure
from servers import posencd

TOKENS, HEADS, HEAD_DIM = 16, 2, 64

# Python rotates before the first hop, and Rust is the last hop. No two
# movements are equal, and their sum is not 0.
ORDER = {"go": 1000, "java": -37, "node": 4096, "c++": 3, "python": 100, "rust": 17}


def rotated_by_python(target, folder):
    """Returns the original keys, and the keys that Python's client rotated to
    positions 0, 1, ...; both bfloat16."""
    done = subprocess.run(
        [ROOT / "build/clients/python/venv/bin/python", "-B",
         ROOT / "tests/interop/rotate_keys.py", target, folder],
        capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode != 0:
        raise Failure(f"rotate_keys.py: {done.stderr}")
    return oracle.read_bfloat16(folder / "k.bf16"), folder / "rotated.bf16"


def chain(clients):
    """Each client moves the keys that the previous client wrote."""
    by_name = {client.language: client for client in clients}
    if "python" not in by_name:
        raise Failure("the chain begins with python, which is not there")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with posencd(folder, "chain") as target:
            original, path = rotated_by_python(target, folder)
            route, moved = [name for name in ORDER if name in by_name], 0
            for name in route:
                before, path = path, folder / f"{LANGUAGES[name]}.bf16"
                by_name[name].task("hop", target, before, path, ORDER[name])
                moved += ORDER[name]
        expected = oracle.rotate(original, HEADS, HEAD_DIM,
                                 [t + moved for t in range(TOKENS)],
                                 oracle.inverse_frequencies(HEAD_DIM))
        # Every step rounds both numbers of a pair to bfloat16, which moves the
        # pair by at most 2^-8 of its length (half an ulp is at most 2^-8 of a
        # number); later steps rotate this error. Before that rounding, a
        # rotation in float32 is off by 4 units of 2^-24, and a repositioning is
        # off by 10 such units.
        steps = 1 + len(route)
        bounds = oracle.bound(original, HEAD_DIM, HEAD_DIM, 4 + 10 * len(route),
                              last=steps * 2.0 ** -8)
        wrong = oracle.misfit(oracle.read_bfloat16(path), expected, bounds)
    if wrong:
        raise Failure(f"after {' -> '.join(route)}: {wrong}")
    print(f"python -> {' -> '.join(route)}: keys moved by {moved} stand where the formula "
          "puts them")
