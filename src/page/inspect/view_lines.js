// SPDX-License-Identifier: Apache-2.0
'use strict';

// Lines from each token that reads (left) to what it reads (right), for one head or several of a layer. Only the rows in
// sight are drawn.
(() => {
  const {n, H, labels, state, views, find, start, figures} = qkv;
  const plot = find('lines-plot'), tall = plot.querySelector('.tall'), stack = plot.querySelector('.stack');
  const [base, over] = plot.querySelectorAll('canvas');
  const row = 21, most = 2000, moving = 300;  // lines drawn at once, and while it is scrolled

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

  // All lines of what is chosen, the strongest first; made when the choice changes, not when it is scrolled.
  let known = {key: '', lines: []};
  function allLines() {
    const key = `${state.kind} ${state.layer} ${[...state.heads]} ${state.log} ${state.hideFirst} ${state.ownScale} ${state.theme}`;
    if (known.key === key) return known.lines;
    const lines = [];
    for (const source of sources()) {
      for (let i = 0; i < n; ++i) for (let j = state.hideFirst ? 1 : 0; j <= i; ++j) add(lines, source, i, j);
    }
    lines.sort((a, b) => b[0] - a[0]);
    known = {key, lines};
    return lines;
  }
  function add(lines, {weights, tone, colour}, i, j) {
    const part = Math.min(1, tone.share(weights[start(i) + j]));
    if (part > 0.03) lines.push([part, i, j, colour]);
  }
  // Those of one query, or of one key.
  function linesOf(side, at) {
    const lines = [];
    for (const source of sources()) {
      if (side === 'query') for (let j = state.hideFirst ? 1 : 0; j <= at; ++j) add(lines, source, at, j);
      else if (!qkv.hidden(at)) for (let i = at; i < n; ++i) add(lines, source, i, at);
    }
    return lines.sort((a, b) => b[0] - a[0]);
  }

  function drawLines(surface, g, top, lines, strong) {
    for (let at = lines.length; at-- > 0;) {  // the strongest above the others
      const [part, i, j, colour] = lines[at];
      surface.path([[g.from, (i + 0.5) * row - top], [g.to, (j + 0.5) * row - top]],
                   {curve: true, stroke: colour, opacity: strong ? 0.15 + 0.85 * part : 0.06 + 0.8 * part, width: strong ? 1 + 2 * part : 0.8 + 1.4 * part});
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

  // While it is scrolled what was drawn is moved, and only the rows that came into sight are drawn.
  let drawn = null;
  function drawBase() {
    const {top, width, height} = range(), g = geometry(width), ratio = window.devicePixelRatio || 1;
    const by = drawn && scrolling ? Math.round((top - drawn.top) * ratio) / ratio : Infinity;
    if (!drawn || drawn.width !== width || drawn.height !== height || Math.abs(by) > height / 2) {
      drawn = {top, width, height};
      drawBand(qkv.onCanvas(base, width, height), g, top, 0, height, most);
    } else if (by) {
      drawn.top += by;
      const context = base.getContext('2d');
      context.globalCompositeOperation = 'copy';
      context.drawImage(base, 0, -by, width, height);
      context.globalCompositeOperation = 'source-over';
      const from = by > 0 ? height - by - 1 : 0, tall = Math.abs(by) + 1;
      context.clearRect(0, from, width, tall);
      drawBand(new qkv.CanvasSurface(context), g, drawn.top, from, tall, moving);
    }
  }

  function drawBand(surface, g, top, from, tall, bound) {
    const first = Math.max(0, Math.floor((top + from) / row) - 1), last = Math.min(n - 1, Math.ceil((top + from + tall) / row)), seen = [];
    for (const line of allLines()) {
      if (line[1] < first || line[2] > last) continue;
      seen.push(line);
      if (seen.length === bound) break;
    }
    surface.clipped(0, from, g.b + g.column, tall, () => {
      drawLines(surface, g, top, seen, false);
      drawNames(surface, g, top, first, last);
    });
  }

  // What is pointed at: {side: 'query' or 'key', at}; else the query that was chosen.
  const pointed = () => state.lineAt || {side: 'query', at: state.query};

  function drawOver() {
    const {colours} = qkv, {top, width, height} = range(), g = geometry(width), surface = qkv.onCanvas(over, width, height);
    const {side, at} = pointed(), query = side === 'query';
    base.style.opacity = state.lineAt ? 0.22 : 0.75;
    const lines = linesOf(side, at);
    drawLines(surface, g, top, lines, true);
    const y = (i) => (i + 0.5) * row - top + 4.5;
    surface.rect(query ? g.a - g.column + 30 : g.b - 5, at * row - top + 1, g.column - 26, row - 2, {stroke: colours.mark, width: 1.5, radius: 4});
    for (const [part, i, j] of lines) {
      const other = query ? j : i, o = {size: 13, fill: colours.ink, weight: 600, opacity: 0.35 + 0.65 * part, max: g.column - 34};
      surface.rect(query ? g.b - 1 : g.a - g.column + 30, other * row - top + 1, g.column - 29, row - 2, {fill: colours.card});
      if (query) surface.text(g.b, y(other), labels[other], o);
      else surface.text(g.a, y(other), labels[other], {...o, align: 'right'});
    }
    surface.rect(query ? g.a - g.column + 31 : g.b - 4, at * row - top + 2, g.column - 28, row - 4, {fill: colours.card, radius: 4});
    surface.text(query ? g.a : g.b, y(at), labels[at], {size: 13, fill: colours.ink, weight: 600, align: query ? 'right' : 'left', max: g.column - 34});
    says(side, at);
  }

  function says(side, at) {
    const box = find('lines-says'), parts = [];
    for (const {head, weights} of sources()) {
      const cells = [];
      if (side === 'query') for (let j = 0; j <= at; ++j) cells.push([weights[start(at) + j], j]);
      else for (let i = at; i < n; ++i) cells.push([weights[start(i) + at], i]);
      cells.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
      if (sources().length > 1) parts.push(parts.length ? ' · ' : '', `head ${head}: `);
      cells.slice(0, sources().length > 1 ? 2 : 6).forEach(([w, i], place) =>
        parts.push(place ? ', ' : '', qkv.named(i), ' ' + figures(w, qkv.weightError(w))));
    }
    box.replaceChildren(qkv.named(at), side === 'query' ? ' reads ' : ' is read by ', ...parts);
  }

  function chips() {
    const box = find('head-chips');
    box.hidden = state.kind !== 'head';
    const made = Array.from({length: H}, (_, h) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = 'head ' + h;
      button.setAttribute('aria-pressed', String(state.heads.has(h)));
      button.style.setProperty('--colour', state.heads.size === 1 ? qkv.colours.accent : qkv.colours.heads[h]);
      button.addEventListener('click', () => {
        const heads = new Set(state.heads);
        if (!heads.delete(h)) heads.add(h);
        qkv.change({heads});
      });
      return button;
    });
    const all = document.createElement('button');
    all.type = 'button';
    all.textContent = state.heads.size === H ? 'this head alone' : 'all heads';
    all.addEventListener('click', () => qkv.change({heads: new Set(state.heads.size === H ? [state.head] : made.keys())}));
    const focused = [...box.children].indexOf(document.activeElement);
    box.replaceChildren(...made, all);
    if (focused >= 0) box.children[focused].focus();
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
    if (y < plot.scrollTop || y + row > plot.scrollTop + plot.clientHeight) plot.scrollTop = y - plot.clientHeight / 2;
  }

  views.lines = {
    update(now) {
      const touched = (names) => names.some((name) => now.has(name));
      if (touched(['view', 'size', 'theme'])) {
        tall.style.height = stack.style.maxHeight = n * row + 'px';
        plot.style.maxHeight = n * row + 2 + 'px';
        base.style.height = over.style.height = plot.clientHeight + 'px';
        reveal();
      }
      if (touched(['view', 'theme', 'heads', 'kind', 'layer', 'head'])) chips();
      if (touched(['query']) && !state.lineAt) reveal();
      find('lines-title').textContent = state.kind === 'head' && state.heads.size !== 1 ?
        `Layer ${state.layer}, ${state.heads.size} heads` : `Who reads whom: ${qkv.sourceName()}`;
      if (!touched(['view', 'size', 'theme', 'heads', 'kind', 'layer', 'head', 'log', 'hideFirst', 'ownScale', 'matches', 'scrolled', 'settled'])) return drawOver();
      drawBase();
      drawOver();
    },
    name: () => (state.kind === 'head' ? `layer ${state.layer} heads ${[...state.heads].sort((a, b) => a - b).join(' ')}` : qkv.sourceName()) + ' lines',
    figure: () => ({width: 760, height: n * row, draw(surface) {
      const g = geometry(760);
      drawLines(surface, g, 0, allLines().slice(0, 2 * most), false);
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
