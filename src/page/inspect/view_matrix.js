// SPDX-License-Identifier: Apache-2.0
'use strict';

// The weights of one head, a mean or the rollout as a matrix: rows are queries, columns are keys.
(() => {
  const {n, labels, state, views, find, start} = qkv;
  const plot = find('matrix-plot'), [base, over] = plot.querySelectorAll('canvas');
  const right = 8, below = 6;
  const view = find('view-matrix'), alone = matchMedia('(max-width: 980px)');
  let left = 104, above = 72;  // space for row and column labels
  let picture = null, side = 0, zoom = 1, x0 = 0, y0 = 0, moving = null;  // x0, y0: top left cell

  const span = () => n / zoom, cell = () => side / span();

  // Full labels, up to about 26 letters.
  function measureNames() {
    const longest = Math.max(...labels.map((label, i) => qkv.textWidth(`${i} ${label}`, {size: 11})));
    left = Math.ceil(Math.min(alone.matches ? 104 : 170, Math.max(60, longest + 14)));
    above = Math.ceil(Math.min(alone.matches ? 84 : 130, Math.max(60, longest + 14)));
  }

  function layout() {
    measureNames();
    const padding = 34, room = view.clientWidth - padding - (alone.matches ? 0 : 314);
    const low = innerHeight - plot.getBoundingClientRect().top - scrollY - above - below - 10;  // fits in the window
    side = Math.max(160, Math.min(room - left - right, 720, alone.matches ? 720 : Math.max(low, 240)));
    view.style.setProperty('--matrix', Math.min(room, Math.max(586, left + side + right)) + padding + 'px');
    plot.style.height = base.style.height = over.style.height = above + side + below + 'px';
    base.style.width = over.style.width = left + side + right + 'px';
  }

  function settle() {
    x0 = qkv.clamp(x0, n - span());
    y0 = qkv.clamp(y0, n - span());
  }

  // The hovered or selected cell, or the largest weight of the row.
  function zoomTo(to, x = (state.cellAt || [0, state.key ?? qkv.largest(current(), state.query, 1)[0]])[1], y = state.cellAt ? state.cellAt[0] : state.query) {
    const next = Math.max(1, Math.min(to, Math.max(1, n / 6))), fx = (x + 0.5 - x0) / span(), fy = (y + 0.5 - y0) / span();
    zoom = next;
    x0 = x + 0.5 - Math.min(1, Math.max(0, fx)) * span();
    y0 = y + 0.5 - Math.min(1, Math.max(0, fy)) * span();
    settle();
    qkv.change({zoomed: `${zoom} ${x0} ${y0}`});
  }

  // Row and column labels: all if they fit, otherwise every n-th.
  function drawNames(surface, size, from, to, corner) {
    const {colours} = qkv, every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((e) => e * size >= 13) || 1000;
    for (let i = Math.ceil(from / every) * every; i < to; i += every) {
      const matched = state.matches.includes(i), o = {size: 11, fill: matched ? colours.mark : colours.soft, weight: matched ? 650 : 400};
      const label = every === 1 ? labels[i] : `${i} ${labels[i]}`;
      const y = above + (i + 0.5 - corner[1]) * size, x = left + (i + 0.5 - corner[0]) * size;
      if (y > above && y < above + side) surface.text(left - 8, y + 4, label, {...o, align: 'right', max: left - 12});
      if (x > left && x < left + side) surface.text(x + 4, above - 8, label, {...o, turned: true, max: above - 12});
    }
  }

  function drawMatrix(surface) {
    const {colours} = qkv, size = cell();
    surface.rect(left, above, side, side, {fill: colours.card});
    surface.clipped(left, above, side, side, () => {
      surface.image(picture, left - x0 * size, above - y0 * size, n * size, n * size);
      const first = Math.max(0, Math.floor(y0)), last = Math.min(n - 1, Math.ceil(y0 + span()));
      const masked = Array.from({length: Math.max(0, last - first + 1)}, (_, at) => first + at);  // future keys
      surface.rects(masked.map((i) => [left + (i + 1 - x0) * size, above + (i - y0) * size - 0.6, Math.max(0, n - i - 1) * size, size + 0.6]), {fill: colours.page});
      if (size >= 6 && span() <= 64) grid(surface, size);
    });
    surface.rect(left - 0.5, above - 0.5, side + 1, side + 1, {stroke: colours.edge});
    drawNames(surface, size, Math.floor(Math.min(x0, y0)), Math.min(n, Math.ceil(Math.max(x0, y0) + span())), [x0, y0]);
  }

  function grid(surface, size) {
    const {colours} = qkv;
    for (let i = Math.floor(Math.min(x0, y0)); i <= Math.min(n, Math.max(x0, y0) + span()); ++i) {  // only the part that is not masked
      const x = left + (i - x0) * size, y = above + (i - y0) * size, line = {stroke: colours.edge, opacity: 0.8, width: 0.7};
      surface.path([[left - x0 * size, y], [Math.min(x + size, left + (n - x0) * size), y]], line);
      surface.path([[x, Math.max(y - size, above - y0 * size)], [x, above + (n - y0) * size]], line);
    }
    if (size < 38) return;
    const weights = current(), {share} = qkv.tone(state.kind, state.layer, state.head);
    for (let i = Math.floor(y0); i < Math.min(n, y0 + span()); ++i) {
      for (let j = Math.floor(x0); j <= Math.min(i, x0 + span()); ++j) {
        const w = weights[start(i) + j];
        if (qkv.hidden(j)) continue;
        surface.text(left + (j + 0.5 - x0) * size, above + (i + 0.5 - y0) * size + 4, i === 0 ? '1' : brief(w, size > 52 ? 3 : 2),
                     {size: 11, align: 'center', fill: qkv.inkOn(colours, share(w))});
      }
    }
  }

  // As short as a cell requires; values near 0 and 1 are not rounded to them.
  const brief = (w, digits) => w < 0.5 * 10 ** -digits ? '<.' + '1'.padStart(digits, '0') : w >= 1 - 0.5 * 10 ** -digits ? '>.' + '9'.repeat(digits) : w.toFixed(digits);

  const current = () => qkv.weights(state.kind, state.layer, state.head);

  function drawOver() {
    const {colours} = qkv, surface = qkv.onCanvas(over, left + side + right, above + side + below), size = cell();
    const i = state.cellAt ? state.cellAt[0] : state.query, j = state.cellAt ? state.cellAt[1] : state.key;
    surface.clipped(left, above, side, side, () => {
      const y = above + (i - y0) * size, line = {stroke: colours.mark, width: 1.2};
      surface.rect(left, y, side, Math.max(size, 1.5), {...line, opacity: 0.85});
      if (j !== null) {
        const x = left + (j - x0) * size;
        surface.rect(x, above, Math.max(size, 1.5), side, {...line, opacity: 0.4});
        surface.rect(x, y, Math.max(size, 3), Math.max(size, 3), {...line, width: 2});
      }
    });
    says(i, j);
  }

  // The side panel: created once, updated for each cell.
  const element = (name, parent, properties = {}) => parent.appendChild(Object.assign(document.createElement(name), properties));
  const box = find('matrix-says'), big = element('p', box, {className: 'big', id: 'matrix-value'});
  const value = big.appendChild(document.createTextNode('')), small = element('small', big), list = element('dl', box), told = {};
  for (const name of ['query', 'key', 'rank', 'row entropy', 'weight on first token']) {
    told[name] = [element('dt', list, {textContent: name}), element('dd', list)];
  }
  element('h3', box, {textContent: 'Top keys of the row'});
  const bars = element('div', box, {className: 'bars'});
  const rows = Array.from({length: Math.min(10, n)}, () => {
    const div = element('div', bars);
    return {div, name: element('span', div), bar: element('i', div), number: element('span', div)};
  });
  const others = element('div', bars, {id: 'matrix-rest'}), othersName = element('span', others, {textContent: 'the rest'});
  const othersNumber = element('span', others);
  function put(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }
  function tell(name, text) {
    for (const part of told[name]) part.hidden = text === null;
    if (text !== null) put(told[name][1], text);
  }

  function says(i, j) {
    const weights = current(), from = start(i), weight = (key) => weights[from + key], shown = (key) => qkv.weight(weights, i, key);
    let entropy = 0, rank = 1;
    for (let key = 0; key <= i; ++key) {
      const w = weights[from + key];
      if (w > 0) entropy -= w * Math.log(w);
      if (j !== null && j <= i && (w > weight(j) || (w === weight(j) && key < j))) ++rank;
    }
    const ahead = j !== null && j > i, known = j !== null && !ahead;
    put(value, known ? shown(j) : ahead ? '0' : '');
    put(small, known ? ' ' + qkv.plusMinus(qkv.weightError(weight(j))) : ahead ? ' masked: future key' : 'hover over a cell');
    small.className = known ? 'error' : '';
    tell('query', `${i} ${labels[i]}`);
    tell('key', j === null ? null : `${j} ${labels[j]}`);
    tell('rank', known ? `${rank} of ${i + 1}` : null);
    tell('row entropy', entropy.toFixed(2) + ' nats');
    tell('weight on first token', shown(0));
    const {keys: most, rest} = qkv.reads(weights, i, rows.length, state.hideFirst ? 1 : 0);
    others.hidden = !rest;
    put(othersNumber, rest);
    rows.forEach(({div, name, bar, number}, at) => {
      const key = most[at];
      div.hidden = key === undefined;
      if (div.hidden) return;
      put(name, `${key} ${labels[key]}`);
      bar.style.setProperty('--share', (100 * weight(key)).toFixed(1) + '%');
      put(number, shown(key));
      div.className = key === j ? 'here' : '';
    });
  }

  const cellOf = (event) => {
    const box = plot.getBoundingClientRect(), j = x0 + (event.clientX - box.left - left) / cell(), i = y0 + (event.clientY - box.top - above) / cell();
    return i >= y0 && j >= x0 && i < y0 + span() && j < x0 + span() ? [Math.floor(i), Math.floor(j)] : null;
  };
  plot.addEventListener('pointermove', (event) => {
    if (moving && event.buttons) {
      x0 = moving.x0 - (event.clientX - moving.x) / cell();
      y0 = moving.y0 - (event.clientY - moving.y) / cell();
      settle();
      if (Math.hypot(event.clientX - moving.x, event.clientY - moving.y) > 4) moving.far = true;
      return qkv.change({zoomed: `${zoom} ${x0} ${y0}`});
    }
    const to = cellOf(event);
    if (String(to) !== String(state.cellAt)) qkv.change({cellAt: to, hover: to ? to[0] : null});
  });
  plot.addEventListener('pointerleave', () => qkv.change({cellAt: null, hover: null}));
  plot.addEventListener('pointerdown', (event) => {
    moving = {x: event.clientX, y: event.clientY, x0, y0};
    if (zoom > 1) plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener('pointerup', (event) => {
    const to = cellOf(event);
    if (to && !moving?.far) qkv.change({query: to[0], key: to[1]});
    moving = null;
  });
  plot.addEventListener('dblclick', () => qkv.open('steps'));
  plot.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== plot) return;
    event.preventDefault();
    const to = cellOf(event) || [state.query, state.key ?? 0];
    zoomTo(zoom * 1.2 ** (-Math.sign(event.deltaY) * Math.min(2, Math.abs(event.deltaY) / 50)), to[1], to[0]);
  }, {passive: false});
  plot.addEventListener('keydown', (event) => {
    const [i, j] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] || [0, 0];
    if (i || j) {
      qkv.change({cellAt: null, query: qkv.clamp(state.query + i, n - 1), key: qkv.clamp((state.key ?? state.query) + j, n - 1), hover: null});
      reveal();
    } else if (event.key === '+' || event.key === '=') zoomTo(zoom * 1.5);
    else if (event.key === '-') zoomTo(zoom / 1.5);
    else if (event.key === '0') zoomTo(1);
    else if (event.key === 'Enter') qkv.open('steps');
    else return;
    event.preventDefault();
  });
  function reveal() {
    const near = (corner, at) => at < corner ? at : at + 1 > corner + span() ? at + 1 - span() : corner;
    y0 = near(y0, state.query);
    if (state.key !== null) x0 = near(x0, state.key);
    qkv.change({zoomed: `${zoom} ${x0} ${y0}`});
  }
  find('zoom-in').addEventListener('click', () => zoomTo(zoom * 1.5));
  find('zoom-out').addEventListener('click', () => zoomTo(zoom / 1.5));
  find('zoom-all').addEventListener('click', () => zoomTo(1));

  views.matrix = {
    update(now) {
      const touched = (names) => names.some((name) => now.has(name));
      if (touched(['view', 'theme', 'kind', 'layer', 'head', 'log', 'hideFirst', 'ownScale'])) {
        const tone = qkv.tone(state.kind, state.layer, state.head);
        picture = qkv.picture(current(), tone, n);
        const name = qkv.sourceName();
        find('matrix-title').textContent = name[0].toUpperCase() + name.slice(1);
        qkv.legend('matrix-legend', tone.most, 'weight' + (state.log ? ', log scale' : ''));
      }
      if (touched(['view', 'size'])) layout();
      if (touched(['view', 'query']) && !state.cellAt && zoom > 1) reveal();
      if (touched(['view', 'size', 'theme', 'kind', 'layer', 'head', 'log', 'hideFirst', 'ownScale', 'matches', 'zoomed'])) {
        drawMatrix(qkv.onCanvas(base, left + side + right, above + side + below));
      }
      drawOver();
    },
    name: () => qkv.sourceName() + ' matrix',
    figure: () => ({width: left + side + right, height: above + side + below, draw: drawMatrix}),
    csv() {
      const weights = current(), rows = [['query', 'token', ...labels.map((label, j) => `${j} ${label}`)]];
      for (let i = 0; i < n; ++i) {
        rows.push([i, labels[i], ...Array.from({length: n}, (_, j) => j <= i ? weights[start(i) + j] : 0)]);
      }
      return rows;
    },
  };
})();
