// SPDX-License-Identifier: Apache-2.0
'use strict';

// One query of one head in the order of computation: q, keys, scores, scale, mask, softmax, weighted sum of the values.
// All numbers come from the forward pass.
(() => {
  const {data, n, H, labels, state, views, find, start, figures, plusMinus} = qkv;
  const row = 20, root = Math.sqrt(data.dk);
  const plot = find('steps-rows'), strips = plot.querySelectorAll('canvas'), surfaces = new Map();
  const heldHeads = Array.from({length: qkv.L * H}, (_, at) => [Math.floor(at / H), at % H]).filter(([l, h]) => qkv.vectorBits(l, h)).map((at) => at.join('.'));
  let shown = null, asked = 0, wide = 0, seen = 420;  // width of the view, height of the visible rows

  // The columns of the key table, as wide as possible. The four numbers of a key are one line of text, since a browser
  // lays out a line as fast as a single number.
  const figure = {size: 11.5, mono: true}, letters = {score: 15, scaled: 17, masked: 15, weight: 25};
  function columns(width) {
    const letter = qkv.textWidth('0', figure), numbers = 72 * letter + 14, strip = Math.max(70, Math.min(320, (width - 132 - numbers + 14) / 2)), list = {};
    let x = 0;
    for (const [name, wide] of [['key', 132], ['k', strip], ['score', 15 * letter + 14], ['scaled', 17 * letter], ['masked', 15 * letter],
                                ['weight', 25 * letter], ['v', strip]]) {
      list[name] = {x, w: wide - 14};
      x += wide;
    }
    return {...list, width: x - 14};
  }

  // --- a vector as bars and numbers, one text per line of 16: fast to lay out ---

  const perLine = 16, digits = {size: 11, mono: true};
  const vectorHeight = (count) => 74 + 15 * Math.ceil(count / perLine);
  function drawVector(surface, y, width, count, value, error, name) {
    const {colours} = qkv, letter = qkv.textWidth('0', digits), letters = Math.min(11, Math.floor((width - 40) / perLine / letter));
    const few = count <= perLine, wide = letters * letter, middle = y + 33;
    const each = few ? wide : width / count, x = few ? 34 : 0;  // few bars are placed above their numbers
    let most = 0;
    for (let c = 0; c < count; ++c) most = Math.max(most, Math.abs(value(c)));
    surface.path([[x, middle], [x + each * count, middle]], {stroke: colours.edge});
    const above = [], below = [];
    for (let c = 0; c < count; ++c) {
      const tall = most ? Math.abs(value(c)) / most * 30 : 0, up = value(c) > 0;
      (up ? above : below).push([x + c * each + 0.5 + (few ? each * 0.3 : 0), up ? middle - tall : middle, Math.max(1, (few ? 0.62 : 1) * each - 1.5), tall]);
    }
    surface.rects(above, {fill: colours.positive});
    surface.rects(below, {fill: colours.negative});
    for (let first = 0; first < count; first += perLine) {
      const at = y + 84 + 15 * first / perLine;
      let line = '';
      for (let c = first; c < Math.min(count, first + perLine); ++c) line += figures(value(c), error).padStart(letters);
      surface.text(26, at, String(first), {size: 10, fill: colours.soft, align: 'right'});
      surface.text(34 - letter, at, line, {...digits, fill: colours.ink, name: `${name}-${first}`});
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
        title(surface, y + 14, '1', `Query of ${quoted(shown.i)}`,
              `q = x · W_Q${data.rotary ? ', with RoPE' : ''}`, `Q [${n}, ${data.dk}]  row ${shown.i}: q [${data.dk}]`, width);
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
        put('key', '', 'token', 'key', `j = 0 … ${n - 1}`);
        const held = (width_) => shown.vectors ? `[${n}, ${width_}]` : 'not stored';
        put('k', '2', 'keys', 'K = x · W_K', held(data.dk));
        put('score', '3', 'scores', 'q · kᵀ', `[1, ${n}]`);
        put('scaled', '4', 'scaled', `÷ √${data.dk} = ${+root.toFixed(3)}`, `[1, ${n}]`);
        put('masked', '5', 'masked', 'j > i: −∞', `[1, ${n}]`);
        put('weight', '6', 'softmax', 'exp / sum', `[1, ${n}], sum 1`);
        put('v', '7', 'values', 'V = x · W_V', held(data.dv));
        surface.path([[0, y + 62], [width, y + 62]], {stroke: colours.edge});
      },
    },
    rows: {height: () => n * row + 4, draw: drawRows},
    sum: {
      height: () => 70 + (shown.vectors ? vectorHeight(data.dv) : 0),
      draw(surface, y, width) {
        title(surface, y + 14, '8', 'Weighted sum of the values: the head’s output', 'z = Σ weight · v', `[1, ${n}] · [${n}, ${data.dv}] = z [${data.dv}]`, width);
        let at = y + 40;
        if (shown.vectors) {
          const {z} = shown.vectors;
          drawVector(surface, at, width, data.dv, (c) => z.value(shown.i, c), z.error(shown.i), 'z');
          at += vectorHeight(data.dv);
        }
        surface.text(0, at + 18, `Then the ${H} heads are concatenated, [${n}, ${H} × ${data.dv} = ${H * data.dv}], multiplied by W_O and added to the residual stream.`,
                     {size: 12, fill: qkv.colours.soft});
      },
    },
  };

  // All rows of k (or v) as one image: one line per key, one pixel per component.
  function picture(rows, keys, made = document.createElement('canvas')) {
    made.width = rows.width;
    made.height = n;
    const context = made.getContext('2d'), image = context.createImageData(rows.width, n), words = qkv.colours.signedWords;
    const pixels = new Uint32Array(image.data.buffer);
    let most = 1e-30, at = 0;
    for (const scale of rows.scale) most = Math.max(most, scale);
    for (const t of keys) for (let c = 0; c < rows.width; ++c) pixels[at++] = words[qkv.signedAt(rows.value(t, c) / most)];
    context.putImageData(image, 0, 0);
    return made;
  }

  // The keys: token, score and weight. The bars and rules of all rows are a few paths.
  function drawLines(surface, y, width, lines) {
    const {colours} = qkv, {i, scores, weights, keys, most} = shown, c = columns(width), at = (line) => y + line * row;
    const bars = {negative: [], positive: [], 'negative ahead': [], 'positive ahead': [], weight: []}, told = [];
    for (const line of lines) {
      const j = keys[line], ahead = j > i, known = !ahead || scores.all, top = at(line) + 5, tall = row - 9;
      const value = known ? scores.value(j) : 0, error = known ? scores.error(j) : 0, less = known && !ahead && scores.below(j) ? '<' : '';
      const w = ahead ? 0 : weights[start(i) + j], long = Math.min(24, Math.abs(value) / most * 24);
      const said = (times) => known ? less + figures(value * times, Number.isFinite(error) ? error * times : 0.5) : 'not\u00a0held';
      for (const {x} of [c.score, c.scaled]) {
        bars[(value < 0 ? 'negative' : 'positive') + (ahead ? ' ahead' : '')].push([value < 0 ? x + 26 - long : x + 26, top, long, tall]);
      }
      bars.weight.push([c.weight.x, top, (c.weight.w - 58) * w, tall]);
      told.push({line, j, score: said(root), scaled: said(1), masked: ahead ? '−∞' : said(1), weight: qkv.weight(weights, i, j)});
    }
    surface.rects(lines.filter((line) => line).map((line) => [0, at(line), width, 1]), {fill: colours.faint});
    surface.rects(lines.flatMap((line) => [c.score, c.scaled].map(({x}) => [x + 25.5, at(line) + 3, 1, row - 5])), {fill: colours.edge});
    for (const [name, list] of Object.entries(bars)) {
      surface.rects(list, {fill: colours[name.split(' ')[0]] || colours.accent, opacity: name.endsWith('ahead') ? 0.45 : 1});
    }
    for (const {line, j, ...numbers} of told) {
      const base = at(line) + 14.5, fill = j > i ? colours.soft : colours.ink;
      surface.text(24, base, String(j), {size: 10.5, fill: colours.soft, align: 'right'});
      surface.text(32, base, labels[j], {size: 12, fill, weight: j === i ? 650 : 400, max: c.key.w - 34});
      surface.text(c.score.x, base, Object.entries(letters).map(([column, wide]) => numbers[column].padStart(wide)).join(''), {...figure, fill, name: 'row-' + j});
    }
  }

  function drawRows(surface, y, width) {
    const c = columns(width), {vectors, keys} = shown;
    for (const name of vectors ? ['k', 'v'] : []) surface.image(picture(vectors[name], keys), c[name].x, y + 1, c[name].w, n * row);
    drawLines(surface, y, width, [...keys.keys()]);
    surface.path([[0, y + n * row + 0.5], [width, y + n * row + 0.5]], {stroke: qkv.colours.edge});
  }

  // On the page only visible rows are drawn, in slots that are reused on scrolling; keys and values are two images
  // below.
  function placeRows(top = plot.scrollTop) {
    if (!shown) return;
    const {width, keys, vectors, layer, head} = shown, c = columns(width), most = Math.min(n, Math.ceil(seen / row) + 5);
    const first = qkv.clamp(Math.floor(top / row) - 2, n - most), at = `${first} ${most}`;
    if (shown.at === at) return;
    shown.at = at;
    svgOf('steps-rows', width, n * row, (surface) => {
      drawLines(surface, 0, width, Array.from({length: most}, (_, place) => first + (place - first % most + most) % most));
    });
    const strip = `${layer} ${head} ${width} ${state.theme} ${state.sorted ? keys : ''}`;
    if (plot.dataset.strips === strip) return;
    plot.dataset.strips = strip;
    ['k', 'v'].forEach((name, which) => {
      const canvas = strips[which];
      canvas.hidden = !vectors;
      if (vectors) picture(vectors[name], keys, canvas);
      canvas.style.cssText = `left:${c[name].x}px;width:${c[name].w}px;height:${n * row}px`;
    });
  }
  plot.addEventListener('scroll', () => placeRows(), {passive: true});

  function svgOf(id, width, height, draw) {
    let surface = surfaces.get(id);
    if (!surface) {
      surfaces.set(id, surface = new qkv.SvgSurface(width, height));
      find(id).append(surface.root);
    }
    surface.again(width, height, draw);
  }

  function place(id, part, width) {
    svgOf(id, width, part.height(), (surface) => part.draw(surface, 0, width));
  }

  // The components of one key and its value, below the table.
  function drawKey() {
    const box = find('steps-key'), says = find('steps-says');
    if (!shown) return;
    const j = state.key ?? shown.order[0], w = j > shown.i ? 0 : shown.weights[start(shown.i) + j];
    const s = j <= shown.i || shown.scores.all ? shown.scores.value(j) : NaN;
    says.replaceChildren('key ', qkv.named(j), Number.isFinite(s) ? `: score ${figures(s * root, shown.scores.error(j) * root)}, scaled ${figures(s, shown.scores.error(j))} (${plusMinus(Math.min(99, shown.scores.error(j)))})` : '',
                         j > shown.i ? ', masked (future key)' : `, weight ${qkv.weight(shown.weights, shown.i, j)} (${plusMinus(qkv.weightError(w))}). Click, or use up and down in the table, to select another key.`);
    box.hidden = !shown.vectors;
    if (!shown.vectors) return;
    const {width} = shown, {k, v} = shown.vectors, tall = 34 + vectorHeight(data.dk), {colours} = qkv;
    svgOf('steps-key', width, tall + 34 + vectorHeight(data.dv) + 10, (surface) => {
      surface.text(0, 13, `k of ${quoted(j)}  [${data.dk}]`, {size: 12, mono: true, fill: colours.soft});
      drawVector(surface, 30, width, data.dk, (c) => k.value(j, c), k.error(j), 'k');
      surface.text(0, tall + 13, `v of ${quoted(j)}  [${data.dv}]`, {size: 12, mono: true, fill: colours.soft});
      drawVector(surface, tall + 30, width, data.dv, (c) => v.value(j, c), v.error(j), 'v');
    });
  }

  // The first visible row: keys just above the query's own row, or the top key if it is far away.
  let placed = '';
  function topRow(i) {
    const rows = Math.round(seen / row), most = shown.order[0], own = qkv.clamp(i + 2 - rows, Math.max(0, n - rows));
    if (state.sorted) return 0;
    return most >= own ? own : qkv.clamp(most - Math.floor(rows / 2), Math.max(0, n - rows));
  }

  async function draw() {
    const mine = ++asked, {layer, head, query: i} = state;
    const [scores, vectors] = await Promise.all([qkv.scores(layer, head, i), qkv.vectors(layer, head)]);
    if (mine !== asked || state.view !== 'steps') return;
    const weights = qkv.weights('head', layer, head), all = Array.from({length: n}, (_, j) => j);
    const order = all.slice().sort((a, b) => (b <= i ? weights[start(i) + b] : -1) - (a <= i ? weights[start(i) + a] : -1) || a - b);
    let most = 1e-9;
    for (let j = 0; j < n; ++j) if (j <= i || scores.all) most = Math.max(most, Math.abs(scores.value(j)));
    const layout = !wide;
    if (layout) {  // on a narrow screen the steps scroll horizontally
      const outer = find('steps-wide');
      plot.style.width = '';
      wide = Math.max(900, plot.clientWidth);
      plot.style.width = (outer.clientWidth < 900 ? wide + plot.offsetWidth - plot.clientWidth + 'px' : '');
      find('steps-says').style.maxWidth = outer.clientWidth + 'px';
    }
    const choice = `${layer} ${head} ${i} ${state.sorted}`, width = wide;
    shown = {i, layer, head, scores, vectors, weights, order, keys: state.sorted ? order : all, most, width};
    find('steps-title').textContent = `Layer ${layer}, head ${head}: query ${quoted(i)} (${i}), step by step`;
    const missing = find('steps-missing');
    missing.hidden = Boolean(vectors);
    if (!vectors) {
      missing.textContent = `Only ${heldHeads.length} of ${qkv.L * H} heads have q, k, v and z in this file; layer ${layer} head ${head} has only ` +
        'scores and weights. ' + (heldHeads.length ? `Stored vectors (layer.head): ${heldHeads.join(', ')}. ` : '') +
        `To include this head: qkv inspect … --html OUT.html --layer ${layer} --head ${head}. With a shorter text (--tokens) all heads fit.`;
    }
    place('steps-query', parts.query, width);
    place('steps-head', parts.head, width);
    place('steps-sum', parts.sum, width);
    if (layout) {  // as many whole rows as fit in the window, with the line below them
      const room = Math.floor((innerHeight - plot.getBoundingClientRect().top - scrollY - 36) / row);
      seen = Math.min(n, Math.max(8, Math.min(21, room))) * row;
      plot.style.maxHeight = seen + 1 + 'px';
    }
    const to = choice !== placed, top = to ? topRow(i) * row : plot.scrollTop;
    placed = choice;
    placeRows(top);
    drawKey();
    if (to) plot.scrollTop = top;
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
    if (line * row < plot.scrollTop || (line + 1) * row > plot.scrollTop + plot.clientHeight) plot.scrollTop = (line - Math.floor(seen / row / 2)) * row;
  });

  views.steps = {
    update(now) {
      if (now.has('view') || now.has('size')) wide = 0;
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
