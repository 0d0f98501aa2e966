// SPDX-License-Identifier: Apache-2.0
'use strict';

// The numbers of the pass, unpacked from this file, each head on first use. Nothing is recomputed except means over
// heads.
const qkv = globalThis.qkv = {};  // also for the console

(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const n = data.texts.length, L = data.layers, H = data.heads;
  const share = H / data.kvHeads;

  // --- bytes ---

  const lines = (id) => {
    const block = document.getElementById(id);
    if (!block) return null;
    const text = block.textContent;
    block.remove();  // frees the text
    return text.split('\n');
  };
  const packed = {weights: lines('weights'), scores: lines('scores'), sums: lines('log-sums'),
    vectors: lines('vectors'), rollout: lines('rollout')};

  function base85(text) {
    const whole = Math.floor(text.length / 5), rest = text.length % 5;
    const bytes = new Uint8Array(4 * whole + Math.max(0, rest - 1));
    const digit = (at) => { const c = text.charCodeAt(at); return (c === 125 ? 60 : c) - 40; };
    for (let i = 0, at = 0; i < whole; ++i, at += 5) {
      const number = (((digit(at) * 85 + digit(at + 1)) * 85 + digit(at + 2)) * 85 + digit(at + 3)) * 85 + digit(at + 4);
      bytes[4 * i] = number;
      bytes[4 * i + 1] = number >>> 8;
      bytes[4 * i + 2] = number >>> 16;
      bytes[4 * i + 3] = number / 16777216;
    }
    if (rest > 1) {
      let number = 0;
      for (let i = 0; i < rest; ++i) number = number * 85 + digit(5 * whole + i);
      for (let i = 0; i < rest - 1; ++i) bytes[4 * whole + i] = number / 256 ** i;
    }
    return bytes;
  }

  async function inflated(line) {
    const stream = new Blob([base85(line)]).stream().pipeThrough(new DecompressionStream('deflate'));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // `count` codes from byte `at`: one byte each, or all low bytes, then all high bytes.
  function codes(bytes, at, count, wide) {
    if (!wide) return bytes.subarray(at, at + count);
    const joined = new Uint16Array(count);
    for (let i = 0; i < count; ++i) joined[i] = bytes[at + i] | bytes[at + count + i] << 8;
    return joined;
  }

  function once(make) {  // memoizes the promise of make(key)
    const known = new Map();
    return (key) => {
      if (!known.has(key)) known.set(key, make(key));
      return known.get(key);
    };
  }

  // --- weights: the triangle of keys 0 ... i of each query i, in f32 ---

  const size = n * (n + 1) / 2, peak = data.weightPeak, power = data.weightPower;
  const start = (i) => i * (i + 1) / 2;
  const value = new Float32Array(peak + 1);
  for (let c = 0; c <= peak; ++c) value[c] = (c / peak) ** power;
  function triangle(bytes) {
    const found = codes(bytes, 0, size, peak > 255), weights = new Float32Array(size);
    for (let at = 0; at < size; ++at) weights[at] = value[found[at]];
    return weights;
  }
  // The error bound of a weight: half the step to the next code.
  const mostError = 1 - ((peak - 0.5) / peak) ** power;
  function weightError(weight) {
    const code = Math.round(peak * weight ** (1 / power));
    return code >= peak ? mostError : ((code + 0.5) / peak) ** power - weight;
  }

  const heads = [];  // [L * H] triangles
  const rollouts = [];
  async function load(progress) {
    await Promise.all(Array.from({length: L * H}, async (_, at) => {
      heads[at] = triangle(await inflated(packed.weights[at]));
      progress(at);
    }));
    if (packed.rollout) {
      for (let l = 0; l < L; ++l) rollouts[l] = triangle(await inflated(packed.rollout[l]));
    }
    packed.weights = packed.rollout = null;
  }

  const means = new Map();
  function mean(first, last) {
    const key = first + '-' + last;
    if (!means.has(key)) {
      const sum = new Float32Array(size);
      for (let at = first; at < last; ++at) {
        const head = heads[at];
        for (let i = 0; i < size; ++i) sum[i] += head[i];
      }
      for (let i = 0; i < size; ++i) sum[i] /= last - first;
      means.set(key, sum);
    }
    return means.get(key);
  }

  // kind: 'head', 'layer' (the mean of its heads), 'all' (the mean of all heads) or 'rollout'.
  function weights(kind, layer, head) {
    if (kind === 'layer') return mean(layer * H, (layer + 1) * H);
    if (kind === 'all') return mean(0, L * H);
    if (kind === 'rollout') return rollouts[layer];
    return heads[layer * H + head];
  }

  // The `most` keys of query `i` with the largest weights, largest first, ties by position.
  function largest(weights, i, most, first = 0) {
    const keys = [], from = start(i);
    for (let j = first; j <= i; ++j) {
      const w = weights[from + j];
      if (keys.length === most && w <= weights[from + keys[most - 1]]) continue;
      let at = Math.min(keys.length, most - 1);
      for (; at > 0 && weights[from + keys[at - 1]] < w; --at) keys[at] = keys[at - 1];
      keys[at] = j;
    }
    return keys;
  }

  // The same, until the rest is below a thousandth, each or in total: {keys, rest: the remaining weight as text, '' if
  // none}.
  function reads(weights, i, most, first = 0) {
    const from = start(i), all = largest(weights, i, most, first), keys = [];
    let left = 0;
    for (let j = first; j <= i; ++j) left += weights[from + j];
    for (const j of all) {
      if (keys.length && (left < 0.001 || weights[from + j] < 0.001)) break;
      keys.push(j);
      left -= weights[from + j];
    }
    return {keys, rest: keys.length > i - first ? '' : qkv.share(Math.max(left, 1e-9), 0.0005)};
  }

  // --- scores and vectors of one head ---

  const scoreBytes = once((at) => inflated(packed.scores[at]));
  const sumBytes = once(() => inflated(packed.sums[0]));
  const groupBytes = once((at) => inflated(packed.vectors[at]));
  const vectorBits = (layer, head) => data.vectorBits[layer * data.kvHeads + Math.floor(head / share)];  // 0: none

  // Row `i` of the scaled scores: {value(j), error(j), all: whether keys after i are known}.
  async function scores(layer, head, i) {
    if (!packed.scores) {
      const bytes = await sumBytes(0), sum = new DataView(bytes.buffer).getFloat32(4 * ((layer * H + head) * n + i), true);
      const row = weights('head', layer, head).subarray(start(i), start(i + 1));
      const least = (0.5 / peak) ** power;
      return {
        all: false,
        value: (j) => sum + Math.log(Math.max(row[j], least)),
        error: (j) => row[j] === 0 ? Infinity : Math.log((row[j] + weightError(row[j])) / row[j]),
        below: (j) => row[j] === 0,
      };
    }
    const bytes = await scoreBytes(layer * H + head), view = new DataView(bytes.buffer);
    const least = view.getFloat32(8 * i, true), step = view.getFloat32(8 * i + 4, true);
    const found = codes(bytes, 8 * n, n * n, data.scoreBits > 8);
    return {all: true, value: (j) => least + step * found[i * n + j], error: () => step / 2, below: () => false};
  }

  function rows(bytes, at, width, bitsEach) {
    const wide = bitsEach > 8, top = 2 ** (bitsEach - 1) - 1;
    const found = codes(bytes, at + 2 * n, n * width, wide);
    const bits = new Uint32Array(1), real = new Float32Array(bits.buffer), scale = new Float32Array(n);
    for (let t = 0; t < n; ++t) {
      bits[0] = (bytes[at + 2 * t] | bytes[at + 2 * t + 1] << 8) << 16;
      scale[t] = real[0];
    }
    return {
      width, bytes: 2 * n + n * width * (wide ? 2 : 1),
      value: (t, c) => scale[t] * (found[t * width + c] - top) / top,
      error: (t) => scale[t] / top / 2,
      scale,
    };
  }

  // {q, k, v, z}, each with value(t, component) and error(t); null if this file has none for that head.
  const vectors = (layer, head) => head + H * layer === last.at ? last.vectors : (last = {at: head + H * layer, vectors: unpacked(layer, head)}).vectors;
  let last = {};
  async function unpacked(layer, head) {
    const each = vectorBits(layer, head);
    if (!each) return null;
    const group = Math.floor(head / share), bytes = await groupBytes(layer * data.kvHeads + group);
    const k = rows(bytes, 0, data.dk, each), v = rows(bytes, k.bytes, data.dv, each);
    let at = k.bytes + v.bytes;
    for (let h = group * share;; ++h) {
      const q = rows(bytes, at, data.dk, each), z = rows(bytes, at + q.bytes, data.dv, each);
      if (h === head) return {q, k, v, z};
      at += q.bytes + z.bytes;
    }
  }

  // --- token labels ---

  const visible = (text) => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/ /g, '·');
  const labels = data.labels.map((label, i) => visible(label === 0 ? data.texts[i] : label) || '∅');
  const word = (id) => visible(data.words[id] ?? '#' + id) || '∅';

  // --- head behavior ---

  const kinds = [
    {name: 'Previous token', brief: 'prev.', tag: 'previous', does: 'attends to the previous token', help: 'Attends to the previous token: just below the diagonal.'},
    {name: 'Induction', brief: 'induct.', tag: 'induction', does: 'attends to the token after an earlier occurrence of the same token', help: 'Attends to the token after an earlier occurrence.'},
    {name: 'Duplicate token', brief: 'dupl.', tag: 'duplicate', does: 'attends to an earlier occurrence of the same token', help: 'Attends to an earlier occurrence of the same token.'},
    {name: 'First token', brief: 'first', tag: 'first', does: 'attends to the first token', help: 'Attends to the first token: a line at the left edge.'},
  ];
  // [kinds][L * H] mean weights: on repeated random tokens (if stored), and on this text.
  const order = [0, 3, 2, 1];  // the order of kinds in the file
  const ranked = (scores) => scores.length ? order.map((kind) => scores[kind]) : null;
  const behaviours = {random: ranked(data.headScores), text: ranked(data.textScores)};

  Object.assign(qkv, {data, n, L, H, labels, word, start, weights, largest, reads, weightError, scores, vectors, vectorBits, load, kinds,
    behaviours, hasRollout: Boolean(packed.rollout)});

  // --- number formatting ---

  const places = (size, error) => {  // decimals
    const exact = error > 0 ? Math.floor(-Math.log10(error)) : 9;
    return Math.max(0, Math.min(size >= 1 ? 3 : size >= 0.001 ? 4 : size > 0 ? 3 - Math.floor(Math.log10(size)) : 4, exact));
  };
  qkv.figures = (value, error = 0) => {  // as many digits as are significant
    if (!Number.isFinite(value)) return value < 0 ? '−∞' : '∞';
    if (value === 0) return '0';
    const size = Math.abs(value), digits = places(size, error);
    const text = size < 0.001 && digits > 4 ? value.toExponential(1) : value.toFixed(digits);
    return +text === 0 ? '0' : text.replace('-', '−');
  };
  // A share from 0 to 1; values near 0 and 1 are not rounded to them.
  qkv.share = (value, error = 0) => {
    if (value === 0 || value === 1) return String(value);
    const text = qkv.figures(value, error), unit = 10 ** -places(value, error);
    if (text === '0') return '<' + unit;
    return value < 1 && +text >= 1 ? '>' + (1 - unit).toFixed(Math.max(0, -Math.log10(unit))) : text;
  };
  qkv.percent = (value) => value === 0 || value === 1 ? 100 * value + ' %' : value < 0.0005 ? '<0.1 %' : value < 1 && value >= 0.9995 ? '>99.9 %' :
    (100 * value).toFixed(1) + ' %';
  // The weight of key j for query i as text; codes at both ends cannot be distinguished from 0 and 1.
  const nothing = '<' + qkv.figures((0.5 / peak) ** power), all = 10 ** Math.max(2, places(0.5, mostError));
  qkv.nearlyAll = '≥' + Math.floor((1 - mostError) * all) / all;
  qkv.weight = (weights, i, j) => {
    const w = j > i ? 0 : weights[start(i) + j];
    if (j > i || i === 0) return String(w);
    if (w === 0) return nothing;
    return w < 1 ? qkv.share(w, weightError(w)) : qkv.nearlyAll;
  };
  // The error of a number, by its magnitude.
  qkv.plusMinus = (error) => '±' + (error >= 0.1 ? error.toFixed(1) : error.toPrecision(1).replace('e-', 'e−'));
})();
