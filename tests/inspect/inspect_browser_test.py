# SPDX-License-Identifier: Apache-2.0
"""The page of `qkv inspect --html` in Chromium, and in Firefox where it is installed, opened over file:// without a
network: every view, its numbers compared with the .npy files of the same pass, hostile text, keys, exports.

    inspect_browser_test.py QKV INSPECT_SAMPLE [FOLDER [TEST...]]

Needs Debian's chromium, chromium-driver and python3-selenium (scripts/install_deps.sh --all); without them it prints a
message and exits with 77, which CTest reports as skipped. Frame times are printed but not checked (QKV_FRAMES frames each,
60 by default). With a FOLDER it saves screenshots there.
"""
import csv
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import page_browsers as browsers  # noqa: E402
from page_frames import ALL_LINES, FRAMES, MOTIONS, TABLE, ZOOMED  # noqa: E402
from page_layout import PageLayout  # noqa: E402

if browsers.webdriver:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

QKV = sys.argv[1] if len(sys.argv) > 1 else "qkv"
SAMPLE = sys.argv[2] if len(sys.argv) > 2 else "inspect_sample"
FRAME_COUNT = int(os.environ.get("QKV_FRAMES", "60"))
PICTURES = sys.argv[3] if len(sys.argv) > 3 else None
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=\"window.hacked=2\"><!--"
TEXT = "蒔絵師は硯箱を。 Сумма " + HOSTILE + " 🌱 q k v\n"
VIEWS = ["model", "lines", "matrix", "steps", "next"]
STEPS = ["score", "scaled", "masked", "weight"]
LAYERS, HEADS, KV_HEADS, D_K, D_V = 2, 4, 2, 8, 12


def make_pass(folder):
    """A small model, its page for TEXT, and the arrays of the same text."""
    text = os.path.join(folder, "text.txt")
    pathlib.Path(text).write_text((TEXT + "In the beginning was the word. ") * 40, encoding="utf-8")
    model = os.path.join(folder, "model <img src=x onerror=window.hacked=3>")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([QKV, "train", "--data", text, "--out", model, "--tokenizer", "bytes", "--preset", "andrea-12m", "--n-layer",
                    str(LAYERS), "--n-head", str(HEADS), "--n-kv-head", str(KV_HEADS), "--d-model", "32",
                    "--head-dim", str(D_K), "--v-head-dim", str(D_V), "--positions", "rotary", "--ctx-len", "192", "--batch-size", "2", "--steps", "12", "--eval-interval", "12",
                    "--eval-iters", "1", "--sample-interval", "0"], **quiet)
    page, arrays = os.path.join(folder, "page.html"), os.path.join(folder, "arrays")
    subprocess.run([QKV, "inspect", "-m", model, "-p", TEXT, "--html", page, "--save", arrays], **quiet)
    return page, arrays


class Arrays:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        return np.load(os.path.join(self.folder, name + ".npy"))[0].astype(np.float64)

    def head(self, layer, head):
        """q, k [ctx, d_k], v, z [ctx, d_v], scores (-inf where masked) and pattern [ctx, ctx]."""
        at = f"blocks.{layer}.attn.hook_"
        group = head // (HEADS // KV_HEADS)
        return {"q": self(at + "rot_q")[:, head], "k": self(at + "rot_k")[:, group], "v": self(at + "v")[:, group],
                "z": self(at + "z")[:, head], "scores": self(at + "attn_scores")[head], "pattern": self(at + "pattern")[head]}


def number(text):
    return float(re.sub("[<>≥]", "", text).replace("−", "-").replace("∞", "inf"))


def half_digit(text):
    """Half a unit of the last digit shown."""
    mantissa, _, exponent = re.sub("[<>≥]", "", text).replace("−", "-").partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (-decimals + (int(exponent) if exponent else 0))


