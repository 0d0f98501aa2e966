// SPDX-License-Identifier: Apache-2.0
'use strict';

// Colors in Oklab (Ottosson, 2020), a perceptually uniform space: a scale for weights that starts at the card's
// background, and a blue-orange scale for signed numbers that color-blind readers can distinguish.
(() => {
  function toLab([r, g, b]) {
    const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [linear(r), linear(g), linear(b)];
    const l = Math.cbrt(0.4122214708 * x + 0.5363325363 * y + 0.0514459929 * z);
    const m = Math.cbrt(0.2119034982 * x + 0.6806995451 * y + 0.1073969566 * z);
    const s = Math.cbrt(0.0883024619 * x + 0.2817188376 * y + 0.6299787005 * z);
    return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
      0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
  }

  function toRgb([light, a, b]) {
    const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
    const byte = (c) => Math.round(255 * Math.min(1, Math.max(0, c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055)));
    return [byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
      byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
      byte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s)];
  }

  const polar = (light, chroma, hue) => [light, chroma * Math.cos(hue * Math.PI / 180), chroma * Math.sin(hue * Math.PI / 180)];
  const css = ([r, g, b]) => `rgb(${r},${g},${b})`;

  // 256 colors through the points, with equal steps in lightness.
  function scale(points) {
    return Array.from({length: 256}, (_, i) => {
      const t = i / 255, at = t * (points.length - 1), from = Math.min(Math.floor(at), points.length - 2), part = at - from;
      const lab = points[from].map((c, axis) => c + (points[from + 1][axis] - c) * part);
      lab[0] = points[0][0] + (points.at(-1)[0] - points[0][0]) * t;
      return toRgb(lab);
    });
  }

  // Relative luminance (WCAG 2).
  const bright = (rgb) => rgb.reduce((sum, c, at) => sum + [0.2126, 0.7152, 0.0722][at] * ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4), 0);

  // Canvas pixel format: red in the lowest byte.
  const words = (colours) => Uint32Array.from(colours, ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0);

  function palette() {
    const style = getComputedStyle(document.documentElement), probe = document.createElement('i');
    document.body.append(probe);
    const colour = (name) => {
      probe.style.color = style.getPropertyValue('--' + name).trim();
      return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    };
    const names = ['page', 'card', 'edge', 'ink', 'soft', 'faint', 'accent', 'mark'], rgb = {}, found = {};
    for (const name of names) {
      rgb[name] = colour(name);
      found[name] = css(rgb[name]);
    }
    probe.remove();
    const ground = toLab(rgb.card), dark = ground[0] < 0.5;
    found.dark = dark;
    found.weights = dark ?
      scale([ground, polar(0.4, 0.15, 262), polar(0.6, 0.1, 215), polar(0.78, 0.12, 165), polar(0.95, 0.13, 105)]) :
      scale([ground, polar(0.8, 0.09, 205), polar(0.6, 0.12, 245), polar(0.45, 0.15, 272), polar(0.24, 0.1, 290)]);
    const far = dark ? 0.8 : 0.52;
    const below = scale([ground, polar((ground[0] + far) / 2, 0.09, 252), polar(far, 0.15, 255)]);
    const above = scale([ground, polar((ground[0] + far) / 2, 0.08, 60), polar(far, 0.15, 52)]);
    found.weightWords = words(found.weights);
    found.onWeights = found.weights.map((ground) => {
      const contrast = (ink) => { const [a, b] = [bright(ink), bright(ground)]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
      const best = (inks) => inks.reduce((a, b) => contrast(b) > contrast(a) ? b : a), own = best([rgb.ink, rgb.page]);
      return css(contrast(own) >= 4.5 ? own : best([[0, 0, 0], [255, 255, 255]]));
    });
    found.signed = [...below.slice().reverse(), ...above.slice(1)];  // 511 colors; the middle is 0
    found.signedWords = words(found.signed);
    found.negative = css(below[255]);
    found.positive = css(above[255]);
    // Heads: lightness alternates with hue, so that adjacent heads also differ without color.
    found.heads = Array.from({length: qkv.H}, (_, h) =>
      css(toRgb(polar(dark ? (h % 2 ? 0.7 : 0.83) : (h % 2 ? 0.44 : 0.6), 0.14, 255 + 360 * h / qkv.H * (qkv.H > 6 ? 1 : 0.8)))));
    return found;
  }

  qkv.palette = palette;
  qkv.css = css;
  // The color of a share from 0 to 1.
  qkv.weightColour = (colours, share) => css(colours.weights[Math.round(255 * Math.max(0, Math.min(1, share)))]);
  // The text color on it.
  qkv.inkOn = (colours, share) => colours.onWeights[Math.round(255 * Math.max(0, Math.min(1, share)))];
  // The index into signedWords of a share from -1 to 1.
  qkv.signedAt = (share) => 255 + Math.round(255 * Math.max(-1, Math.min(1, share)));
  // Levels 0 to 255, indexed by the upper half of a weight's bits (its sign is never set): a table instead of a
  // logarithm for each of millions of weights. Weights with the same index differ by less than 1 %.
  qkv.levels = (share) => {
    const table = new Uint8Array(32768), bits = new Uint32Array(1), real = new Float32Array(bits.buffer);
    for (let at = 0x3000; at < 0x4000; ++at) {  // from 4.7e-10 to 2
      bits[0] = at << 16 | 0x8000;
      table[at] = Math.round(255 * Math.max(0, Math.min(1, share(real[0]))));
    }
    return table;
  };
})();
