#!/usr/bin/env python3
"""Prints "CALLS FAILED LONGEST_PAUSE_MS ERRORS" of posenc-load's JSON report.

Latency counts from when a call was due, so the longest latency is the longest
pause.
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    step = json.load(file)["steps"][0]
latencies = [each["max"] for each in (step["latency_us"], step["failed_latency_us"]) if each]
failed = step["failed"] + step["unsent"] + step["wrong"]
errors = ",".join(f"{code}:{count}" for code, count in step["errors"].items()) or "-"
print(step["ok"] + failed, failed, round(max(latencies, default=0) / 1000), errors)
