// SPDX-License-Identifier: Apache-2.0
'use strict';

// One query of one head, step by step, in the order in which attention is computed: q, the keys, their products, the
// scale, the mask, softmax, the weighted sum of the values. Every number is the pass's own.
(() => {
  const {data, n, H, labels, state, views, find, start, figures, plusMinus} = qkv;
  const row = 20, root = Math.sqrt(data.dk);
  const plot = find('steps-rows');
  let shown = null, asked = 0;

  // The columns of the table of keys, as wide as there is room for.
  function columns(width) {
    const strip = Math.max(70, Math.min(320, (width - 610) / 2)), list = {};
    let x = 0;
    for (const [name, wide] of [['key', 132], ['k', strip], ['score', 116], ['scaled', 116], ['masked', 90], ['weight', 170], ['v', strip]]) {
      list[name] = {x, w: wide - 14};
      x += wide;
    }
    return {...list, width: x - 14};
  }

  // --- a vector as bars and numbers ---

  const perLine = 16;
  const vectorHeight = (count) => 74 + 15 * Math.ceil(count / perLine);
  function drawVector(surface, y, width, count, value, error, name) {
    const {colours} = qkv, wide = Math.min(70, (width - 40) / perLine), few = count <= perLine, middle = y + 33;
    const each = few ? wide : width / count, x = few ? 34 : 0;  // few bars stand above their numbers
    let most = 0;
    for (let c = 0; c < count; ++c) most = Math.max(most, Math.abs(value(c)));
    surface.path([[x, middle], [x + each * count, middle]], {stroke: colours.edge});
    for (let c = 0; c < count; ++c) {
      const tall = most ? Math.abs(value(c)) / most * 30 : 0, up = value(c) > 0;
      surface.rect(x + c * each + 0.5 + (few ? each * 0.3 : 0), up ? middle - tall : middle, Math.max(1, (few ? 0.62 : 1) * each - 1.5), tall, {fill: up ? colours.positive : colours.negative});
    }
    for (let c = 0; c < count; ++c) {
      const line = Math.floor(c / perLine), at = y + 84 + 15 * line;
      if (c % perLine === 0) surface.text(26, at, String(c), {size: 10, fill: colours.soft, align: 'right'});
      surface.text(34 + (c % perLine + 1) * wide - 6, at, figures(value(c), error), {size: 11, mono: true, align: 'right',
        fill: colours.ink, name: `${name}-${c}`});
    }
    surface.text(width, y - 6, plusMinus(error) + ' each', {size: 11, fill: colours.soft, align: 'right'});
  }

  function title(surface, y, number, name, formula, shapes, width) {
    const {colours} = qkv;
    surface.rect(0, y - 13, 20, 18, {fill: colours.accent, radius: 5});
    surface.text(10, y, number, {size: 12, weight: 650, fill: colours.page, align: 'center'});
    surface.text(28, y, name, {size: 14, weight: 650, fill: colours.ink});
    surface.text(28, y + 18, formula, {size: 12, mono: true, fill: colours.ink});
    surface.text(width, y, shapes, {size: 12, mono: true, fill: colours.soft, align: 'right'});
  }

  const quoted = (i) => `“${labels[i]}”`;
  const parts = {
    query: {
      height: () => 40 + (shown.vectors ? vectorHeight(data.dk) : 0),
      draw(surface, y, width) {
        title(surface, y + 14, '1', `The query of ${quoted(shown.i)}: what does it look for?`,
              `q = x · W_Q${data.rotary ? ', turned by its position' : ''}`, `Q [${n}, ${data.dk}]  row ${shown.i}: q [${data.dk}]`, width);
        if (!shown.vectors) return;
        const {q} = shown.vectors;
        drawVector(surface, y + 40, width, data.dk, (c) => q.value(shown.i, c), q.error(shown.i), 'q');
      },
    },
    head: {
      height: () => 66,
      draw(surface, y, width) {
        const {colours} = qkv, c = columns(width);
        const put = (column, number, name, formula, shape) => {
          const {x, w} = c[column];
          if (number) {
            surface.rect(x, y + 4, 17, 16, {fill: colours.accent, radius: 4});
            surface.text(x + 8.5, y + 16, number, {size: 11, weight: 650, fill: colours.page, align: 'center'});
          }
          surface.text(x + (number ? 23 : 0), y + 16, name, {size: 13, weight: 650, fill: colours.ink, max: w + 10});
          surface.text(x, y + 35, formula, {size: 11, mono: true, fill: colours.ink, max: w + 12});
          surface.text(x, y + 52, shape, {size: 11, mono: true, fill: colours.soft, max: w + 12});
        };
        put('key', '', 'token', 'read by q?', `j = 0 … ${n - 1}`);
        put('k', '2', 'keys', 'K = x · W_K', `[${n}, ${data.dk}]`);
        put('score', '3', 'scores', 'q · kᵀ', `[1, ${n}]`);
        put('scaled', '4', 'scaled', `÷ √${data.dk} = ${+root.toFixed(3)}`, `[1, ${n}]`);
        put('masked', '5', 'masked', 'j > i: −∞', `[1, ${n}]`);
        put('weight', '6', 'softmax', 'exp / sum', `[1, ${n}], sum 1`);
        put('v', '7', 'values', 'V = x · W_V', `[${n}, ${data.dv}]`);
        surface.path([[0, y + 62], [width, y + 62]], {stroke: colours.edge});
      },
    },
    rows: {height: () => n * row + 4, draw: drawRows},
    sum: {
      height: () => 70 + (shown.vectors ? vectorHeight(data.dv) : 0),
      draw(surface, y, width) {
        title(surface, y + 14, '8', 'The weighted sum of the values: what the head hands on', 'z = Σ weight · v', `[1, ${n}] · [${n}, ${data.dv}] = z [${data.dv}]`, width);
        let at = y + 40;
        if (shown.vectors) {
          const {z} = shown.vectors;
          drawVector(surface, at, width, data.dv, (c) => z.value(shown.i, c), z.error(shown.i), 'z');
          at += vectorHeight(data.dv);
        }
        surface.text(0, at + 18, `Then the ${H} heads are laid side by side, [${n}, ${H} × ${data.dv} = ${H * data.dv}], and W_O brings them back to the stream, to which they are added.`,
                     {size: 12, fill: qkv.colours.soft});
      },
    },
  };

  // All rows of k (or v) as one picture: a line a key, a pixel a component.
  function picture(rows, keys) {
    const made = document.createElement('canvas');
    made.width = rows.width;
    made.height = n;
    const context = made.getContext('2d'), image = context.createImageData(rows.width, n);
    let most = 1e-30;
    for (const scale of rows.scale) most = Math.max(most, scale);
    keys.forEach((t, line) => {
      for (let c = 0; c < rows.width; ++c) {
        image.data.set([...qkv.signedRgb(qkv.colours, rows.value(t, c) / most), 255], 4 * (line * rows.width + c));
      }
    });
    context.putImageData(image, 0, 0);
    return made;
  }

  function drawRows(surface, y, width) {
    const {colours} = qkv, c = columns(width), {i, scores, weights, vectors, keys} = shown;
    if (vectors) {
      surface.image(picture(vectors.k, keys), c.k.x, y + 1, c.k.w, n * row);
      surface.image(picture(vectors.v, keys), c.v.x, y + 1, c.v.w, n * row);
    }
    let most = 1e-9;
    for (let j = 0; j < n; ++j) if (j <= i || scores.all) most = Math.max(most, Math.abs(scores.value(j)));
    keys.forEach((j, line) => {
      const top = y + line * row, base = top + 14.5, ahead = j > i, known = !ahead || scores.all, small = {size: 12, fill: ahead ? colours.soft : colours.ink};
      const number = {...small, size: 11.5, mono: true, align: 'right'};
      if (line) surface.path([[0, top + 0.5], [width, top + 0.5]], {stroke: colours.faint});
      surface.text(24, base, String(j), {size: 10.5, fill: colours.soft, align: 'right'});
      surface.text(32, base, labels[j], {...small, weight: j === i ? 650 : 400, max: c.key.w - 34});
      const signed = (column, value, error, name) => {
        const {x, w} = c[column], middle = x + 26, tall = Math.min(24, Math.abs(value) / (most * (column === 'score' ? root : 1)) * 24);
        if (!known) return surface.text(x + w, base, 'not held', {...number, fill: colours.soft});
        surface.path([[middle, top + 3], [middle, top + row - 2]], {stroke: colours.edge});
        surface.rect(value < 0 ? middle - tall : middle, top + 5, tall, row - 9, {fill: value < 0 ? colours.negative : colours.positive, opacity: ahead ? 0.45 : 1});
        const less = scores.below(j) && known && !ahead ? '< ' : '';
        surface.text(x + w, base, less + figures(value, Number.isFinite(error) ? error : 0.5), {...number, name: `${name}-${j}`});
      };
      const value = known ? scores.value(j) : 0, error = known ? scores.error(j) : 0;
      signed('score', value * root, error * root, 'score');
      signed('scaled', value, error, 'scaled');
      surface.text(c.masked.x + c.masked.w, base, ahead ? '−∞' : (scores.below(j) ? '< ' : '') + figures(value, Number.isFinite(error) ? error : 0.5), {...number, name: 'masked-' + j});
      const w = ahead ? 0 : weights[start(i) + j], {x, w: wide} = c.weight;
      surface.rect(x, top + 5, Math.max(0, (wide - 58) * w), row - 9, {fill: colours.accent, radius: 2});
      surface.text(x + wide, base, ahead ? '0' : figures(w, qkv.weightError(w)), {...number, name: 'weight-' + j, weight: w >= 0.1 ? 650 : 400});
    });
    surface.path([[0, y + n * row + 0.5], [width, y + n * row + 0.5]], {stroke: colours.edge});
  }

  function place(id, part, width) {
    const surface = new qkv.SvgSurface(width, part.height());
    part.draw(surface, 0, width);
    find(id).replaceChildren(surface.root);
  }

  // The numbers of one key and its value, below the table.
  function drawKey() {
    const box = find('steps-key'), says = find('steps-says');
    if (!shown) return;
    const j = state.key ?? shown.order[0], w = j > shown.i ? 0 : shown.weights[start(shown.i) + j];
    const s = j <= shown.i || shown.scores.all ? shown.scores.value(j) : NaN;
    says.replaceChildren('key ', qkv.named(j), Number.isFinite(s) ? `: score ${figures(s * root, shown.scores.error(j) * root)}, scaled ${figures(s, shown.scores.error(j))} (${plusMinus(Math.min(99, shown.scores.error(j)))})` : '',
                         j > shown.i ? ', masked: it lies ahead' : `, weight ${figures(w, qkv.weightError(w))} (${plusMinus(qkv.weightError(w))}). A click, or up and down in the table, chooses another key.`);
    if (!shown.vectors) return box.replaceChildren();
    const width = box.clientWidth, {k, v} = shown.vectors, tall = 34 + vectorHeight(data.dk), {colours} = qkv;
    const surface = new qkv.SvgSurface(width, tall + 34 + vectorHeight(data.dv) + 10);
    surface.text(0, 13, `k of ${quoted(j)}  [${data.dk}]`, {size: 12, mono: true, fill: colours.soft});
    drawVector(surface, 30, width, data.dk, (c) => k.value(j, c), k.error(j), 'k');
    surface.text(0, tall + 13, `v of ${quoted(j)}  [${data.dv}]`, {size: 12, mono: true, fill: colours.soft});
    drawVector(surface, tall + 30, width, data.dv, (c) => v.value(j, c), v.error(j), 'v');
    box.replaceChildren(surface.root);
  }

  async function draw() {
    const mine = ++asked, {layer, head, query: i} = state;
    const [scores, vectors] = await Promise.all([qkv.scores(layer, head, i), qkv.vectors(layer, head)]);
    if (mine !== asked || state.view !== 'steps') return;
    const weights = qkv.weights('head', layer, head), all = Array.from({length: n}, (_, j) => j);
    const order = all.slice().sort((a, b) => (b <= i ? weights[start(i) + b] : -1) - (a <= i ? weights[start(i) + a] : -1) || a - b);
    shown = {i, layer, head, scores, vectors, weights, order, keys: state.sorted ? order : all};
    const moved = plot.dataset.drawn !== `${layer} ${head} ${i}`, width = Math.max(760, find('steps-query').clientWidth);
    find('steps-title').textContent = `Layer ${layer}, head ${head}: how ${quoted(i)} (${i}) reads, step by step`;
    const missing = find('steps-missing');
    missing.hidden = Boolean(vectors);
    missing.textContent = `This file holds q, k, v and z of the heads that fit into it, and not of this one; its scores and weights are here. Made with --layer ${layer} --head ${head} it holds this one; a shorter text leaves room for all.`;
    place('steps-query', parts.query, width);
    place('steps-head', parts.head, width);
    place('steps-rows', parts.rows, width);
    place('steps-sum', parts.sum, width);
    const line = shown.keys.indexOf(i);  // the query's own row in sight, with what it reads above
    if (!state.sorted && moved) plot.scrollTop = Math.max(0, (line + 2) * row - plot.clientHeight);
    drawKey();
    plot.dataset.drawn = `${layer} ${head} ${i}`;
  }

  plot.addEventListener('click', (event) => {
    const line = Math.floor((event.clientY - plot.getBoundingClientRect().top + plot.scrollTop) / row);
    if (shown && line >= 0 && line < n) qkv.change({key: shown.keys[line]});
  });
  plot.addEventListener('keydown', (event) => {
    const by = {ArrowUp: -1, ArrowDown: 1, PageUp: -15, PageDown: 15, Home: -n, End: n}[event.key];
    if (!by || !shown) return;
    event.preventDefault();
    const line = qkv.clamp(shown.keys.indexOf(state.key ?? shown.order[0]) + by, n - 1);
    qkv.change({key: shown.keys[line]});
    if (line * row < plot.scrollTop || (line + 1) * row > plot.scrollTop + plot.clientHeight) plot.scrollTop = line * row - plot.clientHeight / 2;
  });

  views.steps = {
    update(now) {
      if (['view', 'size', 'theme', 'layer', 'head', 'query', 'sorted'].some((name) => now.has(name))) draw();
      else if (now.has('key')) drawKey();
    },
    name: () => `layer ${state.layer} head ${state.head} token ${state.query} steps`,
    figure: () => {
      const width = 1180, list = [parts.query, parts.head, parts.rows, parts.sum];
      return {width, height: list.reduce((sum, part) => sum + part.height() + 6, 0), draw(surface) {
        let y = 0;
        for (const part of list) {
          part.draw(surface, y, width);
          y += part.height() + 6;
        }
      }};
    },
    csv() {
      const {i, scores, weights, vectors} = shown, names = (letter, count) => Array.from({length: count}, (_, c) => letter + c);
      const rows = [['row', 'token', 'score', 'scaled', 'masked', 'weight', ...(vectors ? [...names('k', data.dk), ...names('v', data.dv)] : [])]];
      const line = (rows_, t, count) => Array.from({length: count}, (_, c) => rows_.value(t, c));
      for (let j = 0; j < n; ++j) {
        const known = j <= i || scores.all, s = known ? scores.value(j) : '';
        rows.push([j, labels[j], known ? s * root : '', s, j > i ? '-inf' : s, j > i ? 0 : weights[start(i) + j],
          ...(vectors ? [...line(vectors.k, j, data.dk), ...line(vectors.v, j, data.dv)] : [])]);
      }
      if (vectors) {
        rows.push([], ['q', labels[i], ...line(vectors.q, i, data.dk)], ['z', labels[i], ...line(vectors.z, i, data.dv)]);
      }
      return rows;
    },
  };
})();
