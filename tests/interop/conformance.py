"""Every client replays the vectors, the bad requests and the table of errors. Prints
one table, language x family."""

import json
import shutil
import struct
import tempfile
from collections import defaultdict
from pathlib import Path

import bad_requests
from languages import ROOT, Failure
from servers import error_servers, posencd

VECTORS = ROOT / "proto/testdata/conformance"
ERRORS = ROOT / "proto/testdata/client_errors.json"


def expected_cases(vectors, errors, language):
    """Returns the names by family in the files, for a language."""
    families = {}
    for file in sorted(Path(vectors).glob("*.json")):
        families[file.stem] = [case["name"] for case in json.loads(file.read_text())]
    if errors:
        families["errors"] = [case["name"] for case in json.loads(Path(errors).read_text())
                              if language in case.get("only", [language])]
    return families


def judge(output, cases):
    """Returns families -> {name: why it failed, or ""}, for all of `cases`. A case that
    the client does not mention has failed."""
    told = defaultdict(dict)
    for line in output.splitlines():
        family, name, verdict, why = (line.split("\t") + ["", "", ""])[:4]
        if told[family].get(name):
            continue  # reported twice, and once as failed
        told[family][name] = "" if verdict == "ok" else why or f"says {verdict!r}"
    return {family: {name: told[family].get(name, "is not in the client's output")
                     for name in names} for family, names in cases.items()}


def failures(results):
    return {(family, name): why for family, names in results.items()
            for name, why in names.items() if why}


def replay(client, target, vectors, env_file=None):
    """Returns a client's results for the vectors and, if env_file is given, the
    errors."""
    cases = expected_cases(vectors, ERRORS if env_file else None, client.language)
    done = client.run("conformance", target, vectors)
    output, code = done.stdout, done.returncode
    if env_file:
        errors = client.run("errors", ERRORS, env_file)
        output += errors.stdout
        done.stderr += errors.stderr
        code = code or errors.returncode
    results = judge(output, cases)
    if code != 0 and not failures(results):
        results["errors" if env_file else next(iter(cases))]["(exit code)"] = (
            f"{code} although all is well: {done.stderr[-500:]}")
    return results, done.stderr


def table(all_results):
    """Returns lines: a row for each family, a column for each language."""
    families = list(next(iter(all_results.values())))
    width = max(map(len, families)) + 2
    lines = ["".join([" " * width] + [f"{language:>9}" for language in all_results])]
    totals = {language: [0, 0] for language in all_results}
    for family in families:
        cells = []
        for language, results in all_results.items():
            names = results[family]
            good = sum(not why for why in names.values())
            totals[language][0] += good
            totals[language][1] += len(names)
            cells.append(f"{good}/{len(names)}")
        lines.append("".join([f"{family:<{width}}"] + [f"{cell:>9}" for cell in cells]))
    cells = [f"{good}/{all_}" for good, all_ in totals.values()]
    lines.append("".join([f"{'all':<{width}}"] + [f"{cell:>9}" for cell in cells]))
    return lines


def conformance(clients):
    """Prints the table. Raises Failure if a client failed a case."""
    wrong, all_results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(shutil.copytree(VECTORS, Path(folder) / "vectors"))
        bad_requests.write(vectors)
        with posencd(folder, "posencd") as target, error_servers(folder) as env_file:
            for client in clients:
                results, stderr = replay(client, target, vectors, env_file)
                all_results[client.language] = results
                found = failures(results)
                wrong += [f"{client.language}: {family} {name}: {why}"
                          for (family, name), why in found.items()]
                if found and stderr.strip():
                    wrong.append(f"{client.language} said: {stderr.strip()[-1000:]}")
    print("\n".join(table(all_results)))
    if wrong:
        shown = wrong[:40] + [f"and {len(wrong) - 40} more"] * (len(wrong) > 40)
        raise Failure("\n".join(shown))


# ---- A vector with one changed bit ------------------------------------------


def flip_integer(value):
    """Returns an exact integer with its lowest bit flipped, in the same
    spelling."""
    flipped = int(float(value)) ^ 1
    return str(flipped) if isinstance(value, str) else flipped


def flip_float32(value):
    """Returns the float32 nearest to a true value, with its lowest bit flipped:
    one step away from a correctly rounded answer."""
    (bits,) = struct.unpack("<I", struct.pack("<f", float(value)))
    (flipped,) = struct.unpack("<f", struct.pack("<I", bits ^ 1))
    return f"{flipped:.20g}"


def flip_letter(text):
    """Returns a text with the lowest bit of its last letter flipped."""
    return text[:-1] + chr(ord(text[-1]) ^ 1)


def change(case, family):
    """Flips one bit of a case's expectations. Returns False if the case has no bit
    that a client must notice."""
    expect = case["expect"]
    if isinstance(expect, dict):
        if not family.endswith("_errors"):
            return False  # families of answers have a few errors too
        expect["reason"] = flip_letter(expect["reason"])
        return True
    for item in expect:
        bound = item["bound"]
        if item.get("dtype") in ("DTYPE_INT32", "DTYPE_INT64") and bound["kind"] == "exact":
            flip = flip_integer
        elif item.get("dtype") == "DTYPE_FLOAT32" and bound == {"kind": "ulp", "value": 0}:
            flip = flip_float32
        else:
            continue
        for i, value in enumerate(item["values"]):
            if float(value) not in (0.0, float("inf"), float("-inf")):
                item["values"][i] = flip(value)
                return True
    return False


def changed_copy(folder):
    """Copies the vectors, with one changed bit in one case of each family that
    allows it. Returns the changed cases."""
    changed = set()
    for file in sorted(VECTORS.glob("*.json")):
        cases = json.loads(file.read_text())
        for case in cases:
            if change(case, file.stem):
                changed.add((file.stem, case["name"]))
                break
        (folder / file.name).write_text(json.dumps(cases))
    return changed


def unknown_call(client, folder, target):
    """Gives a client a table of errors with a call that it does not know. Fails if the client makes
    another call instead: with these arguments, a rotation would get the expected error."""
    table, env_file = Path(folder) / "unknown.json", Path(folder) / "unknown.env"
    table.write_text(json.dumps([{
        "name": "Unknown", "server": "plain", "call": "rotates",
        "arguments": {"shape": [1, 4, 2, 7]}, "expect": {"code": "INVALID_ARGUMENT"}}]))
    env_file.write_text(f"PLAIN={target}\n")
    told = judge(client.run("errors", table, env_file).stdout, {"errors": ["Unknown"]})
    if not told["errors"]["Unknown"]:
        raise Failure(f"{client.language}: a call that the table of errors does not have passed")


def changed_bit(clients):
    """Shows that every client reports exactly the changed bits, and a call that it
    does not know."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "vectors"
        folder.mkdir()
        changed = changed_copy(folder)
        families = {family for family, _ in changed}
        for needed in ("build_positions", "build_table_rope", "build_bias", "apply_rope_errors"):
            if needed not in families:
                raise Failure(f"no vector of {needed} could be changed")
        with posencd(temporary, "changed") as target:
            for client in clients:
                found = set(failures(replay(client, target, folder)[0]))
                if found != changed:
                    raise Failure(
                        f"{client.language}: of vectors with one changed bit "
                        f"{sorted(changed - found)} passed, and {sorted(found - changed)} "
                        "failed unchanged")
                unknown_call(client, temporary, target)
                print(f"{client.language}: notices each of {len(changed)} changed bits")