class InspectPage(unittest.TestCase):
    """In Chromium; repeated below in Firefox."""
    make = browsers.Chromium if browsers.webdriver else None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="qkv-inspect-")
        cls.downloads = os.path.join(cls.folder, "saved")
        os.mkdir(cls.downloads)
        cls.page, cls.arrays = make_pass(cls.folder)
        cls.browser = cls.make(cls.downloads)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.browser.open(pathlib.Path(self.page).as_uri())
        self.wait("return document.documentElement.dataset.ready === 'yes'")
        self.settle()  # `ready` is set before the first frame is drawn
        self.array = Arrays(self.arrays)

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])  # no error, and nothing blocked by the policy

    def script(self, text, *arguments):
        return self.browser.script(text, *arguments)

    def wait(self, question):
        for _ in range(600):
            if self.script(question):
                return
            time.sleep(0.05)
        self.fail("never came true: " + question)

    def settle(self):
        """Waits two frames, after which all requested drawing is done."""
        self.browser.later("const done = arguments[arguments.length - 1];"
                           "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));")

    def open(self, view):
        self.script("document.getElementById('tab-' + arguments[0]).click()", view)
        self.settle()

    def choose(self, layer, head, query, key=None):
        self.script("qkv.change({layer: arguments[0], head: arguments[1], query: arguments[2], key: arguments[3], kind: 'head',"
                    "hover: null, cellAt: null})", layer, head, query, key)
        self.settle()

    def text(self, selector):
        return self.script("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def named(self, view):
        """The numbers shown in a view, by name."""
        return self.script("return Object.fromEntries([...document.querySelectorAll(`#view-${arguments[0]} [data-name]`)]"
                           ".map((e) => [e.dataset.name, e.textContent]))", view)

    def steps(self):
        """The numbers of the step view by name, "q-0", "score-3". Each line is one text element, and the table of keys has
        only the visible rows, so it is scrolled through."""
        rows, height = {}, self.script("return document.getElementById('steps-rows').scrollHeight")
        for top in range(0, height, 200):
            self.script("document.getElementById('steps-rows').scrollTop = arguments[0]", top)
            self.settle()
            rows.update(self.named("steps"))
        shown = {}
        for name, text in rows.items():
            letter, first = name.rsplit("-", 1)
            for at, part in enumerate(text.split()):
                shown[f"{STEPS[at]}-{first}" if letter == "row" else f"{letter}-{int(first) + at}"] = part
        return shown

    def near(self, shown, wanted, error=0.0, what=""):
        room = 3 * half_digit(shown) * 1.001 + error + 2e-6 * abs(wanted)  # the error is at most one unit of the digit
        self.assertLessEqual(abs(number(shown) - wanted), room, f"{what}: {shown} is not {wanted}")

    def picture(self, name):
        if PICTURES:
            os.makedirs(PICTURES, exist_ok=True)
            pathlib.Path(PICTURES, f"{self.browser.name}-{name}.png").write_bytes(self.browser.picture())

    # --- numbers ---

    def test_weights_match_the_arrays(self):
        for layer in range(LAYERS):
            for head in range(HEADS):
                wanted = self.array.head(layer, head)["pattern"]
                weights, errors = self.script(
                    "const w = [...qkv.weights('head', arguments[0], arguments[1])]; return [w, w.map(qkv.weightError)]", layer, head)
                wanted = wanted[np.tril_indices(len(wanted))]
                self.assertTrue(np.all(np.abs(np.array(weights) - wanted) <= 1.01 * np.array(errors) + 1e-7), (layer, head))
        mean = np.mean([self.array.head(1, h)["pattern"] for h in range(HEADS)], axis=0)
        shown = self.script("return [...qkv.weights('layer', 1, 0)]")
        self.assertLess(np.max(np.abs(np.array(shown) - mean[np.tril_indices(len(mean))])), 1e-4)

    def test_matrix_shows_the_values_of_the_arrays(self):
        self.open("matrix")
        for layer, head, query, key in [(0, 0, 5, 2), (1, 3, 40, 39), (1, 2, 60, 0), (0, 1, 7, 7)]:
            self.choose(layer, head, query, key)
            big, error = self.text("#matrix-value"), self.text("#matrix-value .error")
            wanted = self.array.head(layer, head)["pattern"][query, key]
            self.near(big[:-len(error)].strip(), wanted, what=f"matrix {layer} {head} {query} {key}")
        self.choose(0, 0, 5, 9)
        self.assertIn("masked", self.text("#matrix-value"))
        self.picture("matrix")

    def test_steps_show_the_numbers_of_the_arrays(self):
        self.open("steps")
        for layer, head, query, key in [(0, 0, 0, 0), (0, 3, 33, 7), (1, 1, 70, 70), (1, 2, 20, 1)]:
            self.choose(layer, head, query, key)
            self.wait(f"return document.getElementById('steps-rows').dataset.drawn === '{layer} {head} {query}'")
            self.settle()
            shown, wanted = self.steps(), self.array.head(layer, head)
            for c in range(D_K):
                self.near(shown[f"q-{c}"], wanted["q"][query, c], what=f"q {c}")
                self.near(shown[f"k-{c}"], wanted["k"][key, c], what=f"k {c}")
            for c in range(D_V):
                self.near(shown[f"v-{c}"], wanted["v"][key, c], what=f"v {c}")
                self.near(shown[f"z-{c}"], wanted["z"][query, c], what=f"z {c}")
            for j in range(len(wanted["q"])):
                product = wanted["q"][query] @ wanted["k"][j]
                self.near(shown[f"score-{j}"], product, 1e-4, what=f"score {j}")
                self.near(shown[f"scaled-{j}"], product / D_K ** 0.5, 1e-4, what=f"scaled {j}")
                if j > query:
                    self.assertEqual((shown[f"masked-{j}"], shown[f"weight-{j}"]), ("−∞", "0"))
                else:
                    self.near(shown[f"masked-{j}"], wanted["scores"][query, j], what=f"masked {j}")
                    self.near(shown[f"weight-{j}"], wanted["pattern"][query, j], what=f"weight {j}")
        for shape in [f"q [{D_K}]", f"z [{D_V}]", "[1, "]:
            self.assertIn(shape, self.text("#view-steps"))
        self.picture("steps")

    def test_next_token_matches_the_logits(self):
        logits = self.array("logits")
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        self.open("next")
        for position in [3, 50, len(logits) - 1]:
            self.choose(0, 0, position)
            shown, best = self.named("next"), np.sort(probabilities[position])[::-1]
            for place in range(5):
                self.near(shown[f"next-prob-{place}"], best[place], 6e-5, what=f"next {position} {place}")
        layers, words = self.script("""
            document.getElementById('next-details').open = true;
            return [qkv.L + 1, qkv.data.lens.map((stage) => qkv.word(stage.ids[(qkv.n - 1) * qkv.data.lensTop]) )]""")
        self.wait("return document.querySelectorAll('#next-table tbody tr').length > 0")
        cells = self.script("""return [...document.querySelectorAll('#next-table tbody tr')].map((row) => [row.firstChild.textContent,
            row.lastChild.textContent, row.lastChild.className])""")
        self.assertEqual([cell[0] for cell in cells], [f"layer {l}" for l in range(layers - 2, -1, -1)] + ["embedding"])
        self.assertEqual([cell[1].rsplit(" ", 1)[0] for cell in cells], words[::-1])
        self.assertEqual({cell[2] for cell in cells}, {"here"})
        self.near(cells[0][1].rsplit(" ", 1)[1], best[0], 6e-4, what="the table")
        self.assertTrue(self.text("#next-table thead th:last-child").startswith(f"{len(logits) - 1} "))
        self.picture("next")

    def test_heads_are_ranked(self):
        for on in ["random", "text"]:
            self.script("document.querySelector(`[data-rank-on=${arguments[0]}]`).click()", on)
            self.settle()
            for k, tag in enumerate(["previous", "induction", "duplicate", "first"]):
                scores = np.array(self.script("return qkv.behaviours[arguments[0]][arguments[1]]", on, k))
                order = np.argsort(-scores, kind="stable")
                best = f"layer {order[0] // HEADS} head {order[0] % HEADS}"
                shown = self.text(f"#rank-{tag} .best")
                self.assertIn(best, shown)
                self.assertAlmostEqual(float(re.search(r" ([0-9.]+) %", shown)[1]), 100 * scores[order[0]], delta=0.051)
                others = self.script("return [...document.querySelectorAll(`#rank-${arguments[0]} .after button`)].map((e) => e.dataset.at)", tag)
                self.assertEqual([int(at) for at in others], [at for at in order[1:3] if scores[at] >= 0.2])
            self.assertIn("not on this text" if on == "random" else "on this text", self.text("#model-note"))
            self.assertIn("not on this text" if on == "random" else "over this text", self.text("#ranking-says"))
        wanted = np.mean([np.diag(self.array.head(1, 2)["pattern"], -1)])
        self.choose(1, 2, 5)
        row = self.script("return [...document.querySelectorAll('#chosen-scores tr:first-child td')].map((e) => e.textContent)")
        self.assertAlmostEqual(float(row[1].strip("<> %")), 100 * wanted, delta=0.051)
        self.assertEqual(self.text("#chosen-name"), "Layer 1 head 2")
        self.assertIn("not evidence of what a head means", self.text("#caveat"))

    def test_the_page_opens_with_the_previous_token_head_and_explains_it(self):
        best = int(np.argmax(self.script("return qkv.behaviours.random[0]")))
        self.assertEqual(self.script("return [qkv.state.layer, qkv.state.head]"), [best // HEADS, best % HEADS])
        self.assertEqual(self.text("#chosen-name"), f"Layer {best // HEADS} head {best % HEADS}")
        self.assertIn("Selected by default", self.text("#chosen-why"))
        self.assertIn("previous", self.text("#chosen-why"))
        self.picture("model")
        self.script("document.querySelector('#rank-induction .best').click()")
        self.settle()
        at = int(np.argmax(self.script("return qkv.behaviours.random[1]")))
        self.assertEqual(self.script("return [qkv.state.view, qkv.state.layer, qkv.state.head, qkv.state.kind]"),
                         ["matrix", at // HEADS, at % HEADS, "head"])

    def test_shares_are_not_rounded_to_nothing_or_all(self):
        for value, error, share, percent in [
                (0, 0.001, "0", "0 %"), (1, 0.001, "1", "100 %"), (0.9996, 0.001, ">0.999", ">99.9 %"), (0.996, 0.001, "0.996", "99.6 %"),
                (0.0003, 0.001, "<0.001", "<0.1 %"), (0.99997, 0.00005, ">0.9999", ">99.9 %"), (0.99999, 0, ">0.9999", ">99.9 %"),
                (0.5, 0.001, "0.500", "50.0 %"), (0.00002, 0.00005, "<0.0001", "<0.1 %")]:
            self.assertEqual(self.script("return [qkv.share(arguments[0], arguments[1]), qkv.percent(arguments[0])]", value, error),
                             [share, percent], value)
        all_, nothing, first, ahead = self.script(
            "const w = new Float32Array(6).fill(1); w[3] = 0; return [[2, 2], [2, 0], [0, 0], [1, 2]].map((at) => qkv.weight(w, ...at))")
        self.assertEqual((all_, first, ahead), ("≥0.9999", "1", "0"))
        self.assertRegex(nothing, r"^<[0-9.]+e−[0-9]+$")

    # --- text ---

    def test_every_script_shows_and_none_runs(self):
        self.assertEqual(self.script("return window.hacked || 0"), 0)
        self.assertEqual(self.script("return document.querySelectorAll('img').length"), 0)
        shown = self.text("#strip")
        self.assertEqual(shown, TEXT)
        for view in VIEWS:
            self.open(view)
        self.assertEqual(self.script("return window.hacked || 0"), 0)
        self.assertIn("<img src=x onerror=window.hacked=3>", self.text("#title"))
        self.script("const s = document.createElement('script'); s.textContent = 'window.hacked = 9'; document.body.append(s);"
                    "const d = document.createElement('div'); d.innerHTML = '<img src=\"data:,\" onerror=\"window.hacked=8\">';"
                    "document.body.append(d);")
        time.sleep(0.3)
        self.assertEqual(self.script("return window.hacked || 0"), 0)
        if self.browser.name == "chromium":
            self.assertTrue(self.browser.complaints(), "the browser reports what it blocked")

    def test_text_is_found(self):
        self.script("const s = document.getElementById('search'); s.value = arguments[0];"
                    "s.dispatchEvent(new Event('input', {bubbles: true}));", "硯箱")
        self.settle()
        self.assertEqual(self.text("#found"), "1 found")
        matched = self.script("return [...document.querySelectorAll('#strip .match')].map((e) => Number(e.dataset.at))")
        at = len(TEXT[:TEXT.index("硯箱")].encode())
        self.assertEqual(matched, list(range(at, at + 6)))  # one token per byte

    # --- switches and exports ---

    def test_switches_change_what_is_drawn(self):
        self.open("matrix")
        self.choose(1, 2, 40, 0)

        def drawn():
            self.settle()
            return self.script("return document.querySelector('#matrix-plot .base').toDataURL()")

        seen = {drawn()}
        for switch in ["log", "hide-first", "own-scale"]:
            self.script("document.getElementById(arguments[0]).click()", switch)
            seen.add(drawn())
        for kind in ["layer", "all", "rollout"]:
            self.script("const s = document.getElementById('kind'); s.value = arguments[0]; s.dispatchEvent(new Event('change'));", kind)
            seen.add(drawn())
        self.script("document.querySelector('[data-theme-choice=dark]').click()")
        seen.add(drawn())
        self.assertEqual(len(seen), 8)
        self.script("document.querySelector('[data-theme-choice=auto]').click()")

    def test_every_view_is_exported(self):
        wanted = self.array.head(1, 2)
        for view in VIEWS:
            self.open(view)
            self.choose(1, 2, 30, 4)
            if view == "steps":
                self.wait("return document.getElementById('steps-rows').dataset.drawn === '1 2 30'")
            rows = list(csv.reader(io.StringIO(self.script("return qkv.exports.csv()"))))
            self.assertGreater(len(rows), LAYERS)
            drawing = xml.etree.ElementTree.fromstring(self.script("return qkv.exports.svg()"))
            self.assertTrue(drawing.tag.endswith("svg"))
            self.assertGreater(len(list(drawing.iter())), 20)
            size = self.browser.later("const done = arguments[arguments.length - 1]; qkv.exports.png((blob) => done(blob.size))")
            self.assertGreater(size, 2000)
            if view == "matrix":
                found = np.array([[float(x) for x in row[2:]] for row in rows[1:]])
                self.assertLess(np.max(np.abs(found - wanted["pattern"])), 1e-4)
            if view == "steps":
                found = {name: np.array([float(row[at]) for row in rows[1:len(wanted["q"]) + 1]])
                         for at, name in enumerate(rows[0]) if name in ("scaled", "weight", "k3", "v5")}
                self.assertLess(np.max(np.abs(found["weight"] - wanted["pattern"][30])), 1e-4)
                self.assertLess(np.max(np.abs(found["scaled"][:31] - wanted["scores"][30, :31])), 1e-3)
                self.assertLess(np.max(np.abs(found["k3"] - wanted["k"][:, 3])), 1e-3)
                self.assertLess(np.max(np.abs(found["v5"] - wanted["v"][:, 5])), 1e-3)


class InspectPageChromium(PageLayout, InspectPage):
    """Tests that need real keys, real downloads, or a browser that reports timings."""

    def press(self, selector, *keys):
        self.script("document.querySelector(arguments[0]).focus()", selector)
        for key in keys:
            ActionChains(self.browser.driver).send_keys(key).perform()
        self.settle()

    def state(self, *names):
        return self.script("return arguments[0].map((name) => qkv.state[name])", names)

    def test_works_with_the_keyboard(self):
        self.choose(0, 0, 10)
        self.press("#model-plot", Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        self.assertEqual(self.state("layer", "head"), [1, 2])
        self.press("#model-plot", Keys.ENTER)
        self.assertEqual(self.state("view"), ["matrix"])
        self.press("#matrix-plot", Keys.ARROW_UP, Keys.ARROW_LEFT, "+")
        self.assertEqual(self.state("query", "key"), [9, 9])
        self.press("#matrix-plot", Keys.ENTER)
        self.assertEqual(self.state("view"), ["steps"])
        self.press("#steps-rows", Keys.ARROW_DOWN)
        self.assertEqual(self.state("key"), [10])
        self.press("body", "2")
        self.assertEqual(self.state("view"), ["lines"])
        self.press("#lines-plot", Keys.ARROW_DOWN, "]", "{", ".")
        self.assertEqual(self.state("query", "head", "layer"), [11, 3, 0])
        self.press("body", "/")
        self.assertEqual(self.script("return document.activeElement.id"), "search")
        self.press("#tab-lines", Keys.ARROW_RIGHT)
        self.assertEqual(self.state("view"), ["matrix"])

    def test_everything_is_reachable_by_tab(self):
        reached = set()
        for view in VIEWS:
            self.open(view)
            self.script("document.activeElement.blur(); window.getSelection().removeAllRanges(); document.querySelector('.skip').focus()")
            for _ in range(45):
                ActionChains(self.browser.driver).send_keys(Keys.TAB).perform()
                now = self.script("return document.activeElement.id || document.activeElement.className || document.activeElement.tagName")
                if now == "BODY":
                    break
                reached.add(now)
        for wanted in ["strip", "search", "model-plot", "lines-plot", "matrix-plot", "steps-rows", "next-plot", "save-csv", "log",
                       "kind", "layer", "head", "query", "zoom-in", "best", "SUMMARY"]:
            self.assertTrue(any(wanted in name.split() or wanted == name for name in reached), (wanted, reached))

    def test_pointer_and_clicks(self):
        plot = self.browser.driver.find_element("id", "model-plot")
        width, height = plot.size["width"], plot.size["height"]
        ActionChains(self.browser.driver).move_to_element_with_offset(plot, 58 + 2 - width // 2 + 20, 22 + 20 - height // 2).perform()
        self.settle()
        self.assertIn("ayer 0 head 0", self.text("#chosen-name"))
        ActionChains(self.browser.driver).click().perform()
        self.settle()
        self.assertEqual(self.state("view", "layer", "head"), ["matrix", 0, 0])
        matrix = self.browser.driver.find_element("id", "matrix-plot")
        ActionChains(self.browser.driver).move_to_element_with_offset(matrix, -120, 150).perform()
        self.settle()
        query, key = self.script("return qkv.state.cellAt")
        big, error = self.text("#matrix-value"), self.text("#matrix-value .error")
        self.assertLessEqual(key, query)
        self.near(big[:-len(error)].strip(), self.array.head(0, 0)["pattern"][query, key])

    def test_buttons_save_files(self):
        self.open("steps")
        self.wait("return Boolean(document.getElementById('steps-rows').dataset.drawn)")
        for kind in ["csv", "svg", "png"]:
            self.browser.driver.find_element("id", "save-" + kind).click()
        for _ in range(100):
            names = os.listdir(self.downloads)
            if {n.rsplit(".", 1)[-1] for n in names} == {"csv", "svg", "png"}:
                break
            time.sleep(0.1)
        self.assertEqual({n.rsplit(".", 1)[-1] for n in names}, {"csv", "svg", "png"}, names)

    def test_all_maps_are_on_the_first_screen(self):
        self.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                            {"width": 1280, "height": 657, "deviceScaleFactor": 1, "mobile": False})
        self.settle()
        bottom, best = self.script("return ['#model-plot', '#rank-first .best'].map((e) => document.querySelector(e).getBoundingClientRect().bottom)")
        self.assertLessEqual(max(bottom, best), 657)
        self.assertLessEqual(self.script("return document.getElementById('panel').getBoundingClientRect().top"), 225)
        self.browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def test_fits_a_phone(self):
        self.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                            {"width": 400, "height": 850, "deviceScaleFactor": 2, "mobile": True})
        for view in VIEWS[:3]:
            self.open(view)
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400, view)
        self.picture("phone")
        self.browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def test_colours_are_even_and_distinguishable(self):
        """The scale's lightness falls (or rises) in even steps, and text has a contrast of 4.5 to 1 (WCAG 2)."""
        for scheme in ["light", "dark"]:
            self.browser.colours(scheme)
            self.settle()
            scale, texts = self.script("""
                const colours = qkv.palette(), part = (css) => css.match(/[0-9]+/g).map(Number);
                return [colours.weights, ['ink', 'soft', 'accent', 'mark', 'negative', 'positive', 'card', 'page'].map((name) => part(colours[name]))];""")
            light = [self.lightness(colour) for colour in scale]
            steps = np.diff(light) * (-1 if scheme == "light" else 1)
            self.assertGreater(steps.min(), -0.004, scheme)  # of 256 steps; one byte of rounding
            self.assertGreater(abs(light[-1] - light[0]), 0.6)
            parts = np.diff(light[::32])
            self.assertLess(np.max(np.abs(parts - parts.mean())), 0.15 * abs(parts.mean()))
            ink, soft, accent, mark, negative, positive, card, page = [self.luminance(colour) for colour in texts]
            for text, ground, least in [(ink, card, 4.5), (soft, card, 4.5), (soft, page, 4.5), (accent, card, 4.5), (mark, card, 3),
                                        (negative, card, 3), (positive, card, 3)]:
                self.assertGreaterEqual((max(text, ground) + 0.05) / (min(text, ground) + 0.05), least, scheme)
        self.browser.colours("light")

    @staticmethod
    def luminance(colour):
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    @classmethod
    def lightness(cls, colour):
        """CIE L*, from 0 to 1: a different measure from the one that defines the scale."""
        y = cls.luminance(colour)
        return 1.16 * y ** (1 / 3) - 0.16 if y > 0.008856 else 9.033 * y


class FrameTimes(unittest.TestCase):
    """12 layers of 12 heads and 256 tokens: the file size is checked, frame times are printed."""

    def test_large_page(self):
        folder = tempfile.mkdtemp(prefix="qkv-inspect-")
        self.addCleanup(shutil.rmtree, folder)
        page = os.path.join(folder, "large.html")
        subprocess.run([SAMPLE, page, "12", "12", "256", "64"], check=True)
        self.assertLessEqual(os.path.getsize(page), 5_000_000)
        browser = browsers.Chromium(unlimited=True)
        self.addCleanup(browser.quit)
        browser.open(pathlib.Path(page).as_uri())
        for _ in range(600):
            if browser.script("return document.documentElement.dataset.ready === 'yes'"):
                break
            time.sleep(0.05)
        time.sleep(0.5)
        self.assertEqual(browser.script("return window.hacked || 0"), 0)
        held = browser.script("return Array.from({length: 144}, (_, at) => at).filter((at) => qkv.vectorBits(Math.floor(at / 12), at % 12))")
        other = next(at for at in range(144) if at not in held)
        browser.script("qkv.change({layer: arguments[0], head: arguments[1]}); qkv.open('steps')", other // 12, other % 12)
        time.sleep(0.5)
        note = browser.script("return document.getElementById('steps-missing').textContent")
        self.assertIn(f"{len(held)} of 144 heads have q, k, v and z in this file", note)
        self.assertIn("(layer.head): " + ", ".join(f"{at // 12}.{at % 12}" for at in held) + ".", note)
        self.assertIn(f"--layer {other // 12} --head {other % 12}", note)
        told = {"bytes": os.path.getsize(page)}
        for view, how, before in MOTIONS:
            browser.script("document.getElementById('tab-' + arguments[0]).click()", view)
            time.sleep(0.2)
            browser.script(before)
            time.sleep(0.2)
            frames, work = map(np.array, browser.later(FRAMES, {"steps": "steps-rows"}.get(view, view + "-plot"), how, FRAME_COUNT).values())
            name = f"{view} {how}" + {ALL_LINES: ", 12 heads", ZOOMED: ", zoomed", TABLE: ", table open"}.get(before, "")
            told[name] = {"median_ms": round(float(np.median(frames)), 1), "p95_ms": round(float(np.quantile(frames, 0.95)), 1),
                          "work_ms": round(float(np.median(work)), 1)}
            self.assertEqual(len(frames), FRAME_COUNT)
            if before == ZOOMED:
                browser.script("document.getElementById('matrix-plot').dispatchEvent(new PointerEvent('pointerup', {}));"
                               "document.getElementById('zoom-all').click()")
            if before == ALL_LINES:
                browser.script("qkv.change({heads: new Set([qkv.state.head])})")
        print(json.dumps(told, indent=1))
        if PICTURES:
            os.makedirs(PICTURES, exist_ok=True)
            pathlib.Path(PICTURES, "frames.json").write_text(json.dumps(told, indent=1), encoding="ascii")
        self.assertEqual(browser.complaints(), [])


@unittest.skipUnless(browsers.FIREFOX, "no firefox-esr (scripts/install_deps.sh --all installs it)")
class InspectPageFirefox(InspectPage):
    make = browsers.Firefox


del InspectPage  # its tests run in the subclasses


def main():
    if not browsers.chromium_is_there():
        print("skipped: no chromium, chromium-driver or python3-selenium (scripts/install_deps.sh --all installs them)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])


if __name__ == "__main__":
    main()
