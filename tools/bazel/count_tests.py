#!/usr/bin/env python3
"""Counts test targets in Bazel's build events and prints `N passed, N failed` as the last line.

A test that could not be built has failed. So has the run itself when Bazel ends with an error
that no target explains, and when there was no test at all. Exits 0 only when nothing failed.
"""

import json
import sys

PASSED = ("PASSED", "FLAKY")


def read_events(path):
    """The events of a --build_event_json_file; a line cut short by a crash is left out."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def target_results(events):
    """Label -> status, of tests that ran and of targets that were not built."""
    results = {}
    for event in events:
        name = event.get("id", {})
        if "testSummary" in name:
            status = event.get("testSummary", {}).get("overallStatus", "NO_STATUS")
            results[name["testSummary"]["label"]] = status
        elif "targetCompleted" in name:
            if not event.get("completed", {}).get("success", False):
                results.setdefault(name["targetCompleted"]["label"], "FAILED_TO_BUILD")
        elif "targetConfigured" in name and "aborted" in event:
            results.setdefault(name["targetConfigured"]["label"], "FAILED_TO_BUILD")
    return results


def count(results, exit_code):
    """(passed, failures): how many passed, and a line for each failure."""
    passed = sum(1 for status in results.values() if status in PASSED)
    failures = [
        f"{label}: {status}" for label, status in sorted(results.items()) if status not in PASSED
    ]
    if not failures and exit_code != 0:
        failures.append(f"bazel ended with exit code {exit_code}")
    if not failures and passed == 0:
        failures.append("there was no test to run")
    return passed, failures


def main(argv):
    passed, failures = count(target_results(read_events(argv[1])), int(argv[2]))
    for failure in failures:
        print(failure)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
