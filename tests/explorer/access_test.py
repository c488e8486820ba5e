#!/usr/bin/env python3
"""The explorer's page with only a keyboard, on a narrow screen, and its
contrast.

usage: access_test.py BIN_DIR [unittest's arguments]
"""
import os
import re

import page
from page import CASES, OpenPage
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

SCHEMES = ("light", "dark")
WIDTHS = (360, 1280)

# Finds elements with less contrast than WCAG 2.2 requires: 4.5 : 1 for text
# (1.4.3), 3 : 1 for large text, for edges of controls and for the lines of a
# figure (1.4.11). Grid lines are exempt, because the axes have the same information.
TOO_FAINT = r"""
const numbers = text => { const all = text.match(/[\d.]+/g).map(Number); return all.length < 4 ? [...all, 1] : all; };
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
function ground(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(numbers(getComputedStyle(at).backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  return layers.reduceRight((under, top) => over(top, under), [255, 255, 255]);
}
function luminance(colour) {
  const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ratio(colour, element, under) {
  const top = numbers(colour);
  for (let at = element; at; at = at.parentElement) top[3] *= Number(getComputedStyle(at).opacity);
  const [a, b] = [over(top, under), under].map(luminance).sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}
const found = [], seen = { text: 0, edges: 0, lines: 0 };
function judge(kind, element, colour, under, least) {
  seen[kind] += 1;
  const is = ratio(colour, element, under);
  if (is < least) found.push(`${kind} ${is.toFixed(2)} < ${least}: ${element.outerHTML.slice(0, 100)}`);
}
function leastOf(style) {
  const size = parseFloat(style.fontSize);
  return size >= 24 || size >= 18.66 && Number(style.fontWeight) >= 700 ? 3 : 4.5;
}
const visible = element => element.checkVisibility() && element.getClientRects().length > 0;
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !visible(element) || element.closest('script, style, noscript, option')) continue;
  const style = getComputedStyle(element);
  judge('text', element, element.closest('svg') ? style.fill : style.color, ground(element), leastOf(style));
}
for (const element of document.querySelectorAll('body *')) {
  if (!visible(element)) continue;
  for (const part of ['::before', '::after', '::placeholder', '::file-selector-button']) {
    if (part.includes('-') !== (element.type === 'file') || part === '::placeholder' && !element.placeholder) continue;
    const style = getComputedStyle(element, part);
    if (part !== '::placeholder' && !part.includes('-') && ['none', 'normal'].includes(style.content)) continue;
    const own = numbers(style.backgroundColor);
    judge('text', element, style.color, over(own, ground(element)), leastOf(style));
  }
  if (element.matches('select, textarea, button, input:not([type=checkbox], [type=range])')) {
    const style = getComputedStyle(element);
    judge('text', element, style.color, ground(element), leastOf(style));
    judge('edges', element, style.borderTopColor, ground(element.parentElement), 3);
  }
  if (element.matches('svg *:not(.grid, text, tspan, title, desc, g, defs, defs *)')) {
    const style = getComputedStyle(element), under = ground(element.closest('svg'));
    // A line has no area that could be filled.
    for (const colour of element.matches('line') ? [style.stroke] : [style.stroke, style.fill]) {
      if (colour.startsWith('rgb') && numbers(colour)[3] > 0) judge('lines', element, colour, under, 3);
    }
  }
}
return [found, seen];
"""


