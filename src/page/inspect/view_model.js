// SPDX-License-Identifier: Apache-2.0
'use strict';

// All heads as small maps, layers from top to bottom, next to the ranking of head behaviors.
(() => {
  const {n, L, H, state, views, find, kinds, start} = qkv, {habit} = qkv.heads;
  const plot = find('model-plot'), [base, over] = plot.querySelectorAll('canvas');
  const left = 58, above = 20;
  let maps = [], pending = [], cell = 0, gap = 6, width = 0, slicing = false;

  // A head's weights as an image of at most `size` pixels per side; each pixel is the largest weight it covers.
  function picture(weights, tone, size) {
    const side = Math.min(n, size), made = document.createElement('canvas'), words = qkv.colours.weightWords;
    made.width = made.height = side;
    const context = made.getContext('2d'), image = context.createImageData(side, side), most = new Uint8Array(side * side);
    const level = qkv.levels(tone.share), bits = new Uint32Array(weights.buffer), pixels = new Uint32Array(image.data.buffer);
    for (let i = 0, at = 0; i < n; at += ++i) {
      const row = Math.floor(i * side / n) * side;
      for (let j = state.hideFirst ? 1 : 0; j <= i; ++j) {
        const pixel = row + (side === n ? j : Math.floor(j * side / n));
        const here = level[bits[at + j] >>> 16];
        if (here > most[pixel]) most[pixel] = here;
      }
    }
    for (let pixel = 0; pixel < side * side; ++pixel) pixels[pixel] = words[most[pixel]];
    context.putImageData(image, 0, 0);
    return made;
  }
  qkv.picture = picture;

  // As large as the width allows and all maps fit in the window, with a minimum size; the remaining width is for the
  // ranking.
  const alone = matchMedia('(max-width: 980px)'), view = find('view-model'), padding = 34;
  function layout() {
    const room = view.clientWidth - padding - (alone.matches ? 0 : 424), below = innerHeight - 62 - above - plot.getBoundingClientRect().top - scrollY;
    gap = L > 8 || H > 16 ? 3 : 6;
    const wide = Math.min(alone.matches ? 132 : 96, Math.floor((room - left) / H) - gap), low = Math.floor(below / L) - gap;
    cell = Math.max(14, alone.matches ? wide : Math.min(wide, Math.max(low, 22)));
    view.style.setProperty('--maps', Math.min(room, Math.max(430, left + H * (cell + gap))) + padding + 'px');
    width = plot.clientWidth;
    plot.style.height = base.style.height = over.style.height = above + L * (cell + gap) + 'px';
  }
  const height = () => above + L * (cell + gap);
  const place = (l, h) => [left + h * (cell + gap), above + l * (cell + gap)];

  function drawMap(surface, at) {
    const [x, y] = place(Math.floor(at / H), at % H);
    const {colours} = qkv;
    if (maps[at]) surface.image(maps[at], x, y, cell, cell);
    surface.rect(x - 0.5, y - 0.5, cell + 1, cell + 1, {stroke: colours.edge, radius: 3});
    const most = habit(at);  // the badge is in the masked corner
    if (most?.best) badge(surface, x + cell - 2, y + 2, most);
    else if (most && cell >= 60) {
      const o = {size: 10, align: 'right', fill: colours.soft};
      surface.text(x + cell - 4, y + 13, most.kind.brief, o);
      surface.text(x + cell - 4, y + 26, qkv.percent(most.score), o);
    }
  }
  // The best head of a kind: its name on a filled badge, or a letter if space is short.
  function badge(surface, right, top, {kind, score}) {
    const {colours} = qkv, o = {size: cell < 60 ? 9 : 10.5, weight: 700};
    const text = cell < 44 ? kind.name[0] : kind.brief, wide = qkv.textWidth(text, o) + 7, tall = cell < 60 ? 12 : 15;
    surface.rect(right - wide, top, wide, tall, {fill: colours.accent, radius: 4});
    surface.text(right - 3.5, top + tall - (cell < 60 ? 2.5 : 3.5), text, {...o, align: 'right', fill: colours.card});
    if (cell >= 60) surface.text(right - 2, top + tall + 12, qkv.percent(score), {size: 10.5, align: 'right', fill: colours.ink});
  }

  function drawNames(surface) {
    const {colours} = qkv;
    for (let l = 0; l < L; ++l) {
      surface.text(left - 10, place(l, 0)[1] + cell / 2 + 4, 'layer ' + l, {fill: colours.soft, size: 12, align: 'right'});
    }
    for (let h = 0; h < H; ++h) {
      const label = cell < 46 ? String(h) : 'head ' + h;
      surface.text(place(0, h)[0] + cell / 2, above - 8, label, {fill: colours.soft, size: 12, align: 'center'});
    }
  }

  // Maps are rebuilt a few per frame, to keep the frame rate.
  function slice() {
    slicing = false;
    if (state.view !== 'model') return;
    const end = performance.now() + 5, surface = new qkv.CanvasSurface(base.getContext('2d'));
    while (pending.length && performance.now() < end) {
      const at = pending.shift(), l = Math.floor(at / H), h = at % H;
      maps[at] = picture(qkv.weights('head', l, h), qkv.tone('head', l, h), Math.ceil(cell * (window.devicePixelRatio || 1)));
      drawMap(surface, at);
    }
    if (pending.length) again();
  }
  function again() {
    if (!slicing) requestAnimationFrame(slice);
    slicing = true;
  }

  function renew() {
    pending = Array.from({length: L * H}, (_, at) => at);
    again();
  }

  function pointed() {
    const {colours} = qkv, surface = qkv.onCanvas(over, width, height());
    const ring = ([l, h], o) => {
      const [x, y] = place(l, h);
      surface.rect(x - 2, y - 2, cell + 4, cell + 4, {radius: 4, ...o});
    };
    ring([state.layer, state.head], {stroke: colours.mark, width: 2.5});
    if (state.over) ring(state.over, {stroke: colours.accent, width: 2});
    qkv.heads.chosen((l, h, size) => picture(qkv.weights('head', l, h), qkv.tone('head', l, h), Math.ceil(size * (window.devicePixelRatio || 1))));
  }

  const here = (event) => {
    const box = plot.getBoundingClientRect();
    const h = Math.floor((event.clientX - box.left - left) / (cell + gap)), l = Math.floor((event.clientY - box.top - above) / (cell + gap));
    return h >= 0 && h < H && l >= 0 && l < L ? [l, h] : null;
  };
  plot.addEventListener('pointermove', (event) => {
    const to = here(event);
    if (String(to) !== String(state.over)) qkv.change({over: to});
  });
  plot.addEventListener('pointerleave', () => qkv.change({over: null}));
  plot.addEventListener('click', (event) => {
    const to = here(event);
    if (!to) return;
    qkv.change({layer: to[0], head: to[1], kind: 'head'});
    qkv.open('matrix');
  });
  plot.addEventListener('keydown', (event) => {
    const [l, h] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] || [0, 0];
    if (l || h) qkv.change({layer: qkv.clamp(state.layer + l, L - 1), head: qkv.clamp(state.head + h, H - 1), kind: 'head', over: null});
    else if (event.key === 'Enter') qkv.open('matrix');
    else return;
    event.preventDefault();
  });

  views.model = {
    update(now) {
      if (now.has('rankOn') || now.has('began')) qkv.heads.rank();
      const fresh = now.has('theme') || now.has('rankOn') || now.has('log') || now.has('hideFirst') || now.has('ownScale') || now.has('size');
      if (fresh || now.has('view')) {
        const before = cell;
        layout();
        const surface = qkv.onCanvas(base, width, height());
        drawNames(surface);
        const stale = fresh || before !== cell || maps.length < L * H || this.settings !== this.key();
        for (let at = 0; at < L * H; ++at) drawMap(surface, at);
        if (stale) renew();
        this.settings = this.key();
        const top = state.ownScale ? 'relative to the head’s largest weight (without row 0)' : 'weight, same scale for all heads';
        qkv.legend('model-legend', 1, top);
      }
      pointed();
    },
    key: () => `${state.log} ${state.hideFirst} ${state.ownScale} ${state.theme}`,
    name: () => 'all heads',
    figure: () => ({width: left + H * (cell + gap), height: height(), draw(surface) {
      drawNames(surface);
      for (let at = 0; at < L * H; ++at) {
        maps[at] ||= picture(qkv.weights('head', Math.floor(at / H), at % H), qkv.tone('head', Math.floor(at / H), at % H), 2 * cell);
        drawMap(surface, at);
      }
    }}),
    // All weights of all heads would be hundreds of megabytes of text, so this view exports the means of the heads.
    csv() {
      const {random, text} = qkv.behaviours, on = [...(random ? [['random_tokens', random]] : []), ['this_text', text]];
      const rows = [['layer', 'head', ...on.flatMap(([name]) => kinds.map((kind) => `${kind.tag}_${name}`)), 'mean_entropy']];
      for (let at = 0; at < L * H; ++at) {
        const weights = qkv.weights('head', Math.floor(at / H), at % H);
        let entropy = 0;
        for (let i = 0; i < n; ++i) {
          for (let j = 0; j <= i; ++j) {
            const w = weights[start(i) + j];
            if (w > 0) entropy -= w * Math.log(w);
          }
        }
        rows.push([Math.floor(at / H), at % H, ...on.flatMap(([, scores]) => scores.map((each) => each[at])), (entropy / n).toFixed(4)]);
      }
      return rows;
    },
  };
})();
