#!/usr/bin/env -S python3 -B
"""Tests of the count that ends `tools/test`."""

import contextlib
import io
import json
import tempfile
import unittest

import count_tests


def summary(label, status):
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


def completed(label, success):
    return {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True} if success else {}}


def last_line(events, exit_code, tail=""):
    """(exit code, last line) of the program on these events."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events) + tail)
        file.flush()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            result = count_tests.main(["count_tests", file.name, str(exit_code)])
    return result, output.getvalue().splitlines()[-1]


class CountTest(unittest.TestCase):
    def test_all_pass(self):
        events = [completed("//a:x", True), summary("//a:t", "PASSED"), summary("//a:u", "FLAKY")]
        self.assertEqual(last_line(events, 0), (0, "2 passed, 0 failed"))

    def test_failures_of_every_kind(self):
        for status in ("FAILED", "TIMEOUT", "INCOMPLETE", "REMOTE_FAILURE", "NO_STATUS"):
            events = [summary("//a:t", "PASSED"), summary("//a:u", status)]
            self.assertEqual(last_line(events, 3), (1, "1 passed, 1 failed"))

    def test_a_target_that_was_not_built_counts_once(self):
        events = [
            completed("//a:t", False),
            summary("//a:t", "FAILED_TO_BUILD"),
            completed("//a:lib", False),
            summary("//a:u", "PASSED"),
        ]
        self.assertEqual(last_line(events, 1), (1, "1 passed, 2 failed"))

    def test_an_analysis_error_counts(self):
        events = [{"id": {"targetConfigured": {"label": "//a:t"}}, "aborted": {"reason": "ANALYSIS_FAILURE"}}]
        self.assertEqual(last_line(events, 1), (1, "0 passed, 1 failed"))

    def test_an_error_without_a_target_counts(self):
        self.assertEqual(last_line([summary("//a:t", "PASSED")], 1), (1, "1 passed, 1 failed"))
        self.assertEqual(last_line([], 2), (1, "0 passed, 1 failed"))

    def test_no_tests_is_a_failure(self):
        self.assertEqual(last_line([], 0), (1, "0 passed, 1 failed"))

    def test_a_cut_line_is_left_out(self):
        self.assertEqual(last_line([summary("//a:t", "PASSED")], 0, '{"id": {"te'), (0, "1 passed, 0 failed"))


if __name__ == "__main__":
    unittest.main()
