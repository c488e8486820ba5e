"""Shared by the tests of the explorer's page: a server, a browser, and an open page.

The browser can only reach the server's address. Ends only processes that it started.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = os.path.join(ROOT, "tests", "data", "doctor")
PATIENCE = 60  # seconds, for anything that should happen
BIN = ""


class Server:
    """A running `posenc explore`."""

    def __init__(self):
        self.process = subprocess.Popen(
            [os.path.join(BIN, "posenc"), "explore", "--port", "0", "--json"],
            stdout=subprocess.PIPE, text=True)
        told = ""
        while "}" not in told:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("posenc explore ended")
            told += line
        self.address = json.loads(told)["url"].removeprefix("http://").rstrip("/")

    def end(self):
        self.process.terminate()
        self.process.stdout.close()
        self.process.wait(PATIENCE)


def posenc(*arguments):
    """Returns the command's output as JSON."""
    done = subprocess.run([os.path.join(BIN, "posenc"), *arguments, "--json"],
                          capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def shell(command, folder):
    """Returns a copied command's output, a JSON object for each posenc in it."""
    path = BIN + os.pathsep + os.environ["PATH"]
    done = subprocess.run(["/bin/bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": path})
    decoder, rest, found = json.JSONDecoder(), done.stdout.strip(), []
    while rest:
        value, end = decoder.raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    if not found:
        raise AssertionError(command + "\n" + done.stderr)
    return found


def start_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


class OpenPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.browser = start_browser()
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.end()
        cls.folder.cleanup()

    def setUp(self):
        self.size(1280, 900)
        self.open()

    def tearDown(self):
        self.assertEqual(self.browser.get_log("browser"), [], "the console is not empty")

    # ---- helpers

    def size(self, width, height, scale=1):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False})

    def open(self, fragment=""):
        """Opens the page as for the first time."""
        self.browser.get("about:blank")
        self.browser.get(f"http://{self.server.address}/{fragment}")
        self.wait_shown()

    def wait(self, what, condition):
        return WebDriverWait(self.browser, PATIENCE, poll_frequency=0.05).until(lambda _: condition(), what)

    def shown(self):
        return int(self.browser.execute_script("return document.documentElement.dataset.shown || 0"))

    def wait_shown(self, after=0):
        self.wait("the page shows no answer", lambda: self.shown() > after)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)

    def command(self, panel, index=0):
        return self.browser.execute_script(
            "return document.querySelectorAll(arguments[0] + ' .copy code')[arguments[1]].textContent", panel, index)

    def paste(self, text):
        """Pastes the whole text as one change, like the clipboard."""
        self.browser.execute_script(
            "const area = document.getElementById('config'); area.value = arguments[0];"
            "area.dispatchEvent(new Event('input', {bubbles: true}))", text)

    def change(self, action):
        before = self.shown()
        action()
        self.wait_shown(before)

    def expect_refusals(self):
        """Expects only the browser's own messages about refused calls in the console."""
        told = [entry["message"] for entry in self.browser.get_log("browser")]
        self.assertEqual([message for message in told if "status of 400" not in message], [])


def run():
    """Runs the tests of the main program: usage: NAME_test.py BIN_DIR [unittest's arguments]"""
    global BIN
    BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__", verbosity=2)
