// SPDX-License-Identifier: Apache-2.0
'use strict';

// All heads as small maps, layers downwards, and beside them the heads that behave in ways that have a name.
(() => {
  const {n, L, H, state, views, find, kinds, figures, start} = qkv;
  const plot = find('model-plot'), [base, over] = plot.querySelectorAll('canvas');
  const gap = 6, left = 58, above = 22;
  let maps = [], pending = [], cell = 0, width = 0, slicing = false;

  // A head's weights as a picture of at most `size` pixels a side, each pixel the largest weight below it.
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

  // As large as the width allows, and where all of them then fit into the window, no larger; what is left of the width is
  // the ranking's.
  const alone = matchMedia('(max-width: 980px)'), view = find('view-model'), padding = 34;
  function layout() {
    const room = view.clientWidth - padding - (alone.matches ? 0 : 344), below = innerHeight - 70 - above - plot.getBoundingClientRect().top - scrollY;
    const wide = Math.min(132, Math.floor((room - left) / H) - gap), low = Math.floor(below / L) - gap;
    cell = Math.max(14, low >= 84 ? Math.min(wide, low) : wide);
    view.style.setProperty('--maps', Math.min(room, Math.max(420, left + H * (cell + gap))) + padding + 'px');
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
    const most = habit(at);  // what a head mostly does stands in the corner where nothing can be read
    if (!most || cell < 44) return;
    const o = {size: cell < 80 ? 10 : 11, weight: 650, align: 'right', fill: colours.ink, max: cell - 18};
    surface.text(x + cell - 4, y + 13, cell < 100 ? most.kind.brief : most.kind.name.toLowerCase(), o);
    if (cell >= 80) surface.text(x + cell - 4, y + 27, figures(most.score, 0.001), {...o, weight: 400});
  }
  // Of the kinds that have a name the one on which a head lays at least this share of its weight, or null.
  const clearly = 0.4, hardly = 0.2;
  function habit(at) {
    let most = null;
    kinds.forEach((kind, k) => {
      const score = scoresNow()[k][at];
      if (score >= clearly && score > (most?.score ?? 0)) most = {kind, score};
    });
    return most;
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

  // Maps are made anew a few at a time, so that a frame is never late.
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
    const [l, h] = state.over || [state.layer, state.head], bold = document.createElement('b');
    bold.textContent = `layer ${l} head ${h}`;
    const tells = kinds.map((kind, k) => `${kind.name.toLowerCase()} ${figures(scoresNow()[k][l * H + h], 0.001)}`);
    find('model-says').replaceChildren(bold, ' · ' + tells.join(' · '));
  }

  const scoresNow = () => qkv.behaviours[state.rankOn];
  for (const button of document.querySelectorAll('[data-rank-on]')) {
    button.parentElement.hidden = !qkv.behaviours.random;
    button.addEventListener('click', () => qkv.change({rankOn: button.dataset.rankOn}));
  }
  function rank() {
    const found = scoresNow();
    for (const button of document.querySelectorAll('[data-rank-on]')) {
      button.setAttribute('aria-pressed', String(button.dataset.rankOn === state.rankOn));
    }
    find('ranking-says').textContent = (state.rankOn === 'random' ? 'Mean weight, 0 to 1, on random tokens that are read twice.' :
      'Mean weight, 0 to 1, over this text.') + ' A row chooses the head, a second click opens it.';
    const rows = kinds.map((kind, k) => {
      const scores = found[k], order = scores.map((_, at) => at).sort((a, b) => scores[b] - scores[a] || a - b);
      const title = document.createElement('h3'), tells = document.createElement('p'), verdict = document.createElement('p'), part = document.createElement('div');
      title.textContent = kind.name;
      tells.className = 'small';
      const best = scores[order[0]], first = `layer ${Math.floor(order[0] / H)} head ${order[0] % H}`;
      tells.textContent = kind.tells;
      verdict.className = 'verdict';
      const share = Math.round(100 * best) + ' %';
      verdict.textContent = best >= clearly ? `${first}: ${share} of its weight` : best >= hardly ? `in part ${first}: ${share} of its weight` :
        `no head much: ${share} of its weight at most`;
      if (best >= clearly) verdict.classList.add('yes');
      part.id = 'rank-' + kind.tag;
      part.append(title, tells, verdict, ...order.slice(0, best < hardly ? 1 : L * H > 24 ? 4 : 3).map((at) => {
        const row = document.createElement('button'), bar = document.createElement('i');
        row.type = 'button';
        row.className = 'rank';
        row.dataset.at = at;
        bar.style.setProperty('--share', 100 * Math.min(1, scores[at]) + '%');
        const name = document.createElement('span'), number = document.createElement('span');
        name.textContent = `L${Math.floor(at / H)} head ${at % H}`;
        number.textContent = scores[at].toFixed(3);
        row.append(name, bar, number);
        row.addEventListener('click', () => {
          const here = state.layer === Math.floor(at / H) && state.head === at % H;
          qkv.change({layer: Math.floor(at / H), head: at % H, kind: 'head'});
          if (here) qkv.open('matrix');
        });
        return row;
      }));
      return part;
    });
    find('ranking').replaceChildren(...rows);
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
      if (now.has('rankOn') || now.has('began')) rank();
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
        const top = state.ownScale ? 'of the largest weight of its head (row 0 aside)' : 'weight, the same for all heads';
        qkv.legend('model-legend', 1, top);
      }
      pointed();
      for (const row of document.querySelectorAll('.rank')) row.classList.toggle('here', Number(row.dataset.at) === state.layer * H + state.head);
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
    // Every weight of every head would be hundreds of megabytes of text: the numbers of this view are the heads' means.
    csv() {
      const rows = [['layer', 'head', ...kinds.map((kind) => kind.tag), 'mean_entropy']];
      for (let at = 0; at < L * H; ++at) {
        const weights = qkv.weights('head', Math.floor(at / H), at % H);
        let entropy = 0;
        for (let i = 0; i < n; ++i) {
          for (let j = 0; j <= i; ++j) {
            const w = weights[start(i) + j];
            if (w > 0) entropy -= w * Math.log(w);
          }
        }
        rows.push([Math.floor(at / H), at % H, ...scoresNow().map((scores) => scores[at].toFixed(4)), (entropy / n).toFixed(4)]);
      }
      return rows;
    },
  };
})();
