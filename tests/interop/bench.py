"""Figures of the clients: all clients make the same calls alternately, so that other
work on the machine affects all. A round's figure is the median of calls after 2 s of
warm-up (6 s in Java and Node, whose virtual machines compile that long) and one call
over every connection. The first call, which makes the connection and runs code before
its compilation, is reported beside it. Everything takes about a quarter of an hour on
two quiet cores; --rounds, --cases and languages select a part."""

import json
import statistics
import tempfile
import time

from languages import Failure
from servers import posencd

ROUNDS = 7
CASES = ("unary64", "unary1", "stream256")

# The same program with a tensor of one token. Its peak is the memory of runtime, gRPC and client. The call of
# a case uses the case's peak without this peak, the tensor and the result.
ALONE = "token1"

# A call of the bare gRPC library whose server returns the same bytes: the lower bound for a client
# that sends one message and receives one message. A case below its floor sends, computes and
# receives its chunks concurrently.
FLOORS = {"unary64": "echo64", "unary1": "echo1"}
HAVE_FLOORS = ("python", "java", "node")

# client/node/run gives Node `--no-incremental-marking` for large tensors, as
# client/node/README.md advises; this is the same call without it.
PLAIN = {"unary64": "plain64"}

MIB = 2 ** 20


def names_of(client, case):
    """Returns the measurements of a case: of the client, and of its references."""
    names = [case]
    if client.language in HAVE_FLOORS and case in FLOORS:
        names.append(FLOORS[case])
    if client.language == "node" and case in PLAIN:
        names.append(PLAIN[case])
    return names


def measure(client, target, name):
    """Returns the output of a client's benchmark. Runs it again if it fails, because a busy machine
    may delay a call beyond its deadline."""
    try:
        return json.loads(client.task("bench", target, name).splitlines()[-1])
    except (Failure, ValueError, IndexError) as failure:
        print(f"{client.language} {name}: failed, once more: {failure}", flush=True)
        return json.loads(client.task("bench", target, name).splitlines()[-1])


def rounds(clients, target, count, cases):
    """Returns (language, case) -> round -> measurement, and the cases that
    failed twice."""
    figures, failures = {}, []
    start = time.monotonic()
    for n in range(count):
        for case in (ALONE, *cases):
            for client in clients:
                for name in names_of(client, case):
                    try:
                        measured = measure(client, target, name)
                    except (Failure, ValueError, IndexError) as failure:
                        failures.append(f"round {n + 1}, {client.language} {name}: {failure}")
                        continue
                    figures.setdefault((client.language, name), {})[n] = measured
        print(f"round {n + 1} of {count}, {time.monotonic() - start:.0f} s", flush=True)
    return figures, failures


def lines(figures):
    """Returns one row for each client and case. Each ratio is the median of all rounds."""
    yield (f"{'client':<8}{'case':<11}{'ms':>9}{'to c++':>9}{'to floor':>10}{'first ms':>10}"
           f"{'peak MiB':>10}{'alone MiB':>11}{'call, in tensors':>18}")
    with_option = {plain: case for case, plain in PLAIN.items()}
    for (language, case), seen in figures.items():
        if case == ALONE:
            continue

        def ratio(other):
            base = figures.get(other, {})
            both = [n for n in seen if n in base]
            if not both or other == (language, case):
                return ""
            return f"{statistics.median(seen[n]['seconds'] / base[n]['seconds'] for n in both):.2f}"
        each = list(seen.values())
        seconds = statistics.median(one["seconds"] for one in each)
        first = statistics.median(one["first_seconds"] for one in each)
        peak = max(one["peak_bytes"] for one in each)
        tensor = each[0]["tensor_bytes"]
        alone = max((one["peak_bytes"] for one in figures.get((language, ALONE), {}).values()), default=None)
        own = "-" if alone is None else f"{(peak - alone - 2 * tensor) / tensor:.2f}"
        alone = "-" if alone is None else f"{alone / MIB:.0f}"
        to_cpp = ratio(("c++", with_option.get(case, case)))
        floor = ratio((language, FLOORS.get(case)))
        yield (f"{language:<8}{case:<11}{seconds * 1e3:>9.1f}{to_cpp:>9}"
               f"{floor:>10}{first * 1e3:>10.1f}{peak / MIB:>10.0f}{alone:>11}{own:>18}")


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
            figures, failures = rounds(clients, target, count, cases)
    print("\n".join(lines(figures)), flush=True)
    if any(client.language == "node" for client in clients):
        print("node: plain64 is unary64 as Node runs it; all its other large cases have "
              "--no-incremental-marking (client/node/README.md)", flush=True)
    if failures:
        raise Failure("\n".join(failures))
