"""Pauses of the machine: a thread with a real-time priority sleeps for 5 ms at a time,
and records when it woke up late. The server did not cause these delays."""
import os
import threading
import time


class Pauses(threading.Thread):
    """`seen`: (seconds from the start, length) of each pause over `least` seconds.
    `core`: the core to watch, None: any."""

    def __init__(self, least, core=None):
        super().__init__(daemon=True)
        self.least, self.core = least, core
        self.ending, self.seen = threading.Event(), []
        self.start()

    def run(self):
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            pass  # without this priority, a busy machine looks like a paused machine
        began = last = time.monotonic()
        while not self.ending.is_set():
            time.sleep(0.005)
            now = time.monotonic()
            if now - last > self.least:
                self.seen.append((last - began, now - last))
            last = now

    def end(self):
        self.ending.set()
        self.join()
        return self.seen
