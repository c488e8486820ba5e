#!/usr/bin/env python3
"""Keeps senders that stall at every replica, until it gets SIGTERM.

usage: stall.py DNS_SERVER NAME PORT SENDERS

Each sender has its own connection, on which it sends the headers of an ApplyRope and eight
bytes of a message of 1 MiB. After that it only answers pings. NAME is looked up every second,
so that a new replica also gets SENDERS senders. A sender that has ended begins again if NAME
still has the address of its replica. If NAME no longer has the address of a replica, the
senders there stay until the replica closes them.

Prints at the end: BEGUN MOST_AT_A_TIME REPLICAS_SEEN
"""
import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
import h2  # noqa: E402
from rows.stalled import stall  # noqa: E402


def addresses(server, name):
    """Returns the A records of a name (RFC 1035); none without an answer in a second."""
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split(".")) + b"\0"
    question = struct.pack(">6H", os.getpid() & 0xffff, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect((server, 53))
        try:
            sock.send(question)
            answer = sock.recv(4096)
        except OSError:
            return []
    found, at = [], len(question)
    for _ in range(struct.unpack(">H", answer[6:8])[0]):
        at += 2 if answer[at] >= 192 else answer.index(b"\0", at) - at + 1
        kind, _, _, size = struct.unpack(">HHIH", answer[at:at + 10])
        at += 10 + size
        if kind == 1:
            found.append(socket.inet_ntoa(answer[at - 4:at]))
    return found


def over(connection):
    """Returns whether the connection or its call has ended."""
    while got := connection.read(0.001):
        if got.kind == h2.RST or got.kind == h2.HEADERS and got.flags & h2.END_STREAM:
            return True
    return connection.closed


def main():
    server, name, port, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    senders, seen, begun, most = {}, set(), 0, 0
    poll = select.poll()
    while not ending:
        for address in addresses(server, name):
            seen.add(address)
            for _ in range(wanted - sum(at == address for at, _ in senders.values())):
                with contextlib.suppress(OSError):  # the replica is gone, or does not listen yet
                    connection = stall(f"{address}:{port}", False)
                    senders[connection.sock.fileno()] = address, connection
                    poll.register(connection.sock, select.POLLIN)
                    begun += 1
        most = max(most, len(senders))
        end = time.monotonic() + 1
        while not ending and (left := end - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                if over(senders[descriptor][1]):
                    poll.unregister(descriptor)
                    senders.pop(descriptor)[1].close()
    print(begun, most, len(seen))


main()
