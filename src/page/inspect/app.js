// SPDX-License-Identifier: Apache-2.0
'use strict';

// The page as a whole: header, views, keyboard, light and dark theme, export.
(() => {
  const {data, n, L, H, state, views, find} = qkv;
  const tabs = [...document.querySelectorAll('[role=tab]')];

  // --- header and footer ---

  find('title').textContent = data.model || 'A model';
  const fact = (name, value) => {
    const span = document.createElement('span'), bold = document.createElement('b');
    bold.textContent = value;
    span.append(bold, ' ' + name);
    return span;
  };
  find('facts').append(fact(L === 1 ? 'layer' : 'layers', L), fact(H === 1 ? 'head per layer' : 'heads per layer', H),
    ...(data.kvHeads < H ? [fact('key heads', data.kvHeads)] : []), fact(n === 1 ? 'token' : 'tokens', n), fact('head dim', data.dk),
    ...data.facts.map(([name, value]) => fact(name, value)));
  const share = data.weightPower === 3 ? 'cube' : 'square', half = (qkv.weightError(1) || 0.5 / data.weightPeak);
  const bits = [...new Set(data.vectorBits)].filter((each) => each).sort((a, b) => b - a), missing = data.vectorBits.filter((each) => !each).length;
  const steps = bits.map((each) => '1/' + (2 ** (each - 1) - 1).toLocaleString('en-US')).join(' or ');
  find('precision').textContent = 'Precision of the stored values: weights as the ' + share + ' of one of ' +
    (data.weightPeak + 1).toLocaleString('en-US') + ` levels (error at most ${half.toPrecision(1)} near 1, smaller below); scores ` +
    (data.scoreBits ? `in ${(2 ** data.scoreBits).toLocaleString('en-US')} levels between the minimum and maximum of their row` :
      'computed from the weights: score = ln(weight) + log-sum-exp of the row') +
    `; q, k, v and z in steps of ${steps} of the largest component of each vector` +
    (bits.length > 1 ? ', finest for the highest-ranked heads' : '') +
    (missing ? `; omitted for ${missing} groups of heads that did not fit` : '') +
    ('. Numbers show only significant digits. Means over heads and the rollout are computed from these weights.');

  // --- views ---

  function open(view) {
    for (const tab of tabs) {
      const here = tab.dataset.view === view;
      tab.setAttribute('aria-selected', String(here));
      tab.tabIndex = here ? 0 : -1;
    }
    for (const name of Object.keys(views)) find('view-' + name).hidden = name !== view;
    find('panel').setAttribute('aria-labelledby', 'tab-' + view);
    qkv.change({view, hover: null});
  }
  qkv.open = open;
  for (const tab of tabs) tab.addEventListener('click', () => open(tab.dataset.view));
  document.querySelector('.tabs').addEventListener('keydown', (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!by) return;
    event.preventDefault();
    const next = tabs[(tabs.findIndex((tab) => tab.dataset.view === state.view) + by + tabs.length) % tabs.length];
    open(next.dataset.view);
    next.focus();
  });

  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const turns = {'[': ['head', -1, H], ']': ['head', 1, H], '{': ['layer', -1, L], '}': ['layer', 1, L]}[event.key];
    if (turns) qkv.turn(...turns)();
    else if (event.key === ',' || event.key === '.') qkv.setQuery(state.query + (event.key === '.' ? 1 : -1));
    else if (event.key >= '1' && event.key <= '5') open(tabs[event.key - 1].dataset.view);
    else if (event.key === '/') find('search').focus();
    else return;
    event.preventDefault();
  });

  // --- theme ---

  const dark = matchMedia('(prefers-color-scheme: dark)');
  function theme(choice) {
    const root = document.documentElement;
    if (choice === 'auto') delete root.dataset.theme; else root.dataset.theme = choice;
    const now = choice === 'auto' ? dark.matches : choice === 'dark';
    root.classList.toggle('dark', now);
    for (const button of document.querySelectorAll('[data-theme-choice]')) {
      button.setAttribute('aria-pressed', String(button.dataset.themeChoice === choice));
    }
    qkv.change({theme: choice + now});
  }
  let chosen = 'auto';
  for (const button of document.querySelectorAll('[data-theme-choice]')) {
    button.addEventListener('click', () => theme(chosen = button.dataset.themeChoice));
  }
  dark.addEventListener('change', () => theme(chosen));

  // --- export ---

  function save(name, kind, parts) {
    const link = document.createElement('a'), url = URL.createObjectURL(new Blob(parts, {type: kind}));
    link.href = url;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
  const file = (ending) => `${data.model || 'model'} ${views[state.view].name()}`.replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 80) + ending;
  const cell = (value) => {
    const text = String(value);
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  // Spreadsheets interpret text that starts with = + - or @ as a formula; an apostrophe prevents that.
  const harmless = (value) => typeof value === 'string' && /^[=+\-@\t]/.test(value) && value !== '-inf' ? "'" + value : value;
  const csv = () => views[state.view].csv().map((row) => row.map((value) => cell(harmless(value))).join(',')).join('\r\n') + '\r\n';

  function svg() {
    const {width, height, draw} = views[state.view].figure(), border = 16, surface = new qkv.SvgSurface(width + 2 * border, height + 2 * border);
    surface.rect(0, 0, width + 2 * border, height + 2 * border, {fill: qkv.colours.card});
    surface.group(border, border, () => draw(surface));
    return new XMLSerializer().serializeToString(surface.root);
  }

  // Twice the screen resolution, within the browser's canvas limit.
  function png(take) {
    const {width, height, draw} = views[state.view].figure(), border = 16, canvas = document.createElement('canvas');
    const scale = Math.min(2, 16000 / (height + 2 * border), 16000 / (width + 2 * border));
    canvas.width = Math.ceil((width + 2 * border) * scale);
    canvas.height = Math.ceil((height + 2 * border) * scale);
    const context = canvas.getContext('2d'), surface = new qkv.CanvasSurface(context);
    context.scale(scale, scale);
    surface.rect(0, 0, width + 2 * border, height + 2 * border, {fill: qkv.colours.card});
    context.translate(border, border);
    draw(surface);
    canvas.toBlob(take, 'image/png');
  }
  qkv.exports = {csv, svg, png};
  find('save-csv').addEventListener('click', () => save(file('.csv'), 'text/csv', ['\ufeff', csv()]));
  find('save-svg').addEventListener('click', () => save(file('.svg'), 'image/svg+xml', [svg()]));
  find('save-png').addEventListener('click', () => png((blob) => save(file('.png'), 'image/png', [blob])));

  // --- start ---

  // On phones the height changes with the browser's bars, so it is ignored.
  const sizeNow = () => innerWidth + (innerWidth > 980 ? ' ' + innerHeight : '');
  addEventListener('resize', () => qkv.change({size: sizeNow()}));

  find('strip-says').textContent = 'unpacking …';
  theme('auto');
  open('model');
  qkv.load(() => {}).then(() => {
    state.loaded = true;
    qkv.change({...qkv.heads.begin(), began: true, size: sizeNow()});
    document.documentElement.dataset.ready = 'yes';
  });
})();
