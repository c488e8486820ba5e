"""R26: bearer tokens: accepted and refused callers, and their answers."""
import os
import statistics
import subprocess
import time

import h2
from process import Server, until
from rows import certificates

UNAUTHENTICATED, PERMISSION_DENIED = 16, 7
# All methods of the contract. Each of them needs a token.
METHODS = ("GetServerInfo", "ResolveRope", "BuildTable", "BuildTableStream", "BuildBias",
           "BuildPositions", "ApplyRope", "ApplyRopeStream", "Reposition", "RepositionStream",
           "AddEncoding", "ScoreRelative", "ConvertPairing", "AnalyzeRope",
           "DiagnoseRope")
GOOD, OLD, LIMITED, GONE = ("posenc-test-token-" + letter * 24 for letter in "abcd")


def write_tokens(path, *tokens):
    with open(path + ".new", "w", encoding="ascii") as file:
        os.chmod(path + ".new", 0o600)
        file.writelines(f"tenant-{i} {token}\n" for i, token in enumerate(tokens))
        file.write(f"limited {LIMITED} methods=GetServerInfo,ResolveRope\n")
        file.write(f"gone {GONE} expires=2020-01-01T00:00:00Z\n")
    os.replace(path + ".new", path)


def status(connection, method, token=None):
    more = [("authorization", f"Bearer {token}")] if token is not None else []
    return connection.call(h2.SERVICE + method, more=more)


def times(connection, token, count):
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        status(connection, "GetServerInfo", token)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def run(world):
    if not world.knows("--token-file"):
        world.add("R26", "tokens", "exact codes", "no --token-file", False)
        return
    path = os.path.join(world.work, "tokens")
    write_tokens(path, GOOD, OLD)
    authority = certificates.Authority(os.path.join(world.work, "token-certificates"))
    tls = ("--tls-cert", authority.path("server.pem"), "--tls-key", authority.path("server.key"))
    with Server(world, "--token-file", path, *tls, tcp=True) as server:
        context = authority.context(certificate=False)
        with h2.Connection(server.address, context=context) as connection:
            for name, token, wanted in (("no token", None, UNAUTHENTICATED),
                                        ("a wrong token", GOOD[:-1] + "x", UNAUTHENTICATED),
                                        ("an empty token", "", UNAUTHENTICATED),
                                        ("a prefix of a token", GOOD[:-1], UNAUTHENTICATED),
                                        ("an expired token", GONE, UNAUTHENTICATED)):
                seen = {method: status(connection, method, token) for method in METHODS}
                wrong = {method: code for method, code in seen.items() if code != wanted}
                world.add("R26", f"{len(METHODS)} methods with {name}", f"all {wanted}",
                          f"all {wanted}" if not wrong else str(wrong), not wrong)
            for name, token in (("the first token", GOOD), ("the second token", OLD)):
                seen = {method: status(connection, method, token) for method in METHODS}
                wrong = {method: code for method, code in seen.items()
                         if code in (None, UNAUTHENTICATED, PERMISSION_DENIED)}
                world.add("R26", f"{len(METHODS)} methods with {name}", "let in",
                          "let in" if not wrong else str(wrong), not wrong)
            others = METHODS[2:]
            seen = {method: status(connection, method, LIMITED) for method in others}
            wrong = {method: code for method, code in seen.items() if code != PERMISSION_DENIED}
            world.add("R26", f"{len(others)} methods with a token for two others",
                      f"all {PERMISSION_DENIED}",
                      f"all {PERMISSION_DENIED}" if not wrong else str(wrong), not wrong)
            health = connection.call("/grpc.health.v1.Health/Check")
            world.add("R26", "health without a token", "0", str(health), health == 0)
            # A comparison that ends at the first difference takes longer for a
            # token with a right beginning. Medians of network calls only
            # exclude large effects; the unit test checks the comparison.
            near, far = times(connection, GOOD[:-1] + "x", 300), times(connection, "x" * 42, 300)
            world.add("R26", "time of a token wrong at its end and at its start", "within 20 %",
                      f"{near * 1e6:.0f} us, {far * 1e6:.0f} us", 0.8 <= near / far <= 1.25)
            write_tokens(path, GOOD)
            server.signal(1)
            gone = until(lambda: status(connection, "GetServerInfo", OLD) == UNAUTHENTICATED, 5,
                         0.05)
            stays = status(connection, "GetServerInfo", GOOD)
            world.add("R26", "a token taken out of the file", "16 within 5 s, the other stays",
                      f"{'16' if gone else 'still let in'}, the other {stays}",
                      gone and stays == 0)
    with open(path, "w", encoding="ascii") as file:
        file.write("")
    done = subprocess.run([world.program("posencd"), "--listen", "127.0.0.1:0", "--token-file",
                           path + ".absent"], check=False, capture_output=True, text=True,
                          timeout=10)
    lines = (done.stdout + done.stderr).strip().splitlines()
    world.add("R26", "start without the token file", "exit 2, one line",
              f"exit {done.returncode}, {len(lines)} line(s)",
              done.returncode == 2 and len(lines) == 1)
