// SPDX-License-Identifier: Apache-2.0
'use strict';

// Heads with known behaviors: for each kind a button for the best head and smaller ones for the next; and the behavior
// of the selected head next to its map.
(() => {
  const {L, H, state, find, kinds} = qkv;
  const clearly = 0.4, hardly = 0.2;  // shares of a head's weight: clear and partial behavior
  const scoresNow = () => qkv.behaviours[state.rankOn];
  const called = (at) => `layer ${Math.floor(at / H)} head ${at % H}`;
  const orders = new Map();
  // All heads by kind k, the best first.
  function ranked(k) {
    const key = `${state.rankOn} ${k}`;
    if (!orders.has(key)) {
      const scores = scoresNow()[k];
      orders.set(key, scores.map((_, at) => at).sort((a, b) => scores[b] - scores[a] || a - b));
    }
    return orders.get(key);
  }
  // The main known behavior of a head: {kind, score, best: whether it is the highest-ranked}, or null.
  function habit(at) {
    let most = null;
    kinds.forEach((kind, k) => {
      const score = scoresNow()[k][at];
      if (score >= clearly && score > (most?.score ?? 0)) most = {kind, score, best: ranked(k)[0] === at};
    });
    return most;
  }

  const element = (name, parent, properties = {}) => parent.appendChild(Object.assign(document.createElement(name), properties));
  function opens(button, at) {  // hover or keyboard focus highlights its map
    button.type = 'button';
    button.dataset.at = at;
    const over = [Math.floor(at / H), at % H];
    for (const name of ['pointerenter', 'focus']) button.addEventListener(name, () => qkv.change({over}));
    for (const name of ['pointerleave', 'blur']) button.addEventListener(name, () => qkv.change({over: null}));
    button.addEventListener('click', () => {
      qkv.change({layer: over[0], head: over[1], kind: 'head', over: null});
      qkv.open('matrix');
    });
    return button;
  }

  for (const button of document.querySelectorAll('[data-rank-on]')) {
    button.parentElement.hidden = !qkv.behaviours.random;
    button.addEventListener('click', () => qkv.change({rankOn: button.dataset.rankOn}));
  }
  function rank() {
    const random = state.rankOn === 'random', box = find('ranking');
    for (const button of document.querySelectorAll('[data-rank-on]')) {
      button.setAttribute('aria-pressed', String(button.dataset.rankOn === state.rankOn));
    }
    find('ranking-says').textContent = (random ? 'Mean weight on repeated random tokens, not on this text.' : 'Mean weight over this text.') + ' Click a button to open the head.';
    find('model-note').textContent = `Names: the main behavior of a head ${random ? 'on random tokens, not on this text' : 'on this text'}; filled: the best head.`;
    box.replaceChildren();
    kinds.forEach((kind, k) => {
      const scores = scoresNow()[k], order = ranked(k), first = order[0], part = element('div', box, {id: 'rank-' + kind.tag});
      element('h3', part, {textContent: kind.name});
      element('p', part, {className: 'small', textContent: kind.help});
      const best = opens(element('button', part, {className: 'best'}), first), weak = scores[first] < clearly;
      best.classList.toggle('weak', weak);
      best.title = `Open ${called(first)}`;
      element('b', best, {textContent: (scores[first] < hardly ? 'no clear head; highest: ' : weak ? 'partly ' : '') + called(first)});
      element('span', best, {textContent: ' ' + qkv.percent(scores[first])});
      element('i', best).style.setProperty('--share', 100 * Math.min(1, scores[first]) + '%');
      const others = order.slice(1, 3).filter((at) => scores[at] >= hardly);
      if (!others.length) return;
      const after = element('p', part, {className: 'after', textContent: 'then '});
      for (const at of others) opens(element('button', after, {textContent: `L${Math.floor(at / H)} head ${at % H}: ${qkv.percent(scores[at])}`, title: `Open ${called(at)}`}), at);
    });
  }

  // --- the selected or hovered head ---

  const canvas = find('chosen-map'), side = 124, told = [];
  find('chosen-random').hidden = !qkv.behaviours.random;
  for (const kind of kinds) {
    const row = element('tr', find('chosen-scores'));
    element('th', row, {scope: 'row', textContent: kind.name.toLowerCase()});
    told.push({random: qkv.behaviours.random && element('td', row), text: element('td', row)});
  }
  for (const button of document.querySelectorAll('[data-open]')) button.addEventListener('click', () => qkv.open(button.dataset.open));
  const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  function why(at) {
    const most = habit(at), on = state.rankOn === 'random' ? 'on random tokens' : 'on this text';
    if (!most) return at === begun ? `Selected by default: closest to a previous-token head (${on}).` : `No known behavior has ${100 * clearly} % of its weight (${on}).`;
    const does = `${most.best ? 'More than any other head, it ' : ''}${most.kind.does}`;
    return `${at === begun ? 'Selected by default. ' : ''}${does[0].toUpperCase()}${does.slice(1)}: ${qkv.percent(most.score)} of its weight, ${on}.` + (most.best ? '' : ' Another head does this more.');
  }
  let begun = -1, drawn = '';
  function chosen(pictureOf) {
    const [l, h] = state.over || [state.layer, state.head], at = l * H + h, key = `${at} ${state.theme} ${state.log} ${state.hideFirst} ${state.ownScale}`;
    put(find('chosen-name'), `${state.over && at !== state.layer * H + state.head ? 'Hovered: l' : 'L'}ayer ${l} head ${h}`);
    put(find('chosen-why'), why(at) + (qkv.vectorBits(l, h) ? '' : ' Its q, k, v and z did not fit in this file: “step by step” shows how to include them.'));
    told.forEach(({random, text}, k) => {
      if (random) put(random, qkv.percent(qkv.behaviours.random[k][at]));
      put(text, qkv.percent(qkv.behaviours.text[k][at]));
    });
    if (key === drawn) return;
    drawn = key;
    const surface = qkv.onCanvas(canvas, side, side);
    surface.image(pictureOf(l, h, side), 0, 0, side, side);
  }
  // The initially selected head: the highest previous-token score.
  function begin() {
    begun = ranked(0)[0];
    return {layer: Math.floor(begun / H), head: begun % H};
  }

  qkv.heads = {rank, habit, chosen, begin};
})();
