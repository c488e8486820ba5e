#!/usr/bin/env python3
"""The explorer's page in Chromium.

usage: page_test.py BIN_DIR [unittest's arguments]

Compares its numbers with those of the posenc command.
"""
import json
import math
import os
import re
import struct
import subprocess
import tempfile
import unittest

import page
from page import CASES, OpenPage, Server, posenc, shell, start_browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

# The page's colour map in nine steps: matplotlib's cividis.
CIVIDIS = [0x00224E, 0x123570, 0x3B496C, 0x575D6D, 0x707173, 0x8A8678, 0xA59C74, 0xC3B369, 0xE1CC55, 0xFEE838]


class PageTest(OpenPage):
    def test_the_first_view_answers_without_a_click(self):
        self.assertEqual(self.text("#verdict-title"), "gpt-oss-20b")
        verdict = self.text("#verdict-text")
        self.assertRegex(verdict, r"^transformers and vLLM agree; llama\.cpp and mlx-lm differ")
        told = posenc("resolve", "--preset", "gpt-oss-20b", "--compare-profile", "llama_cpp")["difference"]
        self.assertIn(f"90 % of a score is left up to distance {told['first_distance']}", verdict)
        self.assertEqual(told["first_distance"], "5443")
        self.assertEqual([group.get_attribute("data-series") for group in self.all("#kept g[data-series]")],
                         ["vLLM", "llama.cpp", "mlx-lm"])
        self.assertEqual(self.one("#kept [data-mark]").get_attribute("data-mark"), told["length"])
        # The figure is visible without scrolling.
        self.assertLess(self.browser.execute_script(
            "return document.querySelector('#kept svg').getBoundingClientRect().bottom"), 900)

    def test_nothing_is_asked_of_anybody_else(self):
        self.browser.get_log("performance")  # drops entries about earlier servers
        self.open()
        asked = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        own = [url for url in asked if url.startswith(f"http://{self.server.address}/")]
        self.assertGreater(len(own), 5)
        self.assertEqual([url for url in asked if url not in own and url != "about:blank"], [])

    def test_the_hash_is_that_of_the_command(self):
        self.assertEqual(self.text("#hash"), posenc("resolve", "--preset", "gpt-oss-20b")["content_hash"])
        self.change(lambda: Select(self.one("#preset")).select_by_value("llama-3.1-8b"))
        self.assertEqual(self.text("#hash"), posenc("resolve", "--preset", "llama-3.1-8b")["content_hash"])

    def test_copied_commands_print_what_is_shown(self):
        resolved = shell(self.command("#spec"), self.folder.name)[0]
        self.assertEqual(resolved["content_hash"], self.text("#hash"))
        analysed = shell(self.command("#decay"), self.folder.name)[0]
        self.browser.execute_script("document.querySelector('#decay details').open = true")
        self.wait("no table", lambda: self.all("#decay tbody tr"))
        step = int(re.search(r"--distance-step (\d+)", self.command("#decay"))[1])
        rows = [[cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
                for row in self.all("#decay tbody tr")]
        compared = 0
        for distance, similarity, decay in rows:
            if int(distance) % step or not distance:
                continue
            i = int(distance) // step
            self.assertAlmostEqual(float(similarity), analysed["similarity"][i], delta=1e-5)
            self.assertAlmostEqual(float(decay), analysed["decay"][i] / analysed["decay"][0], delta=1e-5)
            compared += 1
        self.assertGreater(compared, 10)
        differences = [each["difference"] for each in shell(self.command("#kept", 0), self.folder.name)]
        self.assertEqual([each["first_distance"] for each in differences], ["-1", "5443", "5443"])
        kept = shell(self.command("#kept", 1), self.folder.name)
        self.browser.execute_script("document.querySelector('#kept details').open = true")
        self.wait("no table", lambda: self.all("#kept tbody tr"))
        step = int(re.search(r"--distance-step (\d+)", self.command("#kept", 1))[1])
        last = [cell.text for cell in self.all("#kept tbody tr")[-1].find_elements(By.CSS_SELECTOR, "th, td")]
        for shown, analysed in zip(last[1:], kept, strict=True):
            self.assertAlmostEqual(float(shown), analysed["kept"][int(last[0]) // step], delta=1e-5)

    def test_a_pixel_is_the_colour_of_its_value(self):
        table = shell(self.command("#table"), self.folder.name)[0]
        pairs = table["tensors"]["cos"]["shape"][1]
        width = 2 * pairs
        pixels = self.browser.execute_script(
            "const canvas = document.getElementById('heat');"
            "return Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)")
        self.assertEqual(len(pixels), 4 * width * 256)
        for row, column in ((0, 0), (3, 1), (100, 5), (255, pairs + 2), (17, 2 * pairs - 1)):
            name, pair = ("cos", column) if column < pairs else ("sin", column - pairs)
            value = table["tensors"][name]["values"][row * pairs + pair] / table["amplitude"]
            at = (value + 1) / 2 * 9
            low = min(int(at), 8)
            ends = [[CIVIDIS[stop] >> shift & 255 for stop in (low, low + 1)] for shift in (16, 8, 0)]
            wanted = [round(first * (low + 1 - at) + second * (at - low)) for first, second in ends]
            pixel = pixels[4 * (row * width + column):][:3]
            for got, expected in zip(pixel, wanted, strict=True):
                self.assertLessEqual(abs(got - expected), 1, (row, column, value, pixel))

    def test_a_pasted_conflict_is_explained(self):
        path = os.path.join(CASES, "config.type-conflict", "bad", "config.json")
        with open(path, encoding="utf-8") as file:
            self.change(lambda: self.paste(file.read()))
        printed = shell(self.command("#doctor"), self.folder.name)[0]
        told = [each for each in printed["findings"] if each["id"] == "config.type-conflict"][0]
        finding = self.text("#doctor [data-id='config.type-conflict']")
        self.assertIn(told["message"], finding)
        self.assertIn(told["fix"], finding)
        reader = [each for each in told["readers"] if each["name"] == "mlx-lm"][0]
        self.assertIn(f"mlx-lm: 90 % of a score is left up to distance {reader['first_distance']},", finding)
        # The verdict covers the same readers.
        self.assertRegex(self.text("#verdict-text"), rf"mlx-lm.* to distance {reader['first_distance']}\b")
        self.assertEqual([each["id"] for each in printed["findings"]],
                         [item.get_attribute("data-id") for item in self.all("#doctor [data-id]")])
        resolved = shell(self.command("#spec"), self.folder.name)[0]
        self.assertEqual(resolved["content_hash"], self.text("#hash"))
        self.expect_refusals()  # llama.cpp refuses such a file

    def test_broken_json_is_one_line(self):
        for text in ("{", "[]", "nonsense", '{"model_type": "llama", "rope_theta": "x"}', "[" * 10000):
            self.paste(text)
            self.wait("no line for " + text[:20], lambda: self.one("#fault").is_displayed())
            self.assertNotIn("\n", self.text("#fault"))
            self.assertRegex(self.text("#fault"), r"^config\.json\b")
            self.assertNotIn("more:", self.text("#fault"))
            self.assertEqual(self.text("#verdict-text"), "transformers cannot read this.")
            self.one("#clear").click()
            self.wait("the line stays", lambda: not self.one("#fault").is_displayed())
        self.expect_refusals()

    def test_a_preset_has_findings(self):
        self.wait("no finding", lambda: self.all("#doctor [data-id='readers.frequencies']"))
        printed = shell(self.command("#doctor"), self.folder.name)[0]
        self.assertEqual([each["id"] for each in printed["findings"]],
                         [item.get_attribute("data-id") for item in self.all("#doctor [data-id]")])

    def test_a_gguf_alone_has_curves(self):
        path = os.path.join(CASES, "gguf.scaling-missing", "good", "model.gguf")
        self.change(lambda: self.one("#file").send_keys(path))
        told = posenc("resolve", "--config", path)
        self.assertEqual(self.text("#hash"), told["content_hash"])
        self.assertIn("llama.cpp computes", self.text("#verdict-text"))
        self.assertTrue(self.all("#decay svg"))
        resolved = shell(self.command("#spec"), os.path.dirname(path))[0]
        self.assertEqual(resolved["content_hash"], told["content_hash"])

    def test_a_text_is_no_command(self):
        """A foreign text must not end the here document of a copied command."""
        text = '{"model_type": "llama",\nEND\ntouch stolen\n"hidden_size": 512}'
        before = self.shown()
        self.paste(text)
        self.wait("no line", lambda: self.one("#fault").is_displayed())
        self.wait("no command", lambda: self.all("#doctor .copy code") and "stolen" in self.command("#doctor"))
        self.assertEqual(self.shown(), before)
        with tempfile.TemporaryDirectory() as folder:
            shell(self.command("#doctor"), folder)
            self.assertEqual(os.listdir(folder), [])
        self.expect_refusals()

    def test_a_changed_address_is_no_command(self):
        for fragment in ("#preset=x%3Btouch%20stolen", "#preset=gpt-oss-20b&part=text%3Btouch%20stolen",
                         "#preset=gpt-oss-20b&layer=%24(touch%20stolen)", "#preset=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
                         "#length=-1&readers=nobody%3Bls&preset=gpt-oss-20b"):
            self.browser.get("about:blank")
            self.browser.get(f"http://{self.server.address}/{fragment}")
            self.wait("no answer to " + fragment,
                      lambda: self.one("#fault").is_displayed() or self.shown() > 0)
            self.assertEqual(self.all("main script"), [])
            with tempfile.TemporaryDirectory() as folder:
                for code in self.all(".copy code"):
                    subprocess.run(["/bin/bash", "-c", self.browser.execute_script(
                        "return arguments[0].textContent", code)], cwd=folder, capture_output=True, check=False,
                        env={**os.environ, "PATH": page.BIN + os.pathsep + os.environ["PATH"]})
                self.assertEqual(os.listdir(folder), [], fragment)
        self.browser.get_log("browser")  # the refusals

    def test_the_address_restores_the_view(self):
        self.change(lambda: Select(self.one("#preset")).select_by_value("llama-3.1-8b"))
        self.change(lambda: self.one("#reader-mlx").click())
        length = self.one("#length")
        length.clear()
        self.change(lambda: length.send_keys("4096", Keys.ENTER))
        address = self.browser.current_url
        self.assertIn("preset=llama-3.1-8b", address)
        seen = [self.text(selector) for selector in ("#verdict-text", "#hash", "#kept figcaption")]
        self.open(address[address.index("#"):])
        self.assertEqual([self.text(selector) for selector in ("#verdict-text", "#hash", "#kept figcaption")], seen)
        self.assertFalse(self.one("#reader-mlx").is_selected())
        self.assertEqual(self.one("#length").get_attribute("value"), "4096")

    def test_pasted_text_is_in_the_address_only_on_demand(self):
        text = '{"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "rope_theta": 12345}'
        self.change(lambda: self.paste(text))
        self.assertNotIn("12345", self.browser.current_url)
        self.one("#share").click()
        self.wait("the address has no text", lambda: "12345" in self.browser.current_url)
        address, code = self.browser.current_url, self.text("#hash")
        self.open(address[address.index("#"):])
        self.assertEqual(self.text("#hash"), code)

    def test_patches_have_a_picture(self):
        self.assertFalse(self.one("#axes").is_displayed())
        self.change(lambda: Select(self.one("#preset")).select_by_value("qwen2-vl-7b"))
        self.assertTrue(self.one("#axes").is_displayed())
        self.assertEqual(self.text("#verdict-text"),
                         "transformers, vLLM and llama.cpp agree; mlx-lm agrees about text, not about images.")
        resolved = shell(self.command("#axes"), self.folder.name)[0]
        across = [w for w, axis in zip(resolved["inv_freq"], resolved["axis_of_pair"], strict=True) if axis == 2]
        still = len(resolved["inv_freq"]) - len(across)
        self.browser.execute_script("document.querySelector('#axes details').open = true")
        self.wait("no table", lambda: self.all("#axes tbody tr"))
        for row in self.all("#axes tbody tr")[:6]:
            apart, _, shown = [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
            value = (still + sum(math.cos(int(apart) * w) for w in across)) / len(resolved["inv_freq"])
            self.assertAlmostEqual(float(shown), value, delta=1e-5)

    def test_layers_that_differ_are_one_kind_at_a_time(self):
        self.change(lambda: Select(self.one("#preset")).select_by_value("gemma-3-4b"))
        self.assertEqual(self.one("#layer").get_attribute("value"), "full_attention")
        full = self.text("#hash")
        layer = self.one("#layer")

        def choose(text):
            layer.send_keys(Keys.CONTROL, "a")
            layer.send_keys(text, Keys.ENTER)

        self.change(lambda: choose("sliding_attention"))
        self.assertNotEqual(self.text("#hash"), full)
        sliding = self.text("#hash")
        # The layer is chosen by its index; the copied command does the same.
        self.change(lambda: choose("0"))
        self.assertEqual(self.text("#hash"), sliding)
        self.assertEqual(shell(self.command("#spec"), self.folder.name)[0]["content_hash"], sliding)
        # Other models have other types of layers, or some without positions.
        for preset, first in (("deepseek-v4", "main"), ("smollm3-3b", "0"), ("command-r7b", "sliding_attention")):
            self.change(lambda preset=preset: Select(self.one("#preset")).select_by_value(preset))
            self.assertEqual(self.one("#layer").get_attribute("value"), first)
            self.assertFalse(self.one("#fault").is_displayed())
        self.expect_refusals()  # a request that names no layers is refused

    def test_files_are_examined_together(self):
        case = os.path.join(CASES, "gguf.scaling-missing", "bad")
        paths = [os.path.join(case, name) for name in sorted(os.listdir(case))]
        self.change(lambda: self.one("#file").send_keys("\n".join(paths)))
        wanted = [each["id"] for each in posenc("doctor", case)["findings"]]
        self.assertIn("gguf.scaling-missing", wanted)
        found = [item.get_attribute("data-id") for item in self.all("#doctor [data-id]")]
        self.assertIn("gguf.scaling-missing", found)

    def test_a_vocabulary_is_not_sent(self):
        """A GGUF header of 8 MB, mostly strings, is examined like the small one."""
        case = os.path.join(CASES, "gguf.scaling-missing", "bad")
        with open(os.path.join(case, "model.gguf"), "rb") as file:
            data = file.read()
        key, words = b"tokenizer.ggml.tokens", 400000
        vocabulary = (struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, words) +
                      b"".join(struct.pack("<Q12s", 12, b"%012d" % i) for i in range(words)))
        tensors, keys = struct.unpack_from("<QQ", data, 8)
        path = os.path.join(self.folder.name, "large.gguf")
        with open(path, "wb") as file:
            file.write(data[:8] + struct.pack("<QQ", tensors, keys + 1) + vocabulary + data[24:])
        self.change(lambda: self.one("#file").send_keys(os.path.join(case, "config.json") + "\n" + path))
        self.assertIn("gguf.scaling-missing", [item.get_attribute("data-id") for item in self.all("#doctor [data-id]")])

    def test_of_a_large_tokenizers_configuration_the_length_is_read(self):
        """Gemma 3's file has 1.2 MB; a request may have 1 MiB."""
        path = os.path.join(self.folder.name, "tokenizer_config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"model_max_length": 8192, "added_tokens": "x" * (2 << 20)}, file)
        config = os.path.join(CASES, "config.tokenizer-length", "good", "config.json")
        self.change(lambda: self.one("#file").send_keys(config + "\n" + path))
        self.assertIn("config.tokenizer-length",
                      [item.get_attribute("data-id") for item in self.all("#doctor [data-id]")])
        self.assertIn("model_max_length is 8192", self.text("#doctor"))

    def test_an_unknown_preset_is_no_fault_of_transformers(self):
        self.browser.get("about:blank")
        self.browser.get(f"http://{self.server.address}/#preset=nobody")
        self.wait("nothing is said", lambda: "is not known" in self.text("#fault"))
        self.assertEqual(self.text("#verdict-text"), "There is no answer to this.")
        self.expect_refusals()

    def test_a_damaged_file_is_told(self):
        path = os.path.join(self.folder.name, "damaged.gguf")
        with open(path, "wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 62))
        self.one("#file").send_keys(path)
        self.wait("the page does not say what is wrong", lambda: "damaged.gguf" in self.text("#doctor")
                  and "4611686018427387904 keys" in self.text("#doctor"))
        self.expect_refusals()

    def test_a_server_that_went_away_is_a_sentence(self):
        server = Server()
        try:
            self.browser.get(f"http://{server.address}/")
            self.wait_shown()
        finally:
            server.end()
        Select(self.one("#preset")).select_by_value("llama-3.1-8b")
        self.wait("nothing is said", lambda: "The explorer does not answer" in self.text("#fault"))
        self.assertTrue(self.one("#fault").is_displayed())
        self.browser.get_log("browser")  # connections that were refused


class Scripts(unittest.TestCase):
    def test_the_policy_lets_no_other_script_in(self):
        server, browser = Server(), start_browser()
        try:
            browser.get(f"http://{server.address}/")
            ran = browser.execute_script(
                "const element = document.createElement('script'); element.textContent = 'window.ran = true';"
                "document.body.append(element); return window.ran === true")
            self.assertFalse(ran)
            blocked = browser.execute_async_script(
                "fetch('http://127.0.0.1:1/').then(() => arguments[0](''), error => arguments[0](String(error)))")
            self.assertIn("TypeError", blocked)
            told = " ".join(entry["message"] for entry in browser.get_log("browser"))
            self.assertIn("script-src", told)
            self.assertIn("connect-src", told)
        finally:
            browser.quit()
            server.end()


if __name__ == "__main__":
    page.run()
