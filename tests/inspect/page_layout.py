# SPDX-License-Identifier: Apache-2.0
"""Layout of the page in a window of 1280 x 657: nothing moves by itself, and the main parts are fully visible."""
import contextlib
import pathlib

ROW = {"steps": 20, "lines": 21}  # px
BOXES = """return arguments[0].map((e) => { const r = document.querySelector(e).getBoundingClientRect();
    return [r.left, r.top, r.right, r.bottom].map((x) => Math.round(x * 10) / 10); })"""

# The texts that a figure truncates.
CUT = """(figure) => { const surface = new qkv.SvgSurface(figure.width, figure.height); figure.draw(surface);
    return [...surface.root.querySelectorAll('text')].map((e) => e.textContent).filter((t) => t.endsWith('…')); }"""


class PageLayout:
    """A mixin for tests of the page in Chromium."""

    @contextlib.contextmanager
    def window(self, width=1280, height=657):
        """The page, opened in such a window."""
        self.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.browser.open(pathlib.Path(self.page).as_uri())
        self.wait("return document.documentElement.dataset.ready === 'yes'")
        self.settle()
        self.settle()
        yield
        self.browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def boxes(self, *elements):
        return self.script(BOXES, elements)

    def test_the_first_state_is_the_final_one(self):
        parts = ["#model-plot", ".maps", ".ranking", ".chosen", "#panel", "#toolbar"]
        with self.window():
            first, cell = self.boxes(*parts), self.script("return document.querySelector('#model-plot .base').height")
            self.open("matrix")
            self.open("model")
            for choice in ["[data-rank-on=text]", "[data-rank-on=random]", "[data-theme-choice=dark]", "[data-theme-choice=auto]"]:
                self.script("document.querySelector(arguments[0]).click()", choice)
                self.settle()
            self.assertEqual(self.boxes(*parts), first)
            self.assertEqual(self.script("return document.querySelector('#model-plot .base').height"), cell)
            for button in self.boxes("[data-open=matrix]", "[data-open=lines]", "[data-open=steps]"):
                self.assertLessEqual(button[3], 657)

    def test_a_phone_shows_every_view_in_readable_size(self):
        with self.window(390, 844):
            for view in ["model", "lines", "matrix", "steps", "next"]:
                self.open(view)
                self.settle()
                self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 390, view)
                shrunk = self.script("""return [...document.querySelectorAll('#view-' + arguments[0] + ' svg')].filter((e) =>
                    e.getBoundingClientRect().width < 0.99 * e.viewBox.baseVal.width).map((e) => e.parentNode.id)""", view)
                self.assertEqual(shrunk, [], view)
                tabs = [box for tab in ["model", "lines", "matrix", "steps", "next"] for box in self.boxes("#tab-" + tab)]
                self.assertEqual(len({box[1] for box in tabs}), 1, "the tabs are in one line")
                self.assertLessEqual(max(box[2] for box in tabs), 390)
            self.open("steps")
            self.settle()
            wide, seen = self.script("const e = document.getElementById('steps-wide'); return [e.scrollWidth, e.clientWidth]")
            self.assertGreater(wide, seen)  # the steps scroll sideways

    def test_names_are_whole_on_a_small_screen(self):
        with self.window(1280, 800):
            self.open("matrix")
            self.settle()
            cut = self.script("return (" + CUT + ")(qkv.views.matrix.figure())")
            self.assertEqual(cut, [])

    def test_views_begin_at_the_same_place(self):
        with self.window():
            tops = set()
            for view in ["model", "lines", "matrix", "steps", "next"]:
                self.open(view)
                tops.add(tuple(box[1] for box in self.boxes("#panel", ".export", "#toolbar")))
            self.assertEqual(len(tops), 1, tops)

    def rows(self, view):
        """The rows in sight are whole; how far the list is scrolled."""
        plot = {"steps": "steps-rows", "lines": "lines-plot"}[view]
        top, height, over = self.script("const p = document.getElementById(arguments[0]); return [p.scrollTop, p.clientHeight,"
                                        "p.scrollWidth - p.clientWidth]", plot)
        self.assertEqual((top % ROW[view], height % ROW[view], over), (0, 0, 0), view)
        self.assertLessEqual(self.boxes("#" + plot)[0][3], 657, view)
        return top, height

    def test_steps_open_with_the_largest_weight_in_sight(self):
        with self.window():
            self.open("steps")
            for layer, head, query in [(1, 0, 0), (0, 1, 9), (1, 2, 60), (0, 3, 101)]:
                for sorted_ in [False, True]:
                    self.script("qkv.change({sorted: arguments[0]})", sorted_)
                    self.choose(layer, head, query)
                    self.wait(f"return document.getElementById('steps-rows').dataset.drawn === '{layer} {head} {query}'")
                    self.settle()
                    top, height = self.rows("steps")
                    largest = self.script("return qkv.largest(qkv.weights('head', ...arguments), arguments[2], 1)[0]", layer, head, query)
                    place = 0 if sorted_ else largest * ROW["steps"]
                    self.assertTrue(top <= place <= top + height - ROW["steps"], (layer, head, query, top, place))
            self.script("document.getElementById('steps-rows').scrollTop = 900")
            self.script("document.getElementById('sorted').click()")
            self.settle()
            self.script("document.getElementById('sorted').click()")
            self.settle()
            self.assertEqual(self.script("return document.getElementById('steps-rows').scrollTop"), 0)
            titles = self.script("""return [...document.querySelectorAll('#steps-head text[font-size="13"], #steps-head rect')].map((e) => {
                const box = e.getBBox(); return [box.x, box.x + box.width, e.textContent]; }).sort((a, b) => a[0] - b[0])""")
            for (_, end, name), (begin, _, _) in zip([t for t in titles if t[2]], [t for t in titles if not t[2]]):
                self.assertLessEqual(end + 8, begin, name)

    def test_lines_show_whole_rows_and_say_what_is_shown(self):
        with self.window():
            self.open("lines")
            for query in [0, 24, 70, 200]:
                self.script("qkv.setQuery(arguments[0])", query)
                self.settle()
                top, height = self.rows("lines")
                at = self.script("return qkv.state.query") * ROW["lines"]
                self.assertTrue(top <= at <= top + height - ROW["lines"], query)
            kind = "return document.getElementById('kind').selectedOptions[0].textContent"
            self.assertEqual(self.script(kind), "one head")
            self.script("document.querySelector('#head-chips button:last-child').click()")
            self.settle()
            self.assertEqual(self.script(kind), "4 heads")
            self.open("matrix")
            self.assertEqual(self.script(kind), "one head")

    def test_the_matrix_is_in_sight_and_zooms_about_the_chosen_cell(self):
        with self.window():
            self.open("matrix")
            self.assertLessEqual(self.boxes("#matrix-plot .base")[0][3], 657)
            n = self.script("return qkv.n")
            for query, key in [(60, 4), (60, None)]:
                self.choose(1, 2, query, key)
                column = key if key is not None else self.script("return qkv.largest(qkv.weights('head', 1, 2), arguments[0], 1)[0]", query)
                self.script("document.getElementById('zoom-in').click()")
                self.settle()
                zoom, x0, y0 = map(float, self.script("return qkv.state.zoomed").split())
                for at, corner in [(column, x0), (query, y0)]:
                    self.assertTrue(corner <= at and at + 1 <= corner + n / zoom, (query, key, zoom, corner))
                    if 0 < corner < n - n / zoom:  # not clamped at an edge: the cell stays in place
                        self.assertAlmostEqual((at + 0.5 - corner) * zoom, at + 0.5, places=3)
                self.script("document.getElementById('zoom-all').click()")
                self.settle()
            wide = self.script("""const row = document.querySelector('.bars div'), number = row.lastChild;
                return ['≥0.9999', '>0.9999', '<4.4e−16'].map((text) => { number.textContent = text; row.className = 'here';
                  const range = document.createRange(); range.selectNodeContents(number);
                  return range.getBoundingClientRect().width - number.getBoundingClientRect().width; })""")
            self.assertLessEqual(max(wide), 0.5)

    def test_the_key_list_ends_where_the_rest_is_small(self):
        reads = "return (({keys, rest}) => [keys, rest])(qkv.reads(new Float32Array(arguments[0]), arguments[1], arguments[2]))"
        row = [1, 0.5, 0.5, 0.2, 0.3, 0.5]
        self.assertEqual(self.script(reads, [*row, 0.4995, 0.5, 0.0001, 0.0004], 3, 4), [[1, 0], "<0.001"])
        self.assertEqual(self.script(reads, [*row, 0.25, 0.25, 0.25, 0.25], 3, 4), [[0, 1, 2, 3], ""])
        self.assertEqual(self.script(reads, [*row, 0.25, 0.25, 0.25, 0.25], 3, 2), [[0, 1], "0.500"])
        self.open("matrix")
        self.choose(1, 1, 80)
        keys, rest = self.script("return (({keys, rest}) => [keys, rest])(qkv.reads(qkv.weights('head', 1, 1), 80, 10))")
        self.assertEqual(self.script("return document.querySelectorAll('.bars div:not([hidden], #matrix-rest)').length"), len(keys))
        self.assertEqual(self.text("#matrix-rest"), "the rest" + rest)

    def test_text_is_readable_on_every_weight(self):
        for scheme in ["light", "dark"]:
            self.browser.colours(scheme)
            self.settle()
            grounds, inks = self.script("""const colours = qkv.palette();
                return [colours.weights, colours.onWeights.map((css) => css.match(/[0-9]+/g).map(Number))]""")
            for ground, ink in zip(grounds, inks):
                a, b = self.luminance(ground), self.luminance(ink)
                self.assertGreaterEqual((max(a, b) + 0.05) / (min(a, b) + 0.05), 4.5, (scheme, ground))
        self.browser.colours("light")
        self.open("next")
        self.assertIn("probability", self.text("#next-legend"))