class AccessTest(OpenPage):
    def tearDown(self):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        super().tearDown()

    def prefer(self, scheme):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                     {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def press(self, *keys):
        ActionChains(self.browser).send_keys(*keys).perform()

    def focused(self, expression):
        return self.browser.execute_script("return document.activeElement." + expression)

    def tab_to(self, selector):
        """Presses Tab repeatedly from the page's beginning."""
        self.browser.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
        for _ in range(200):
            self.press(Keys.TAB)
            if self.focused(f"matches({selector!r})"):
                return
        raise AssertionError("Tab never reaches " + selector)

    def expect_contrast(self, where):
        faint, seen = self.browser.execute_script(TOO_FAINT)
        self.assertEqual(faint, [], where)
        self.assertGreater(min(seen["text"], seen["edges"]), 0, (where, seen))
        return seen

    def test_all_that_is_shown_has_contrast(self):
        case = os.path.join(CASES, "config.type-conflict", "bad", "config.json")
        for scheme in SCHEMES:
            self.prefer(scheme)
            for width in WIDTHS:
                self.size(width, 800)
                self.open()
                self.browser.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")
                self.wait("no tables", lambda: self.all("#kept tbody tr") and self.all("#decay tbody tr"))
                seen = self.expect_contrast((scheme, width, "first view"))
                self.assertGreater(seen["text"], 200)
                self.assertGreater(seen["lines"], 20)
                self.change(lambda: self.one("#file").send_keys(case))
                self.wait("no finding", lambda: self.all("#doctor .severity.error"))
                self.expect_contrast((scheme, width, "an error"))
                self.paste("{")
                self.wait("no line", lambda: self.one("#fault").is_displayed())
                self.expect_contrast((scheme, width, "broken JSON"))
        self.expect_refusals()

    def test_the_keyboard_reaches_everything(self):
        reachable = ("return Array.from(document.querySelectorAll('a[href], button, input, select, textarea, summary'))"
                     ".filter(each => each.checkVisibility()).map((each, i) => { each.dataset.stop = i; return i })")
        for width in WIDTHS:
            self.size(width, 800)
            self.open()
            stops = self.browser.execute_script(reachable)
            order = []
            while not self.press(Keys.TAB) and not self.focused("matches('body')"):
                stop = self.focused("dataset.stop")
                if stop is None:
                    # Chromium also stops at elements that scroll, so that keys
                    # can scroll them.
                    self.assertTrue(self.focused("scrollHeight > document.activeElement.clientHeight"))
                else:
                    order.append(int(stop))
                self.assertTrue(self.browser.execute_script(
                    "return getComputedStyle(document.activeElement).outlineStyle !== 'none'"), "focus is not visible")
                self.assertTrue(self.browser.execute_script(
                    "const box = document.activeElement.getBoundingClientRect();"
                    "return box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth"),
                    "what has the focus is out of sight")
            self.assertEqual(order, stops, width)
            self.press(Keys.SHIFT, Keys.TAB)  # and back
            self.press(Keys.NULL)

    def test_keys_alone_do_what_a_mouse_does(self):
        for width in WIDTHS:
            self.size(width, 800)
            self.open()
            self.press(Keys.TAB, Keys.ENTER)  # the link over the header
            self.assertEqual(self.focused("id"), "source")
            self.press(Keys.TAB)
            self.assertEqual(self.focused("id"), "preset")
            self.change(lambda: self.press("llama-3.1-8b"))
            self.assertEqual(self.focused("value"), "llama-3.1-8b")
            self.assertEqual(self.text("#verdict-title"), "llama-3.1-8b")
            self.change(lambda: self.press(Keys.ARROW_DOWN))
            self.assertNotEqual(self.text("#verdict-title"), "llama-3.1-8b")
            self.tab_to("#reader-mlx")
            self.change(lambda: self.press(Keys.SPACE))
            self.assertFalse(self.one("#reader-mlx").is_selected())
            self.tab_to("#length")
            self.change(lambda: self.press("4096", Keys.ENTER))
            self.assertIn("length=4096", self.browser.current_url)
            self.tab_to("#kept summary")
            self.press(Keys.ENTER)
            self.wait("no table", lambda: self.all("#kept tbody tr"))
            self.press(Keys.SPACE)
            self.wait("the table stays", lambda: not self.focused("parentElement.open"))
            self.tab_to("#kept input[type=range]")
            told = "closest('.cursor-row').querySelector('output').textContent"
            for key in (Keys.ARROW_LEFT, Keys.HOME, Keys.ARROW_RIGHT, Keys.END):
                before = self.focused(told)
                self.press(key)
                self.assertNotEqual(self.focused(told), before, key)
            self.tab_to("#spec .copy button")
            said = self.focused("textContent")
            self.press(Keys.ENTER)
            self.wait("nothing is copied", lambda said=said: self.focused("textContent") != said)
            self.tab_to("#clear")
            self.change(lambda: self.press(Keys.ENTER))
            self.assertEqual(self.text("#verdict-title"), "gpt-oss-20b")
        self.expect_refusals()  # a model whose layers differ is refused until a layer is chosen

    def test_arrow_keys_move_the_cursors(self):
        for slider in self.all("input[type=range]"):
            output = "return arguments[0].closest('.cursor-row').querySelector('output').textContent"
            before = self.browser.execute_script(output, slider)
            slider.send_keys(Keys.ARROW_RIGHT)
            self.assertNotEqual(self.browser.execute_script(output, slider), before)

    def test_everything_has_a_name(self):
        for element in self.all("button, input, select, textarea, summary, svg[role=img], canvas, section"):
            if element.is_displayed():
                self.assertTrue(element.accessible_name.strip(), element.get_attribute("outerHTML")[:200])
        self.assertEqual(self.one("#verdict-text").get_attribute("aria-live"), "polite")
        for figure in self.all("figure"):
            if figure.is_displayed():
                self.assertTrue(figure.find_element(By.TAG_NAME, "figcaption").text)
                self.assertTrue(figure.find_elements(By.TAG_NAME, "summary"))

    def test_nothing_is_wider_than_the_screen(self):
        # 640 wide at twice the pixels is 1280 at 200 %.
        for width, scale in ((360, 1), (640, 2), (1280, 1)):
            self.size(width, 800, scale)
            self.open()
            wide = self.browser.execute_script(
                "return Array.from(document.querySelectorAll('body *')).filter(each => each.checkVisibility() &&"
                "!each.closest('.scroll, .skip') && each.getBoundingClientRect().right > innerWidth + 0.5)"
                ".map(each => each.outerHTML.slice(0, 80))")
            self.assertEqual(wide, [], width)
            self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), width)

    def test_colours_can_be_told_apart_from_the_ground(self):
        def luminance(colour):
            values = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            values = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
            return 0.2126 * values[0] + 0.7152 * values[1] + 0.0722 * values[2]

        for scheme in SCHEMES:
            self.prefer(scheme)
            names = ["ground", "panel", "ink", "soft", "bad", "focus", *(f"s{i}" for i in range(7))]
            colours = self.browser.execute_script(
                "const style = getComputedStyle(document.documentElement);"
                "return Object.fromEntries(arguments[0].map("
                "name => [name, style.getPropertyValue('--' + name).trim()]))", names)
            for name in names[2:]:
                for ground in ("ground", "panel"):
                    light, dark = sorted((luminance(colours[name]), luminance(colours[ground])), reverse=True)
                    # Text needs 4.5 : 1, a curve 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11).
                    least = 3 if re.fullmatch(r"s\d", name) else 4.5
                    self.assertGreaterEqual((light + 0.05) / (dark + 0.05), least, (scheme, name, ground))


if __name__ == "__main__":
    page.run()
