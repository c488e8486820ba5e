"""Tests the clients of all languages together. ./run calls this program after the
release build:

    main.py conformance [LANGUAGE...]   vectors and errors, a table
    main.py changed-bit [LANGUAGE...]   a changed bit in a vector is noticed
    main.py three-lines [LANGUAGE...]   the README's lines, run
    main.py collect [LANGUAGE...]       writes those lines of the clients into the README
    main.py chain [LANGUAGE...]         keys that pass through all languages
    main.py all [LANGUAGE...]           all of these, and each client's own tests
    main.py bench [LANGUAGE...]         the figures (--rounds N, --cases unary64,unary1)
    main.py package [LANGUAGE...]       what is published, into build/package
    main.py test [LANGUAGE...]          each client's own tests
    main.py lint [LANGUAGE...]          each client's own linters

Languages are c++ python go java node rust; none named: all. A language that cannot be built here is
named and skipped, and then the exit code is 1 unless --allow-skipped.
"""

import argparse
import sys
import time

from bench import CASES, ROUNDS, bench
from chain import chain
from conformance import changed_bit, conformance
from languages import Failure, choose, lint, package, prepare, test
from three_lines import collect, three_lines

COMMANDS = {"conformance": conformance, "changed-bit": changed_bit,
            "three-lines": three_lines, "collect": collect, "chain": chain, "bench": bench,
            "package": package, "test": test, "lint": lint}


def everything(clients):
    for command in ("test", "conformance", "changed-bit", "chain", "three-lines"):
        start = time.monotonic()
        COMMANDS[command](clients)
        print(f"{command} of clients: {time.monotonic() - start:.0f} s", flush=True)


COMMANDS["all"] = everything


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("languages", nargs="*")
    parser.add_argument("--allow-skipped", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of bench (%(default)s)")
    parser.add_argument("--cases", default=",".join(CASES), help="of bench (%(default)s)")
    options = parser.parse_intermixed_args()
    try:
        if options.command == "collect":
            collect(choose(options.languages))
            return 0
        clients, skipped = prepare(choose(options.languages))
        if not clients:
            raise Failure(f"nothing ran: {skipped}")
        if options.command == "bench":
            bench(clients, options.rounds, options.cases.split(","))
        else:
            COMMANDS[options.command](clients)
    except Failure as failure:
        print(f"{options.command}: {failure}", file=sys.stderr)
        return 1
    for language, why in skipped.items():
        print(f"{options.command}: skipped {language}: {why}", file=sys.stderr)
    return 1 if skipped and not options.allow_skipped else 0


if __name__ == "__main__":
    sys.exit(main())
