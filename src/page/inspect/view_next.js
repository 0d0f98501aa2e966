// SPDX-License-Identifier: Apache-2.0
'use strict';

// The next token at a position: the model's probabilities, and the prediction from each layer (logit lens).
(() => {
  const {data, n, L, labels, word, state, views, find, share} = qkv;
  const top = data.lensTop, stages = data.lens, plot = find('next-plot'), above = find('next-now'), canvas = plot.querySelector('canvas'), row = 30;
  const stageName = (s) => s === 0 ? 'embedding' : `layer ${s - 1}`;

  const nth = (s, t, at) => ({id: stages[s].ids[t * top + at], p: stages[s].probs[t * top + at]});
  const best = (s, t) => Array.from({length: top}, (_, at) => nth(s, t, at));
  // A token's probability at a stage; null if it is not stored.
  function probability(s, t, id) {
    const at = best(s, t).find((one) => one.id === id);
    if (at) return at.p;
    if (t + 1 < n && data.ids[t + 1] === id) return stages[s].next[t];
    if (best(L, t)[0].id === id) return stages[s].last[t];
    return null;
  }

  // The model's output, as bars.
  function drawBest(surface, x, y, width, t) {
    const {colours} = qkv, follows = t + 1 < n ? data.ids[t + 1] : null;
    surface.text(x, y + 14, `After “${labels[t]}” (${t})`, {size: 14, weight: 650, fill: colours.ink, max: width});
    best(L, t).forEach(({id, p}, at) => {
      const top_ = y + 28 + at * 26;
      surface.text(x, top_ + 14, word(id), {size: 13, fill: colours.ink, max: 104, weight: id === follows ? 650 : 400, name: 'next-word-' + at});
      surface.rect(x + 112, top_ + 3, Math.max(1, (width - 172) * p), 14, {fill: colours.accent, radius: 3});
      surface.text(x + width, top_ + 14, share(p, 0.00005), {size: 12, mono: true, align: 'right', fill: colours.ink, name: 'next-prob-' + at});
    });
    const end = y + 40 + top * 26;
    const says = follows === null ? 'End of the text.' : `Actual next token “${labels[t + 1]}”: ${share(stages[L].next[t], 0.00005)}`;
    surface.text(x, end + 10, says, {size: 13, fill: colours.ink, max: width, name: 'next-follows'});
    surface.text(x, end + 30, `entropy ${stages[L].entropy[t].toFixed(2)} nats`, {size: 12, fill: colours.soft});
  }

  // Probabilities over the layers, as lines: the top tokens of the last stage and the actual next token.
  function drawLines(surface, x, y, width, height, t) {
    const {colours} = qkv, names = narrow(width) ? 96 : 186, at = (s) => x + 34 + (width - 34 - names) * s / L, up = (p) => y + height - 22 - (height - 62) * p;
    surface.text(x, y + 14, 'By layer', {size: 14, weight: 650, fill: colours.ink});
    for (const p of [0, 0.25, 0.5, 0.75, 1]) {
      surface.path([[at(0), up(p)], [at(L), up(p)]], {stroke: p ? colours.faint : colours.edge});
      surface.text(x + 26, up(p) + 4, String(p), {size: 11, fill: colours.soft, align: 'right'});
    }
    const every = Math.ceil((L + 1) / 14);
    for (let s = 0; s <= L; s += every) surface.text(at(s), y + height - 5, s ? String(s - 1) : 'emb', {size: 11, fill: colours.soft, align: 'center'});
    const ids = [best(L, t)[0].id];
    if (t + 1 < n && !ids.includes(data.ids[t + 1])) ids.push(data.ids[t + 1]);
    for (const {id} of best(L, t)) if (!ids.includes(id) && ids.length < 4) ids.push(id);
    const ends = [];
    ids.forEach((id, place) => {
      const values = stages.map((_, s) => probability(s, t, id)), follows = t + 1 < n && data.ids[t + 1] === id;
      const o = {stroke: follows ? colours.mark : place ? colours.soft : colours.accent, width: place && !follows ? 1.3 : 2.4, dash: place && !follows ? [[5, 3], [2, 3], [8, 3, 2, 3], [1, 2]][place % 4] : null};
      let run = [];
      const flush = () => { if (run.length > 1) surface.path(run, o); run = []; };
      values.forEach((p, s) => p === null ? flush() : (run.push([at(s), up(p)]), surface.rect(at(s) - 2, up(p) - 2, 4, 4, {fill: o.stroke, radius: 2})));
      flush();
      if (values[L] !== null && (values[L] > 0.004 || place === 0 || follows)) ends.push({y: up(values[L]), id, o, follows});
    });
    ends.sort((a, b) => a.y - b.y);
    ends.reduce((above, end) => {
      const y_ = Math.max(end.y + 4, above + 14);
      surface.text(at(L) + 8, y_, word(end.id) + (end.follows ? ' (follows)' : ''), {size: 12, fill: end.o.stroke, weight: end.o.width > 2 ? 650 : 400, max: names - 8});
      return y_;
    }, -1e9);
  }

  function drawColumn(surface, x, y, each, t, here) {
    const {colours} = qkv;
    surface.text(x + each / 2, y, labels[t], {size: 12, align: 'center', fill: here ? colours.mark : colours.ink, weight: here ? 650 : 400, max: each - 6});
    for (let s = L; s >= 0; --s) {
      const top_ = y + 10 + (L - s) * row, {id, p} = nth(s, t, 0), ground = qkv.weightColour(colours, p);
      surface.rect(x + 1, top_ + 1, each - 2, row - 2, {fill: ground, radius: 4, stroke: here ? colours.mark : colours.faint, width: here ? 1.4 : 1});
      surface.text(x + each / 2, top_ + 19, word(id), {size: 12, align: 'center', max: each - 10, fill: qkv.inkOn(colours, p),
        name: `lens-${s}-${t}`});
    }
  }

  // The top token of each layer at the positions around t; last layer first.
  function drawTable(surface, x, y, width, t, before) {
    const {colours} = qkv, count = Math.min(n, Math.max(3, Math.floor((width - 84) / (narrow(width) ? 84 : 104)))), each = (width - 84) / count;
    const inside = before && t >= before.first && t < before.first + before.count && before.count === count;  // keeps the columns
    const first = inside ? before.first : qkv.clamp(t - Math.floor(count / 2), n - count);
    surface.text(x, y + 14, 'Top prediction per layer', {size: 14, weight: 650, fill: colours.ink, max: width});
    for (let at = 0; at < count; ++at) drawColumn(surface, x + 84 + at * each, y + 40, each, first + at, first + at === t);
    for (let s = L; s >= 0; --s) surface.text(x + 74, y + 69 + (L - s) * row, stageName(s), {size: 12, align: 'right', fill: colours.soft});
    return {first, each, count};
  }

  const tall = () => Math.max(230, 90 + top * 26), narrow = (width) => width < 560;
  const aboveTable = (width) => narrow(width) ? 2 * tall() : tall();  // bars and lines, in a row or stacked
  const low = 60 + (L + 1) * row, height = () => tall() + 26 + low;
  let kept = null, wide = 640, table = null;
  function drawNow(surface, width) {
    const part = Math.min(380, width * 0.36);
    if (narrow(width)) {
      drawBest(surface, 0, 0, width, state.query);
      drawLines(surface, 0, tall(), width, tall(), state.query);
    } else {
      drawBest(surface, 0, 0, part, state.query);
      drawLines(surface, part + 40, 0, width - part - 40, tall(), state.query);
    }
  }

  // The same table in HTML, for screen readers and copying: filled when it is open and the selection is stable.
  const details = find('next-details'), made = find('next-table');
  const element = (name, parent, text, properties = {}) => parent.appendChild(Object.assign(document.createElement(name), {textContent: text}, properties));
  let resting = 0;
  function fillTable() {
    resting = 0;
    if (!details.open || !table) return;
    const places = Array.from({length: table.count}, (_, at) => table.first + at), mark = (cell, t) => cell.classList.toggle('here', t === state.query);
    made.replaceChildren();
    element('caption', made, 'Top prediction per layer after each token, and its probability; the last layer is the model’s output.');
    const head = element('tr', element('thead', made, ''), ''), body = element('tbody', made, '');
    element('td', head, '');
    for (const t of places) mark(element('th', head, `${t} ${labels[t]}`, {scope: 'col'}), t);
    for (let s = L; s >= 0; --s) {
      const line = element('tr', body, '');
      element('th', line, stageName(s), {scope: 'row'});
      for (const t of places) {
        const {id, p} = nth(s, t, 0);
        mark(element('td', line, `${word(id)} ${share(p, 0.0005)}`), t);
      }
    }
  }
  function tellTable() {
    clearTimeout(resting);
    resting = details.open ? setTimeout(fillTable, 150) : 0;
  }
  details.addEventListener('toggle', fillTable);

  plot.addEventListener('click', (event) => {
    if (!table) return;
    const at = Math.floor((event.clientX - canvas.getBoundingClientRect().left - 84) / table.each);
    if (event.target === canvas && at >= 0 && at < table.count) qkv.setQuery(table.first + at);
  });
  plot.addEventListener('keydown', (event) => {
    const to = {ArrowLeft: state.query - 1, ArrowRight: state.query + 1, Home: 0, End: n - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    qkv.setQuery(to);
  });

  views.next = {
    update(now) {
      find('next-title').textContent = 'Next token';
      if (!stages.length) {
        plot.textContent = 'This file has no logit lens.';
        details.hidden = true;
        return;
      }
      if (!['view', 'size', 'theme', 'query'].some((name) => now.has(name))) return;
      if (now.has('view') || now.has('size')) wide = Math.max(280, plot.clientWidth);
      if (!kept) above.append((kept = new qkv.SvgSurface(wide, aboveTable(wide))).root);
      kept.again(wide, aboveTable(wide), (surface) => drawNow(surface, wide));
      canvas.style.width = wide + 'px';
      canvas.style.height = low + 'px';
      table = drawTable(qkv.onCanvas(canvas, wide, low), 0, 0, wide, state.query, table);
      qkv.legend('next-legend', 1, 'probability of the token', false);
      tellTable();
    },
    name: () => `token ${state.query} next`,
    figure: () => ({width: 1180, height: height(), draw(surface) {
      drawNow(surface, 1180);
      drawTable(surface, 0, tall() + 26, 1180, state.query, null);
    }}),
    csv() {
      const rows = [['stage', 'position', 'token', 'entropy', 'follows', ...Array.from({length: top}, (_, at) => [`token_${at + 1}`, `p_${at + 1}`]).flat()]];
      stages.forEach((stage, s) => labels.forEach((label, t) => rows.push([stageName(s), t, label, stage.entropy[t], t + 1 < n ? stage.next[t] : '',
        ...best(s, t).flatMap(({id, p}) => [word(id), p])])));
      return rows;
    },
  };
})();
