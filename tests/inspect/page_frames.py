# SPDX-License-Identifier: Apache-2.0
"""Actions performed on the page in each frame while frame times are measured."""
FRAMES = """
const [id, how, total, done] = arguments, plot = document.getElementById(id), box = plot.getBoundingClientRect();
const frames = [], work = [], tokens = document.querySelectorAll('#strip span');
// A frame that changes nothing comes at the screen's own rate: this spot makes each one change something.
const spot = document.getElementById('spot') || document.body.appendChild(Object.assign(document.createElement('i'), {id: 'spot'}));
spot.style.cssText = 'position: fixed; left: 0; top: 0; width: 2px; height: 2px';
const does = {
  zoom: (at) => plot.dispatchEvent(new WheelEvent('wheel', {...at, ctrlKey: true, deltaY: count % 60 < 30 ? -40 : 40})),
  scroll: (at, t) => { plot.scrollTop = 2400 * t; },
  text: () => tokens[(count * 5) % tokens.length].dispatchEvent(new PointerEvent('pointerover', {bubbles: true})),
  key: () => qkv.change({key: (count * 3) % qkv.n}),
  token: () => qkv.setQuery((count * 7) % qkv.n),
  head: () => qkv.turn('head', 1, qkv.H)(),
  hover: (at) => plot.dispatchEvent(new PointerEvent('pointermove', at)),
  drag: (at) => plot.dispatchEvent(new PointerEvent('pointermove', {...at, buttons: 1})),
};
let last = 0, count = 0;
function step(now) {
  if (last) frames.push(now - last);
  last = now;
  if (count++ === total) return done({frames, work});
  spot.style.background = count % 2 ? '#888' : '#999';
  const t = count / total, begun = performance.now();
  does[how]({bubbles: true, cancelable: true, pointerId: 1,
    clientX: box.left + 110 + (box.width - 150) * (0.5 + 0.45 * Math.sin(9 * t)),
    clientY: box.top + 90 + Math.min(500, box.height - 120) * (0.5 + 0.45 * Math.sin(13 * t))}, t);
  requestAnimationFrame(step);
  setTimeout(() => work.push(performance.now() - begun), 0);
}
requestAnimationFrame(step);
"""
ALL_LINES = "qkv.change({heads: new Set(Array.from({length: qkv.H}, (_, h) => h))})"
ZOOMED = """const plot = document.getElementById('matrix-plot'), box = plot.getBoundingClientRect();
for (let i = 0; i < 4; ++i) document.getElementById('zoom-in').click();
plot.setPointerCapture = () => {};
requestAnimationFrame(() => plot.dispatchEvent(new PointerEvent('pointerdown', {clientX: box.left + 400, clientY: box.top + 400})));"""
TABLE = "document.getElementById('next-details').open = true"
MOTIONS = [  # view, action in each frame, setup
    ("model", "hover", ""), ("model", "text", ""), ("lines", "hover", ""), ("lines", "scroll", ""), ("lines", "head", ""),
    ("lines", "hover", ALL_LINES), ("lines", "scroll", ALL_LINES), ("matrix", "hover", ""), ("matrix", "zoom", ""),
    ("matrix", "drag", ZOOMED), ("matrix", "head", ""), ("steps", "scroll", ""), ("steps", "key", ""), ("steps", "token", ""),
    ("next", "token", ""), ("next", "token", TABLE)]
