"""Figures of the clients: every client makes the same calls, in turns, so that
what else the machine does falls on all. A round's figure is the median of calls
that follow 2 s of them (6 s in Java and Node, whose virtual machines compile for
so long), and one over every connection; the first one, which makes the connection
and runs code that nobody has compiled, stands beside it. All of it takes about twelve
minutes on two quiet cores; --rounds, --cases and languages take a part of it."""

import json
import statistics
import tempfile

from languages import Failure
from servers import posencd

ROUNDS = 7
CASES = ("unary64", "unary1", "stream256")

# An identity call of the same bytes through the bare library, client and server:
# what a client over it cannot be faster than with one message each way. Where a
# case goes below its floor, the client's chunks are sent, computed and received
# at once.
FLOORS = {"unary64": "echo64", "unary1": "echo1"}
HAVE_FLOORS = ("python", "java", "node")

MIB = 2 ** 20


def measure(client, target, case):
    return json.loads(client.task("bench", target, case).splitlines()[-1])


def rounds(clients, target, count, cases):
    """(language, case) -> what each round measured."""
    figures = {}
    for n in range(count):
        for case in cases:
            for client in clients:
                names = [case]
                if client.language in HAVE_FLOORS and case in FLOORS:
                    names.append(FLOORS[case])
                for name in names:
                    figures.setdefault((client.language, name), []).append(
                        measure(client, target, name))
        print(f"round {n + 1} of {count}", flush=True)
    return figures


def lines(figures):
    """One a client and case. Ratios are the median of the rounds' own ratios."""
    yield (f"{'client':<8}{'case':<11}{'ms':>9}{'to c++':>9}{'to floor':>10}{'first ms':>10}"
           f"{'peak MiB':>10}{'beside tensor and result':>26}")
    for (language, case), seen in figures.items():
        def ratio(other):
            base = figures.get(other)
            if not base or other == (language, case):
                return ""
            return f"{statistics.median(a['seconds'] / b['seconds'] for a, b in zip(seen, base)):.2f}"
        seconds = statistics.median(each["seconds"] for each in seen)
        first = statistics.median(each["first_seconds"] for each in seen)
        peak = max(each["peak_bytes"] for each in seen)
        tensor = seen[0]["tensor_bytes"]
        beside = (peak - 2 * tensor) / tensor
        floor = ratio((language, FLOORS.get(case)))
        yield (f"{language:<8}{case:<11}{seconds * 1e3:>9.1f}{ratio(('c++', case)):>9}"
               f"{floor:>10}{first * 1e3:>10.1f}{peak / MIB:>10.0f}{beside:>19.2f} tensors")


def bench(clients, count=ROUNDS, cases=CASES):
    unknown = [case for case in cases if case not in CASES]
    if unknown or not cases:
        raise Failure(f"{unknown[0] if unknown else 'nothing'} is no case; "
                      f"there are: {', '.join(CASES)}")
    if count < 1:
        raise Failure(f"{count} rounds; at least 1")
    if all(client.language != "c++" for client in clients):
        raise Failure("ratios are to the C++ client: name c++ too")
    with tempfile.TemporaryDirectory() as folder:
        with posencd(folder, "bench") as target:
            figures = rounds(clients, target, count, cases)
    print("\n".join(lines(figures)))
