"""Replays a table of error cases, in which all clients must fail in the same
way.

    python error_table.py TABLE ENVFILE

Prints a line with "errors", name, ok or fail, and why, for each case.
"""

import json
import sys

import numpy
import posenc


def options(case, env):
    given = case.get("options", {})
    result = {}
    if given.get("tls"):
        result["tls"] = True
    if "ca" in given:
        result["tls_ca"] = {"right": env["CA"], "wrong": env["WRONG_CA"]}[given["ca"]]
    if "token" in given:
        result["token"] = env["TOKEN_" + given["token"].upper()]
    if "timeout" in given:
        result["timeout"] = given["timeout"]
    return result


def call(client, case):
    if case["call"] == "info":
        return client.get_server_info()
    arguments = case.get("arguments", {})
    if case["call"] == "table":
        return client.build_table(rope=arguments["rope"], rows=arguments["rows"])
    if case["call"] != "rotate":
        raise ValueError(f"{case['call']!r} is no call")
    shape = arguments.get("shape", [1, 4, 2, 8])
    q = numpy.zeros(shape, arguments.get("dtype", "float32")) if arguments.get("q", 1) else None
    positions = arguments.get("positions", arguments.get("start", 0))
    if "ids" in arguments:
        positions = numpy.array([float(v) for v in arguments["ids"]])
    rest = {
        "rope": arguments.get("rope", {"pairing": "half_split"}),
        "positions": positions,
        "layout": arguments.get("layout", "bshd"),
    }
    if "memory" in arguments:
        return in_other_memory(client, arguments["memory"], rest)
    return client.apply_rope(q, **rest, out=output(arguments.get("out"), q))


def output(given, q):
    """Returns the argument `out`: a pair with an array for q's or k's result."""
    if given is None:
        return None
    out = numpy.zeros(given.get("shape", q.shape), given.get("dtype", q.dtype))
    out.flags.writeable = not given.get("read_only", False)
    return (None, out) if given.get("of") == "k" else (out, None)


def in_other_memory(client, memory, rest):
    """Checks that a strided or big-endian array gives the same result as a plain array."""
    plain = numpy.arange(64, dtype="float32").reshape(1, 4, 2, 8)
    other = {
        "strided": lambda: numpy.repeat(plain, 2, axis=-1)[..., ::2],
        "big_endian": lambda: plain.astype(">f4"),
    }[memory]()
    (wanted, _), (got, _) = (client.apply_rope(q, **rest) for q in (plain, other))
    if got.tobytes() != wanted.tobytes():
        raise ValueError("the result is another")


def misfit(expect, error):
    if error.code not in expect["code"].split("|"):
        return f"the code is {error.code}: {error}"
    for name in ("reason", "field"):
        if name in expect and getattr(error, name) != expect[name]:
            return f"the {name} is {getattr(error, name)!r}; must be {expect[name]!r}"
    lacking = [text for text in expect.get("text", []) if text not in str(error)]
    return f"the text lacks {lacking}: {error}" if lacking else ""


def judge(case, env):
    try:
        with posenc.Client(env[case["server"].upper()], **options(case, env)) as client:
            call(client, case)
    except posenc.PosencError as error:
        return misfit(case["expect"], error)
    except Exception as error:  # another exception than the expected one
        return f"{type(error).__name__}: {error}"
    return "" if case["expect"]["code"] == "OK" else "succeeded"


def main(table, envfile):
    with open(envfile, encoding="utf-8") as file:
        lines = [line.strip().partition("=") for line in file if "=" in line]
    env = {key: value.strip("'\"") for key, _, value in lines}
    with open(table, encoding="utf-8") as file:
        cases = json.load(file)
    failed = not cases
    for case in cases:
        if "python" not in case.get("only", ["python"]):
            continue
        why = judge(case, env)
        failed |= bool(why)
        print("errors", case["name"], "fail" if why else "ok", " ".join(why.split()), sep="\t")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
