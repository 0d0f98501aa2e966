# SPDX-License-Identifier: Apache-2.0
"""report.html in Chromium, opened over file:// without a network: its numbers match metrics.jsonl, hostile text stays text,
keyboard and pointer work, and it refreshes without losing the reader's place.

    report_browser_test.py QKV [FOLDER]

Needs Debian's chromium, chromium-driver and python3-selenium (scripts/install_deps.sh --all); without them it prints
a message and exits with 77, which CTest reports as skipped. With a FOLDER it saves screenshots there.
"""
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
try:
    from selenium import webdriver
    from selenium.common import exceptions
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

QKV = sys.argv[1] if len(sys.argv) > 1 else "qkv"
PICTURES = sys.argv[2] if len(sys.argv) > 2 else None
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=\"window.hacked=2\"><b>&amp;"
TEXTS = ["蒔絵師は硯箱を修復した。", "Внимание — это взвешенная сумма.", HOSTILE, "🌱 растёт 👩🏽‍🚀 שלום"]


def write_run(folder, done, steps, *, resumed=True):
    """Writes the files of a run; returns the contents of metrics.jsonl."""
    os.makedirs(folder, exist_ok=True)
    chance, lines = random.Random(7), []
    for step in range(1, done + 1):
        loss = 2.2 + 6.8 * math.exp(-step / (0.03 * steps)) + math.exp(-step / (0.4 * steps)) + chance.gauss(0, 0.06)
        line = {"step": step, "loss": loss, "grad_norm": 0.6 + 2 * math.exp(-step / (0.02 * steps)),
                "learning_rate": 4e-3 * min(step / (0.05 * steps), 0.55 + 0.45 * math.cos(math.pi * step / steps)),
                "ms": 8 + chance.random(), "tokens_per_s": 60000 + chance.gauss(0, 900), "peak_fraction": 0.81}
        if step == done * 2 // 5:
            line.update(loss=None, grad_norm=None, skipped=True)
        if step == done * 3 // 5:
            line.update(loss=loss + 3, spike=9.2, grad_norm=14.0)
        lines.append(line)
        if step % (steps // 40) == 0:
            lines.append({"step": step, "val_loss": loss + 0.1, "bits_per_byte": loss / 2.5, "val_tokens": 9, "best": True})
        if step % (steps // 14) == 0:
            sample = len([x for x in lines if "sample" in x])
            lines.append({"step": step, "sample": "\n" + TEXTS[sample % len(TEXTS)], "repeats": sample % 4 == 3})
    with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    starts = [{"step": 0, "time": 1700000000}] + ([{"step": done // 3, "time": 1700001000}] if resumed else [])
    with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as file:
        json.dump({"qkv_format": 1, "steps": steps, "starts": starts,
                   "facts": [{"title": "Data", "rows": [["text", HOSTILE]]}]}, file)
    subprocess.run([QKV, "report", folder], check=True, stdout=subprocess.DEVNULL)
    return lines


def open_browser():
    options = Options()
    options.binary_location = CHROMIUM
    for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,900",
                     "--disable-dev-shm-usage", "--disable-background-networking",
                     "--host-resolver-rules=MAP * ~NOTFOUND"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(DRIVER), options=options)


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="qkv-page-")
        cls.directory = os.path.join(cls.folder, "run <img src=x onerror=window.hacked=4>")
        cls.lines = write_run(cls.directory, 1240, 2000)
        cls.steps = [line for line in cls.lines if "loss" in line]
        cls.browser = open_browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.colours("light")
        self.open(self.directory)

    def open(self, folder):
        self.browser.get(pathlib.Path(folder, "report.html").as_uri())
        self.browser.execute_script("sessionStorage.clear(); Storage.prototype.setItem = () => {};")  # a new session
        self.browser.get_log("browser")
        self.browser.refresh()

    def tearDown(self):
        self.assertEqual(self.browser.get_log("browser"), [])  # no error, and nothing blocked by the policy

    def colours(self, scheme):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                     {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def phone(self, height=844):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": 390, "height": height, "deviceScaleFactor": 2, "mobile": True})

    def picture(self, name):
        if PICTURES:
            os.makedirs(PICTURES, exist_ok=True)
            self.browser.save_screenshot(os.path.join(PICTURES, name + ".png"))

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def texts(self, selector):
        return [e.text for e in self.browser.find_elements("css selector", selector)]

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def value(self, plot):
        """The screen-reader text of a chart: {name: number}, and the step."""
        text = self.find("#plot-" + plot).get_attribute("aria-valuetext")
        step, _, rest = text.partition(": ")
        values = dict(piece.split(" at step ")[0].rsplit(" ", 1) for piece in rest.split(", ") if " " in piece)
        return int(step.split()[1].replace(",", "")), values

    def keys(self, plot, *keys):
        self.script("arguments[0].focus()", self.find("#plot-" + plot))
        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    def test_shows_the_numbers_of_the_run(self):
        last = self.steps[-1]
        self.assertEqual(self.find("#step").text, "1,240")
        self.assertEqual(self.find("#now-loss").text, f"{last['loss']:.4f}")
        self.assertEqual(self.find("#now-speed").text, f"{last['tokens_per_s']:,.0f}")
        self.assertEqual(self.find("#now-norm").text, f"{last['grad_norm']:.4g}")
        best = [line for line in self.lines if line.get("best")][-1]
        self.assertEqual(self.find("#now-val").text, f"{best['val_loss']:.4f}")
        self.script("arguments[0].open = true", self.find("#evaluations"))
        rows = [row.split() for row in self.texts("#evaluation-table tbody tr")]
        wanted = [[f"{e['step']:,}", f"{e['val_loss']:.4f}", f"{e['bits_per_byte']:.4f}"]
                  for e in reversed(self.lines) if "val_loss" in e]
        self.assertEqual(rows, wanted)
        self.assertEqual(len(self.texts("#charts .plot svg .line")), 8)  # three of them raw, below the smoothed ones
        self.picture("light")

    def test_charts_contain_every_step(self):
        series = self.script("return JSON.parse(document.getElementById('data').textContent).series")
        for key, name in [("loss", "loss"), ("grad_norm", "grad_norm"), ("tokens_per_s", "tokens_per_s"),
                          ("learning_rate", "learning_rate")]:
            wanted = [(s["step"], s[key]) for s in self.steps if s[key] is not None]
            self.assertEqual(series[name]["a"], [step for step, _ in wanted])
            for found, (_, number) in zip(series[name]["mean"], wanted):
                self.assertLess(abs(found - number), 1e-6 * abs(number))

    def test_works_with_the_keyboard(self):
        self.keys("loss", Keys.HOME)
        step, values = self.value("loss")
        self.assertEqual((step, values["training"]), (1, f"{self.steps[0]['loss']:.4f}"))
        self.keys("loss", *[Keys.ARROW_RIGHT] * 4)
        step, values = self.value("loss")
        self.assertEqual((step, values["training"]), (5, f"{self.steps[4]['loss']:.4f}"))
        self.assertEqual(self.value("speed")[1]["tokens per second"], f"{self.steps[4]['tokens_per_s']:,.0f}")
        self.keys("loss", Keys.END, Keys.PAGE_DOWN)
        self.assertEqual(self.value("loss")[0], 1240 - 62)
        self.keys("loss", "+")
        self.assertTrue(self.find("#whole").is_displayed())
        self.keys("loss", Keys.ESCAPE)
        self.assertFalse(self.find("#whole").is_displayed())
        self.assertEqual(self.value("loss")[0], 1240)

    def test_works_with_the_pointer(self):
        plot = self.find("#plot-loss")
        ActionChains(self.browser).move_to_element(plot).perform()
        step, values = self.value("loss")
        self.assertTrue(560 < step < 700, step)
        self.assertEqual(values["training"], f"{self.steps[step - 1]['loss']:.4f}")
        self.assertIn(f"{self.steps[step - 1]['grad_norm']:.4g}", self.find("#read-norm").text)
        self.assertEqual(len(self.browser.find_elements("css selector", ".crosshair")), 4)
        self.picture("pointer")
        ActionChains(self.browser).click_and_hold(plot).move_by_offset(200, 0).release().perform()
        labels = [int(t.text.replace(",", "")) for t in self.browser.find_elements("css selector", "#plot-rate text.x")]
        self.assertTrue(all(600 <= label < 1000 for label in labels), labels)
        ActionChains(self.browser).double_click(plot).perform()
        self.assertFalse(self.find("#whole").is_displayed())

    def test_shows_what_happened(self):
        self.assertEqual(self.texts("#event-list li")[-4:],
                         ["step 744\nloss spike z = 9.2", "step 568\nrepetitive sample",
                          "step 496\nstep skipped: NaN or infinity", "step 413\nrun resumed"])
        for kind in ["skipped", "spike", "repeats", "resumed"]:
            self.assertTrue(self.browser.find_elements("css selector", "#plot-loss .mark." + kind), kind)
        self.script("arguments[0].click()", self.find("#event-list li:nth-last-child(4) button"))
        self.assertEqual(self.value("loss")[0], 744)
        self.assertIn("loss spike step 744", self.find("#read-loss").text)

    def test_shows_every_script_and_runs_none(self):
        self.assertEqual(self.script("return window.hacked || 0"), 0)
        self.assertEqual(len(self.browser.find_elements("css selector", "img")), 0)
        self.find("#more").click()
        shown = self.texts(".sample p")
        self.assertEqual(shown, [line["sample"].strip() for line in reversed(self.lines) if "sample" in line])
        self.assertEqual(self.find(".group dd").text, HOSTILE)
        self.assertEqual(self.find("#title").text, os.path.basename(self.directory))
        # The page's policy blocks anything that gets past the escaping.
        self.script("const s = document.createElement('script'); s.textContent = 'window.hacked = 9';"
                    "document.body.append(s); const d = document.createElement('div');"
                    "d.innerHTML = '<img src=x onerror=\"window.hacked=8\">'; document.body.append(d);")
        time.sleep(0.3)
        self.assertEqual(self.script("return window.hacked || 0"), 0)
        self.assertTrue(self.browser.get_log("browser"), "the browser reports what it blocked")

    def test_log_scale_and_smoothing(self):
        line = "return document.querySelector('#plot-loss .line.train:not(.raw)').getAttribute('d')"
        smooth = self.script(line)
        self.find("#smooth").click()
        plain = self.script(line)
        self.assertNotEqual(smooth, plain)
        self.find("#log").click()
        self.assertNotEqual(self.script(line), plain)
        self.assertNotIn("smoothed", self.value("loss")[1])
        ticks = [float(t.text) for t in self.browser.find_elements("css selector", "#plot-loss text.y")]
        self.assertIn(3, ticks)
        self.picture("log")

    def test_fits_a_phone_and_the_dark(self):
        self.colours("dark")
        self.assertEqual(self.script("return getComputedStyle(document.body).backgroundColor"), "rgb(14, 17, 22)")
        self.picture("dark")
        self.phone()
        time.sleep(0.3)
        self.assertEqual(self.script("return document.documentElement.scrollWidth"), 390)
        self.picture("phone")

    def test_colours_are_distinguishable(self):
        """WCAG 2: a contrast of 4.5 to 1 for text and 3 to 1 for lines, against their background."""
        for scheme in ["light", "dark"]:
            self.colours(scheme)
            colours = dict(zip(["card", "page", "ink", "soft", "accent", "train", "valid", "rate", "norm", "speed", "bad",
                                "warn", "good", "bad-bg", "warn-bg", "good-bg", "calm-bg"], self.script("""
                const probe = document.body.appendChild(document.createElement('i'));
                return [...arguments].map((name) => { probe.style.color = `var(--${name})`;
                  return getComputedStyle(probe).color.match(/[0-9]+/g).map(Number); });""",
                *["card", "page", "ink", "soft", "accent", "train", "valid", "rate", "norm", "speed", "bad", "warn", "good",
                  "bad-bg", "warn-bg", "good-bg", "calm-bg"])))

            def light(colour):
                parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colours[colour]]
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

            def contrast(a, b):
                return (max(light(a), light(b)) + 0.05) / (min(light(a), light(b)) + 0.05)

            for text, ground in [("ink", "card"), ("ink", "page"), ("soft", "card"), ("soft", "page"), ("accent", "calm-bg"),
                                 ("bad", "bad-bg"), ("warn", "warn-bg"), ("good", "good-bg"), ("accent", "card")]:
                self.assertGreaterEqual(contrast(text, ground), 4.5, (scheme, text, ground))
            for drawn in ["train", "valid", "rate", "norm", "speed", "bad", "warn"]:
                self.assertGreaterEqual(contrast(drawn, "card"), 3, (scheme, drawn))

    def test_refreshes_without_losing_the_place(self):
        folder, made = os.path.join(self.folder, "live"), os.path.join(self.folder, "made")
        os.makedirs(folder)

        def write_live(done):
            """The page that `qkv train` writes, but refreshed every second."""
            write_run(made, done, 2000, resumed=False)
            text = pathlib.Path(made, "report.html").read_text(encoding="utf-8").replace('"refresh":0', '"refresh":1')
            text = text.replace('<div class="facts">', '<div class="facts"><input type="checkbox" id="live" checked>', 1)
            pathlib.Path(made, "live.html").write_text(text, encoding="utf-8")
            os.replace(os.path.join(made, "live.html"), os.path.join(folder, "report.html"))

        write_live(300)
        self.open(folder)
        self.script("document.getElementById('log').click(); document.getElementById('span-half').click();"
                    "document.getElementById('evaluations').open = true; scrollTo(0, 400);")
        self.script("document.getElementById('span-half').focus({preventScroll: true})")
        write_live(500)
        for _ in range(300):
            time.sleep(0.1)
            if self.shown_step() == "500":
                break
        time.sleep(0.2)
        self.assertEqual(self.shown_step(), "500")
        self.script("document.getElementById('live').checked = false")  # no more refreshes during the test
        self.assertTrue(self.find("#log").is_selected())
        self.assertEqual(self.find("#span-half").get_attribute("aria-pressed"), "true")
        self.assertTrue(self.script("return document.getElementById('evaluations').open"))
        self.assertEqual(self.script("return [Math.round(scrollY), document.activeElement.id]"), [400, "span-half"])
        write_live(700)
        time.sleep(2)
        self.assertEqual(self.shown_step(), "500")

    def shown_step(self):
        """One query: the page may refresh between two queries, or during one."""
        try:
            return self.script("return document.getElementById('step').textContent")
        except exceptions.WebDriverException:
            return None


def main():
    if not (CHROMIUM and DRIVER and webdriver):
        print("skipped: no chromium, chromium-driver or python3-selenium (scripts/install_deps.sh --all installs them)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
