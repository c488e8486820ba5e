#!/usr/bin/env python3
"""posenc-load's page in Chromium.

usage: report_test.py BIN_DIR [unittest's arguments]
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import page
from page import start_browser
from selenium.webdriver.common.by import By


def load(*arguments):
    subprocess.run([os.path.join(page.BIN, "posenc-load"), *arguments], check=True, capture_output=True)


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        ready, socket = cls.path / "ready", f"unix:{cls.path / 'posencd.sock'}"
        server = subprocess.Popen([os.path.join(page.BIN, "posencd"), "--listen", socket, "--ready-file", ready],
                                  stdout=subprocess.DEVNULL)
        try:
            load("--server", socket, "--rates", "50,100", "--duration", "2s",
                 "--warm-up", "0s", "--size", "4KiB", "--json", cls.path / "a.json", "--html", cls.path / "a.html")
        finally:
            server.terminate()
            server.wait(page.PATIENCE)
        cls.report = json.loads((cls.path / "a.json").read_text())
        cls.browser = start_browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    def tearDown(self):
        self.assertEqual(self.browser.get_log("browser"), [], "the console is not empty")

    def texts(self, selector):
        return [each.text for each in self.browser.find_elements(By.CSS_SELECTOR, selector)]

    def test_a_run_has_its_charts_and_its_figures(self):
        self.browser.get((self.path / "a.html").as_uri())
        self.assertEqual(self.texts("figcaption"),
                         ["Latency by percentile", "Latency by rate", "Throughput by rate",
                          "Throughput over time, calls/s", "Latency over time"])
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "figure > svg")), 5)
        for line in self.browser.find_elements(By.CSS_SELECTOR, "figure > svg polyline"):
            self.assertNotIn("NaN", line.get_attribute("points"))
        rows = self.browser.find_elements(By.CSS_SELECTOR, "table tr")[1:]
        self.assertEqual(len(rows), 2)
        for row, step in zip(rows, self.report["steps"]):
            cells = [each.text for each in row.find_elements(By.TAG_NAME, "td")]
            self.assertEqual(cells[0], step["label"])
            self.assertEqual(cells[1], f"{step['calls_per_second']:.0f}")
            self.assertEqual(cells[11], str(step["ok"]))


if __name__ == "__main__":
    page.run()
