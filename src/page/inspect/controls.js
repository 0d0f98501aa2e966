// SPDX-License-Identifier: Apache-2.0
'use strict';

// The state of the controls, the text above the views, and scheduling of drawing: at most once per frame, and only what
// changed.
(() => {
  const {data, n, L, H, labels, start, share} = qkv;
  const find = (id) => document.getElementById(id);
  const state = {
    view: null, kind: 'head', layer: 0, head: 0, query: Math.min(24, n - 1), key: null, hover: null, ownScale: true,
    log: false, hideFirst: false, sorted: false, heads: new Set([0]), matches: [], firsts: [], theme: 'auto', loaded: false,
    rankOn: qkv.behaviours.random ? 'random' : 'text',
  };
  const views = {};
  let changed = new Set(), waiting = false;

  function frame() {
    waiting = false;
    if (!state.loaded) return;  // changes are kept for the first frame with data
    const now = changed;
    changed = new Set();
    if (now.has('theme')) qkv.colours = qkv.palette();
    show(now);  // before the view measures the remaining window
    if (now.has('layer') || now.has('head') || now.has('kind') || now.has('theme') || now.has('query') || now.has('hover') ||
        now.has('log') || now.has('hideFirst') || now.has('ownScale') || now.has('matches') || now.has('view')) shade(now);
    views[state.view].update(now);
  }

  function change(values) {
    for (const [name, value] of Object.entries(values)) {
      if (state[name] === value) continue;
      state[name] = value;
      changed.add(name);
    }
    if (('layer' in values || 'head' in values) && !('heads' in values)) {
      state.heads = new Set([state.head]);
      changed.add('heads');
    }
    if (changed.size && !waiting) {
      waiting = true;
      requestAnimationFrame(frame);
    }
  }

  // --- color scale of weights ---

  const tops = new Map();
  // The largest weight, without row 0 (only one key) and the hidden first key.
  function top(kind, layer, head) {
    const key = `${kind} ${layer} ${kind === 'head' ? head : ''} ${state.hideFirst}`;
    if (!tops.has(key)) {
      const weights = qkv.weights(kind, layer, head);
      let most = 0;
      for (let i = 1, at = 1; i < n; at += ++i) {
        for (let j = state.hideFirst ? 1 : 0; j <= i; ++j) if (weights[at + j] > most) most = weights[at + j];
      }
      tops.set(key, most || 1);
    }
    return tops.get(key);
  }
  function tone(kind, layer, head) {
    const most = state.ownScale ? top(kind, layer, head) : 1;
    return {most, share: state.log ? (w) => Math.max(0, 1 + Math.log10(w / most) / 4) : (w) => w / most};
  }
  const hidden = (key) => state.hideFirst && key === 0;

  // --- the text ---

  const spans = data.texts.map((text, i) => {
    const span = document.createElement('span');
    span.textContent = text;
    if (text === '') span.className = 'part';
    span.dataset.at = i;
    span.id = 'token-' + i;
    span.setAttribute('role', 'option');
    span.setAttribute('aria-label', `${i} ${labels[i]}`);
    return span;
  });
  let shaded = 0, outlined = -1;

  // The shading of the text: weights of the selected query token.
  function shade(now) {
    const {colours} = qkv, query = state.hover ?? state.query;
    const weights = qkv.weights(state.kind, state.layer, state.head), strength = tone(state.kind, state.layer, state.head).share;
    const from = start(query);
    for (let j = 0; j < Math.max(shaded, query + 1); ++j) {
      const part = j <= query && !hidden(j) ? Math.min(1, strength(weights[from + j])) : 0;
      const colour = part < 0.02 ? '' : qkv.weightColour(colours, part);
      if (spans[j].qkvColour !== colour) {
        spans[j].style.backgroundColor = spans[j].qkvColour = colour;
        spans[j].style.color = colour && qkv.inkOn(colours, part);
      }
    }
    shaded = query + 1;
    if (outlined !== query) {
      spans[outlined]?.classList.remove('reads');
      spans[query].classList.add('reads');
      outlined = query;
      find('strip').setAttribute('aria-activedescendant', 'token-' + query);
    }
    const here = new Set(state.matches);
    if (now.has('matches')) spans.forEach((span, i) => span.classList.toggle('match', here.has(i)));
    const says = find('strip-says');
    says.replaceChildren(named(query), ` attends to, in ${sourceName()}: `);
    says.append(...toldReads(weights, query, 4));
  }

  // The top keys of a query, as parts of a line.
  function toldReads(weights, query, most) {
    const {keys, rest} = qkv.reads(weights, query, most, state.hideFirst ? 1 : 0);
    const parts = keys.flatMap((j, i) => [i ? ', ' : '', named(j), ' ' + qkv.weight(weights, query, j)]);
    return rest ? [...parts, ', the rest ' + rest] : parts;
  }

  function named(i) {
    const bold = document.createElement('b');
    bold.textContent = labels[i];
    const text = document.createDocumentFragment();
    text.append(bold, ` (${i})`);
    return text;
  }

  function sourceName() {
    if (state.kind === 'layer') return `layer ${state.layer}, mean of heads`;
    if (state.kind === 'all') return 'the mean of all heads';
    if (state.kind === 'rollout') return `the rollout up to layer ${state.layer}`;
    return `layer ${state.layer} head ${state.head}`;
  }

  const strip = find('strip');
  strip.append(...spans);
  const at = (event) => event.target.dataset?.at;
  strip.addEventListener('pointerover', (event) => at(event) !== undefined && change({hover: Number(at(event))}));
  strip.addEventListener('pointerleave', () => change({hover: null}));
  strip.addEventListener('click', (event) => at(event) !== undefined && change({query: Number(at(event))}));
  strip.addEventListener('keydown', (event) => {
    const to = {ArrowLeft: state.query - 1, ArrowRight: state.query + 1, Home: 0, End: n - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setQuery(to);
    spans[state.query].scrollIntoView({block: 'nearest'});
  });

  const clamp = (value, last) => Math.max(0, Math.min(last, value));
  const setQuery = (to) => change({query: clamp(to, n - 1), hover: null});

  // --- text search: across tokens, case-insensitive ---

  const joined = data.texts.join('').toLowerCase();
  const owner = data.texts.flatMap((text, i) => Array(text.toLowerCase().length).fill(i));
  function search(text) {
    const wanted = text.toLowerCase(), matches = new Set(), firsts = [];
    for (let from = wanted ? joined.indexOf(wanted) : -1; from >= 0; from = joined.indexOf(wanted, from + 1)) {
      firsts.push(owner[from]);
      for (let c = from; c < from + wanted.length; ++c) matches.add(owner[c]);
    }
    for (const i of [...matches]) for (let part = i + 1; part < n && data.texts[part] === ''; ++part) matches.add(part);
    find('found').textContent = wanted ? (firsts.length ? `${firsts.length} found` : 'not found') : '';
    change({matches: [...matches], firsts: [...new Set(firsts)]});
    if (firsts.length) spans[firsts[0]].scrollIntoView({block: 'nearest'});
  }
  find('search').addEventListener('input', (event) => search(event.target.value));
  find('search').addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { event.target.value = ''; search(''); }
    if (event.key !== 'Enter' || !state.firsts?.length) return;
    event.preventDefault();
    const next = state.firsts.find((i) => i > state.query) ?? state.firsts[0];
    setQuery(next);
    spans[next].scrollIntoView({block: 'nearest'});
  });

  // --- switches ---

  const fill = (id, texts) => find(id).append(...texts.map((text, i) => new Option(text, i)));
  fill('layer', Array.from({length: L}, (_, l) => l));
  fill('head', Array.from({length: H}, (_, h) => h));
  fill('query', labels.map((label, i) => `${i} ${label}`));
  for (const [id, name] of [['own-scale', 'ownScale'], ['log', 'log'], ['hide-first', 'hideFirst'], ['sorted', 'sorted']]) {
    find(id).addEventListener('change', (event) => change({[name]: event.target.checked}));
  }
  for (const id of ['layer', 'head', 'query']) {
    find(id).addEventListener('change', (event) => change({[id]: Number(event.target.value)}));
  }
  find('kind').addEventListener('change', (event) => change({kind: event.target.value}));
  if (!qkv.hasRollout) find('kind').querySelector('[value=rollout]').remove();
  const turn = (name, by, count) => () => change({[name]: (state[name] + by + count) % count});
  for (const [name, count] of [['layer', L], ['head', H]]) {
    find(name + '-down').addEventListener('click', turn(name, -1, count));
    find(name + '-up').addEventListener('click', turn(name, 1, count));
  }

  function show(now) {  // sets the switches from the state
    for (const id of ['layer', 'head', 'query', 'kind']) if (now.has(id) || now.has('began')) find(id).value = state[id];
    if (now.has('heads') || now.has('view')) {
      find('kind').options[0].textContent = state.view === 'lines' && state.heads.size !== 1 ? `${state.heads.size} heads` : 'one head';
    }
    find('own-scale').checked = state.ownScale;
    find('log').checked = state.log;
    find('hide-first').checked = state.hideFirst;
    find('sorted').checked = state.sorted;
    find('head').disabled = find('head-up').disabled = find('head-down').disabled = state.kind !== 'head' && state.view !== 'steps';
    find('layer').disabled = find('layer-up').disabled = find('layer-down').disabled = state.kind === 'all' && state.view !== 'steps';
    if (now.has('view')) {
      for (const part of document.querySelectorAll('#toolbar [data-for]')) part.hidden = !part.dataset.for.split(' ').includes(state.view);
    }
  }

  // The scale of a view: from 0 (or a ten-thousandth) to the largest weight.
  function legend(id, most, text, log = state.log) {
    const box = find(id), strip = document.createElement('canvas');
    strip.width = 256;
    strip.height = 1;
    const context = strip.getContext('2d');
    qkv.colours.weights.forEach((colour, i) => { context.fillStyle = qkv.css(colour); context.fillRect(i, 0, 1, 1); });
    box.replaceChildren(...[log ? (most / 1e4).toPrecision(1) : '0', strip, most === 1 && state.ownScale && id === 'matrix-legend' ? qkv.nearlyAll : share(most), text].map((part) => {
      const item = document.createElement('span');
      item.append(part);
      return item;
    }));
  }

  Object.assign(qkv, {state, views, change, tone, hidden, named, toldReads, sourceName, setQuery, legend, turn, find, clamp});
})();
