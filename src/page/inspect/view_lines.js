// SPDX-License-Identifier: Apache-2.0
'use strict';

// Lines from each query token (left) to its keys (right), for one or several heads of a layer. Draws only visible rows.
(() => {
  const {n, H, labels, state, views, find, start} = qkv;
  const plot = find('lines-plot'), tall = plot.querySelector('.tall'), stack = plot.querySelector('.stack');
  const [base, over] = plot.querySelectorAll('canvas');
  const row = 21, most = 2000, helping = 300, moving = 150;  // visible lines, lines per frame, lines of a strip scrolled in

  const sources = () => {
    if (state.kind !== 'head') return [{weights: qkv.weights(state.kind, state.layer, state.head), colour: qkv.colours.accent,
      tone: qkv.tone(state.kind, state.layer, state.head)}];
    return [...state.heads].sort((a, b) => a - b).map((h) => ({
      head: h, weights: qkv.weights('head', state.layer, h), tone: qkv.tone('head', state.layer, h),
      colour: state.heads.size === 1 ? qkv.colours.accent : qkv.colours.heads[h]}));
  };

  const geometry = (width) => {
    const column = Math.min(210, width * 0.28), middle = Math.min(width - 2 * column, 560), edge = Math.max(0, (width - middle) / 2);
    return {column, a: edge - 8, b: edge + middle + 8, from: edge, to: edge + middle};
  };

  // All lines of the selection, strongest first: built when the selection changes, not on scrolling. Counting sort over
  // 256 levels of strength.
  const weakest = 8, none = {count: 0};
  let known = {key: '', lines: none};
  function allLines() {
    const key = `${state.kind} ${state.layer} ${[...state.heads]} ${state.log} ${state.hideFirst} ${state.ownScale} ${state.theme}`;
    if (known.key === key) return known.lines;
    const all = sources(), found = all.map(({weights, tone}) => ({bits: new Uint32Array(weights.buffer), level: qkv.levels(tone.share)}));
    const places = new Uint32Array(257), first = state.hideFirst ? 1 : 0;
    for (const {bits, level} of found) {
      for (let i = 0, at = 0; i < n; at += ++i) for (let j = first; j <= i; ++j) ++places[255 - level[bits[at + j] >>> 16]];
    }
    let count = 0;
    for (let at = 0; at < 256; ++at) {
      const here = places[at];
      places[at] = count;
      if (255 - at >= weakest) count += here;
    }
    const lines = {count, part: new Uint8Array(count), i: new Uint32Array(count), j: new Uint32Array(count), source: new Uint16Array(count),
      colours: all.map(({colour}) => colour)};
    found.forEach(({bits, level}, source) => {
      for (let i = 0, at = 0; i < n; at += ++i) {
        for (let j = first; j <= i; ++j) {
          const part = level[bits[at + j] >>> 16];
          if (part < weakest) continue;
          const place = places[255 - part]++;
          lines.part[place] = part;
          lines.i[place] = i;
          lines.j[place] = j;
          lines.source[place] = source;
        }
      }
    });
    known = {key, lines};
    return lines;
  }
  // The lines of one query or key, as [part, i, j, color].
  function linesOf(side, at) {
    const lines = [];
    for (const {weights, tone, colour} of sources()) {
      const add = (i, j) => {
        const part = Math.min(1, tone.share(weights[start(i) + j]));
        if (part > 0.03) lines.push([part, i, j, colour]);
      };
      if (side === 'query') for (let j = state.hideFirst ? 1 : 0; j <= at; ++j) add(at, j);
      else if (!qkv.hidden(at)) for (let i = at; i < n; ++i) add(i, at);
    }
    return lines.sort((a, b) => b[0] - a[0]);
  }

  // One-pixel lines draw twice as fast, so only strong lines are wider.
  function drawLine(surface, g, top, part, i, j, colour) {
    surface.path([[g.from, (i + 0.5) * row - top], [g.to, (j + 0.5) * row - top]],
                 {curve: true, stroke: colour, opacity: 0.06 + 0.8 * part, width: Math.max(1, 0.5 + 1.7 * part)});
  }
  function drawStrong(surface, g, top, lines) {
    for (let at = lines.length; at-- > 0;) {  // strongest on top
      const [part, i, j, colour] = lines[at];
      surface.path([[g.from, (i + 0.5) * row - top], [g.to, (j + 0.5) * row - top]],
                   {curve: true, stroke: colour, opacity: 0.15 + 0.85 * part, width: 1 + 2 * part});
    }
  }

  function drawNames(surface, g, top, first, last) {
    const {colours} = qkv, matches = new Set(state.matches);
    for (let i = first; i <= last; ++i) {
      const y = (i + 0.5) * row - top + 4.5, o = {size: 13, fill: matches.has(i) ? colours.mark : colours.ink, weight: matches.has(i) ? 650 : 400};
      surface.text(g.a, y, labels[i], {...o, align: 'right', max: g.column - 34});
      surface.text(g.b, y, labels[i], {...o, max: g.column - 34, opacity: qkv.hidden(i) ? 0.35 : 1});
      const small = {size: 10.5, fill: colours.soft};
      surface.text(Math.max(26, g.a - g.column + 26), y, String(i), {...small, align: 'right'});
    }
  }

  const range = () => {
    const top = plot.scrollTop, height = plot.clientHeight;
    return {top, width: plot.clientWidth, height, first: Math.max(0, Math.floor(top / row)), last: Math.min(n - 1, Math.ceil((top + height) / row))};
  };

  // The lines between rows `first` and `last`, as indices into allLines(): at most `bound`, the strongest.
  function between(first, last, bound) {
    const {count, i, j} = allLines(), seen = [];
    for (let at = 0; at < count && seen.length < bound; ++at) if (i[at] >= first && j[at] <= last) seen.push(at);
    return seen;
  }
  // seen[to - 1] ... seen[from]: strongest on top
  function drawLines(context, g, top, seen, from, to) {
    const {part, i, j, source, colours} = allLines(), surface = new qkv.CanvasSurface(context);
    for (let at = Math.min(to, seen.length); at-- > from;) {
      const line = seen[at];
      drawLine(surface, g, top, part[line] / 255, i[line], j[line], colours[source[line]]);
    }
  }

  // While scrolling, the drawn image is moved and only newly visible rows are drawn. Otherwise the strongest visible
  // lines appear at once; when idle, all lines are drawn on a second canvas over several frames, which is then copied.
  let drawn = null, task = null, soon = 0;
  const other = document.createElement('canvas');
  function drawBase(afresh) {
    const {top, width, height} = range(), g = geometry(width), ratio = window.devicePixelRatio || 1;
    const by = drawn && scrolling && !afresh ? Math.round((top - drawn.top) * ratio) / ratio : Infinity;
    if (!drawn || drawn.width !== width || drawn.height !== height || Math.abs(by) > height / 2) {
      const known = drawn && !afresh && drawn.top === top && drawn.width === width && drawn.height === height;
      const first = Math.max(0, Math.floor(top / row) - 1), last = Math.min(n - 1, Math.ceil((top + height) / row));
      const seen = between(first, last, most);
      drawn = {top, width, height};
      if (!known) {
        drawNames(qkv.onCanvas(base, width, height), g, top, first, last);
        drawLines(base.getContext('2d'), g, top, seen, 0, helping);
      }
      task = {g, top, seen, first, last, left: seen.length};
      clearTimeout(soon);
      soon = setTimeout(help, 50);
    } else if (by) {
      task = null;
      drawn.top += by;
      const context = copy(base, by), from = by > 0 ? height - by - 1 : 0, tall = Math.abs(by) + 1;
      context.clearRect(0, from, width, tall);
      drawBand(context, g, drawn.top, from, tall);
    }
  }
  function help() {
    if (!task || state.view !== 'lines') return;
    const {g, top, seen, left, first, last} = task, mine = task;
    if (left === seen.length) drawNames(qkv.onCanvas(other, drawn.width, drawn.height), g, top, first, last);
    task.left = Math.max(0, left - helping);
    drawLines(other.getContext('2d'), g, top, seen, task.left, left);
    if (task.left > 0) return requestAnimationFrame(() => task === mine && help());
    task = null;
    copy(other, 0);
  }
  function copy(canvas, by) {
    const context = base.getContext('2d');
    context.globalCompositeOperation = 'copy';
    context.drawImage(canvas, 0, -by, drawn.width, drawn.height);
    context.globalCompositeOperation = 'source-over';
    return context;
  }

  function drawBand(context, g, top, from, tall) {
    const first = Math.max(0, Math.floor((top + from) / row) - 1), last = Math.min(n - 1, Math.ceil((top + from + tall) / row));
    const surface = new qkv.CanvasSurface(context);
    surface.clipped(0, from, g.b + g.column, tall, () => {
      drawLines(context, g, top, between(first, last, moving), 0, moving);
      drawNames(surface, g, top, first, last);
    });
  }

  // The hovered token: {side: 'query' or 'key', at}; otherwise the selected query.
  const pointed = () => state.lineAt || {side: 'query', at: state.query};

  function drawOver() {
    const {colours} = qkv, {top, width, height} = range(), g = geometry(width), surface = qkv.onCanvas(over, width, height);
    const {side, at} = pointed(), query = side === 'query';
    base.style.opacity = state.lineAt ? 0.22 : 0.75;
    const y = (i) => (i + 0.5) * row - top + 4.5, lines = marked(side, at);
    const mine = (at + 0.5) * row - top, seen = lines.filter(([, i, j]) => {
      const far = (query ? j + 0.5 : i + 0.5) * row - top;
      return Math.max(mine, far) > -5 && Math.min(mine, far) < height + 5;
    });
    drawStrong(surface, g, top, seen);
    surface.rect(query ? g.a - g.column + 30 : g.b - 5, at * row - top + 1, g.column - 26, row - 2, {stroke: colours.mark, width: 1.5, radius: 4});
    const told = new Set();  // a token attended to by several heads takes the style of its strongest line
    for (const [part, i, j] of lines) {
      const other = query ? j : i;
      if (told.has(other)) continue;
      told.add(other);
      if (y(other) < -row || y(other) > height + row) continue;
      const o = {size: 13, fill: colours.ink, weight: 600, opacity: 0.35 + 0.65 * part, max: g.column - 34};
      surface.rect(query ? g.b - 1 : g.a - g.column + 30, other * row - top + 1, g.column - 29, row - 2, {fill: colours.card});
      if (query) surface.text(g.b, y(other), labels[other], o);
      else surface.text(g.a, y(other), labels[other], {...o, align: 'right'});
    }
    surface.rect(query ? g.a - g.column + 31 : g.b - 4, at * row - top + 2, g.column - 28, row - 4, {fill: colours.card, radius: 4});
    surface.text(query ? g.a : g.b, y(at), labels[at], {size: 13, fill: colours.ink, weight: 600, align: query ? 'right' : 'left', max: g.column - 34});
    if (g.a - g.column < 40) return;
    const more = g.a - g.column < 70 ? '' : ' more', before = Math.round(top / row), after = n - Math.round((top + height) / row), small = {size: 11, fill: colours.soft};
    if (before > 0) surface.text(0, 14, `↑ ${before}${more}`, small);
    if (after > 0) surface.text(0, height - 6, `↓ ${after}${more}`, small);
  }
  let marks = {key: ''};
  function marked(side, at) {
    const key = `${side} ${at} ${known.key}`;
    if (marks.key !== key) marks = {key, lines: linesOf(side, at)};
    return marks.lines;
  }

  function says(side, at) {
    const box = find('lines-says'), parts = [];
    for (const {head, weights} of sources()) {
      const many = sources().length > 1, count = many ? 2 : 6;
      if (many) parts.push(parts.length ? ' · ' : '', `head ${head}: `);
      if (side === 'query') {
        parts.push(...qkv.toldReads(weights, at, count));
        continue;
      }
      const cells = [];
      for (let i = at; i < n; ++i) cells.push([weights[start(i) + at], i]);
      cells.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
      const clear = cells.filter(([w], place) => place < count && (!place || w >= 0.001));
      clear.forEach(([, i], place) => parts.push(place ? ', ' : '', qkv.named(i), ' ' + qkv.weight(weights, i, at)));
    }
    box.replaceChildren(qkv.named(at), side === 'query' ? ' attends to ' : ' gets attention from ', ...parts);
  }

  // One button per head, created once.
  const box = find('head-chips'), button = (text, does) => {
    const made = box.appendChild(document.createElement('button'));
    made.type = 'button';
    made.textContent = text;
    made.addEventListener('click', does);
    return made;
  };
  const buttons = Array.from({length: H}, (_, h) => button('head ' + h, () => {
    const heads = new Set(state.heads);
    if (!heads.delete(h)) heads.add(h);
    qkv.change({heads});
  }));
  const all = button('all heads', () => qkv.change({heads: new Set(state.heads.size === H ? [state.head] : buttons.keys())}));
  function chips() {
    box.hidden = state.kind !== 'head';
    buttons.forEach((made, h) => {
      made.setAttribute('aria-pressed', String(state.heads.has(h)));
      made.style.setProperty('--colour', state.heads.size === 1 ? qkv.colours.accent : qkv.colours.heads[h]);
    });
    all.textContent = state.heads.size === H ? 'only this head' : 'all heads';
  }

  let scrolling = 0;
  plot.addEventListener('scroll', () => {
    clearTimeout(scrolling);
    scrolling = setTimeout(() => {
      scrolling = 0;
      qkv.change({settled: performance.now()});
    }, 120);
    qkv.change({scrolled: plot.scrollTop});
  }, {passive: true});
  plot.addEventListener('pointermove', (event) => {
    const box = plot.getBoundingClientRect(), at = Math.floor((event.clientY - box.top + plot.scrollTop) / row);
    const side = event.clientX - box.left < plot.clientWidth / 2 ? 'query' : 'key', now = state.lineAt;
    if (at < 0 || at >= n) return qkv.change({lineAt: null, hover: null});
    if (now?.at !== at || now?.side !== side) qkv.change({lineAt: {side, at}, hover: side === 'query' ? at : null});
  });
  plot.addEventListener('pointerleave', () => qkv.change({lineAt: null, hover: null}));
  plot.addEventListener('click', () => state.lineAt && qkv.change({query: state.lineAt.at}));
  plot.addEventListener('keydown', (event) => {
    const by = {ArrowUp: -1, ArrowDown: 1, PageUp: -20, PageDown: 20, Home: -n, End: n}[event.key];
    if (event.key === 'Enter') qkv.open('steps');
    else if (by) {
      qkv.change({lineAt: null});
      qkv.setQuery(state.query + by);
      reveal();
    } else return;
    event.preventDefault();
  });
  function reveal() {
    const y = state.query * row;
    if (y < plot.scrollTop || y + row > plot.scrollTop + plot.clientHeight) plot.scrollTop = y - Math.floor(plot.clientHeight / row / 2) * row;
  }
  // As many whole rows as fit in the window.
  function layout() {
    const room = Math.floor((innerHeight - plot.getBoundingClientRect().top - scrollY - 12) / row);
    plot.style.height = Math.max(1, Math.min(n, Math.max(8, Math.min(30, room)))) * row + 1 + 'px';
    tall.style.height = n * row + 'px';
    base.style.height = over.style.height = plot.clientHeight + 'px';
  }

  views.lines = {
    update(now) {
      const touched = (names) => names.some((name) => now.has(name));
      if (touched(['view', 'size', 'theme'])) {
        chips();
        find('lines-title').textContent ||= ' ';
        if (!find('lines-says').textContent) says(pointed().side, pointed().at);
        layout();
        reveal();
      }
      if (touched(['heads', 'kind', 'layer', 'head'])) chips();
      if (touched(['query']) && !state.lineAt) reveal();
      find('lines-title').textContent = state.kind === 'head' && state.heads.size !== 1 ?
        `Layer ${state.layer}, ${state.heads.size} heads` : `Attention: ${qkv.sourceName()}`;
      const afresh = touched(['view', 'size', 'theme', 'heads', 'kind', 'layer', 'head', 'log', 'hideFirst', 'ownScale', 'matches']);
      if (afresh || touched(['scrolled', 'settled'])) drawBase(afresh);
      drawOver();
      if (afresh || touched(['query', 'lineAt'])) says(pointed().side, pointed().at);
    },
    name: () => (state.kind === 'head' ? `layer ${state.layer} heads ${[...state.heads].sort((a, b) => a - b).join(' ')}` : qkv.sourceName()) + ' lines',
    figure: () => ({width: 760, height: n * row, draw(surface) {
      const g = geometry(760);
      const {count, part, i, j, source, colours} = allLines();
      for (let at = Math.min(count, 2 * most); at-- > 0;) drawLine(surface, g, 0, part[at] / 255, i[at], j[at], colours[source[at]]);
      drawNames(surface, g, 0, 0, n - 1);
    }}),
    csv() {
      const rows = [['head', 'query', 'query_token', 'key', 'key_token', 'weight']];
      for (const {head, weights} of sources()) {
        for (let i = 0; i < n; ++i) {
          for (let j = 0; j <= i; ++j) rows.push([head ?? state.kind, i, labels[i], j, labels[j], weights[start(i) + j]]);
        }
      }
      return rows;
    },
  };
})();
