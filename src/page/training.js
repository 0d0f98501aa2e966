
// The training report: charts, saved view settings, and auto-refresh.
(() => {
  const {Chart, prepare, grouped} = qkvChart;
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const data = JSON.parse(find('#data').textContent);
  document.documentElement.classList.add('scripted');

  // --- view settings, kept across reloads ---

  const key = 'qkv ' + location.pathname;
  const kept = (() => {
    try { return JSON.parse(sessionStorage.getItem(key)) || {}; } catch { return {}; }
  })();
  const lastStep = Math.max(1, data.step, ...Object.values(data.series).map((s) => (s.b || s.a).at(-1) || 0));
  const firstStep = Math.min(lastStep - 1, ...Object.values(data.series).map((s) => s.a.length ? s.a[0] : Infinity));
  const view = {
    from: firstStep, to: lastStep, cursor: null,
    smooth: kept.smooth ?? true, strength: kept.strength ?? 0.9, log: kept.log ?? false,
  };
  let span = kept.span || 'all';  // 'all', 'half', 'tenth', or [from, to]

  function show(range) {
    span = range;
    const length = lastStep - firstStep;
    view.from = range === 'half' ? lastStep - length / 2 : range === 'tenth' ? lastStep - length / 10 : firstStep;
    view.to = lastStep;
    if (Array.isArray(range)) {
      view.from = Math.max(firstStep, Math.min(range[0], lastStep - 1));
      view.to = Math.max(view.from + 1, Math.min(range[1], lastStep));
    }
    for (const button of all('[data-span]')) button.setAttribute('aria-pressed', String(button.dataset.span === range));
    find('#whole').hidden = !Array.isArray(range);
  }

  function keep() {
    const state = {
      smooth: view.smooth, strength: view.strength, log: view.log, span, live: find('#live')?.checked ?? true,
      top: scrollY, left: scrollX, cursor: view.cursor, focus: document.activeElement?.id || '',
      open: all('details[open]').map((d) => d.id), more: document.body.classList.contains('every-sample'),
      scrolled: all('.scroll').map((e) => [e.id, e.scrollTop, e.scrollLeft]),
    };
    try { sessionStorage.setItem(key, JSON.stringify(state)); } catch { /* no session storage */ }
  }

  // --- the charts ---

  const fixed = (digits) => (value) => value.toFixed(digits);
  const scientific = (value) => value === 0 ? '0' : value.toExponential(2);
  const figures = (value) => Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? scientific(value) :
      String(+value.toPrecision(4));
  const line = (name, kind, series, text, more) =>
    ({name, kind, series: prepare(data.series[series]), text, ...more});
  const byStep = {band: true, smoothable: true};
  const charts = [
    ['loss', {logarithmic: true, marks: data.marks, axis: qkvChart.short, lines: [
      line('training', 'train', 'loss', fixed(4), {...byStep, smoothName: 'smoothed'}),
      line('validation', 'valid', 'val_loss', fixed(4), {points: true}),
    ]}],
    ['rate', {fromZero: true, axis: qkvChart.short, lines: [line('learning rate', 'rate', 'learning_rate', scientific)]}],
    ['norm', {logarithmic: true, fromZero: true, axis: qkvChart.short,
      lines: [line('gradient norm', 'norm', 'grad_norm', figures, byStep)]}],
    ['speed', {fromZero: true, axis: qkvChart.short,
      lines: [line('tokens per second', 'speed', 'tokens_per_s', grouped, byStep)]}],
  ].map(([name, options]) => {
    const chart = new Chart(find('#plot-' + name), {name, ...options});
    chart.readout = find('#read-' + name);
    return chart;
  });

  function marksAt(chart) {
    if (view.cursor === null) return [];
    const reach = (view.to - view.from) / Math.max(1, chart.box?.w || 1) * 6;
    return chart.marks.filter((m) => m.first - reach <= view.cursor && view.cursor <= m.last + reach)
        .map((m) => ({name: m.label, kind: 'mark ' + m.kind,
          text: m.count > 1 ? `${grouped(m.count)} times, steps ${grouped(m.first)} to ${grouped(m.last)}` :
              `step ${grouped(m.first)}`}));
  }

  function read() {
    for (const chart of charts) {
      const values = chart.values(view), pieces = values.concat(marksAt(chart)).map((value) => {
        const piece = document.createElement('span'), name = document.createElement('span'),
          number = document.createElement('b');
        piece.className = 'value ' + value.kind;
        name.textContent = value.name;
        number.textContent = value.text;
        piece.append(name, ' ', number);
        return piece;
      });
      chart.readout.replaceChildren(...pieces);
      const step = view.cursor ?? lastStep;
      chart.plot.setAttribute('aria-valuenow', String(Math.round(step)));
      chart.plot.setAttribute('aria-valuetext', `step ${grouped(step)}: ` +
          (values.map((v) => `${v.name} ${v.text}`).join(', ') || 'nothing yet'));
    }
  }

  function pointAt(step) {
    view.cursor = step === null ? null : Math.round(Math.max(view.from, Math.min(view.to, step)));
    for (const chart of charts) chart.point(view);
    read();
  }

  function draw() {
    if (view.cursor !== null) view.cursor = Math.max(view.from, Math.min(view.to, view.cursor));
    read();  // also smooths
    for (const chart of charts) chart.draw(view);
  }

  let touched = 0;  // time of the last user action
  const busy = () => { touched = Date.now(); };

  function zoom(factor) {
    const middle = view.cursor ?? (view.from + view.to) / 2, length = (view.to - view.from) * factor;
    if (length >= lastStep - firstStep) return choose('all');
    const share = (middle - view.from) / (view.to - view.from || 1), from = middle - share * length;
    choose([from, from + Math.max(2, length)]);
  }

  function choose(range) {
    show(range);
    draw();
    keep();
  }

  for (const chart of charts) {
    const plot = chart.plot;
    let start = null, shade = null;
    plot.setAttribute('aria-valuemin', String(Math.round(firstStep)));
    plot.setAttribute('aria-valuemax', String(lastStep));
    const at = (event) => chart.step ? chart.step(event.clientX - plot.getBoundingClientRect().left) : firstStep;
    plot.addEventListener('pointermove', (event) => {
      busy();
      pointAt(at(event));
      if (start === null || event.pointerType === 'touch') return;
      shade = shade || plot.appendChild(Object.assign(document.createElement('div'), {className: 'shade'}));
      const a = chart.x(start), b = chart.x(view.cursor);
      Object.assign(shade.style, {left: Math.min(a, b) + 'px', width: Math.abs(a - b) + 'px'});
    });
    plot.addEventListener('pointerdown', (event) => {
      if (event.button === 0) start = Math.max(view.from, Math.min(view.to, at(event)));
      if (event.pointerType !== 'touch') plot.setPointerCapture(event.pointerId);
      pointAt(at(event));
    });
    plot.addEventListener('pointerup', (event) => {
      const from = start;
      start = null;
      shade?.remove();
      shade = null;
      if (from === null || event.pointerType === 'touch' || Math.abs(chart.x(from) - chart.x(view.cursor)) < 8) return;
      choose([Math.min(from, view.cursor), Math.max(from, view.cursor)]);
    });
    plot.addEventListener('pointerleave', () => { if (start === null && document.activeElement !== plot) pointAt(null); });
    plot.addEventListener('dblclick', () => choose('all'));
    plot.addEventListener('blur', () => pointAt(null));
    plot.addEventListener('keydown', (event) => {
      const series = chart.lines[0].series, count = series.x.length;
      if (!count || event.ctrlKey || event.metaKey || event.altKey) return;
      const now = view.cursor === null ? count - 1 : qkvChart.nearest(series, view.cursor), page = Math.ceil(count / 20);
      const to = {ArrowLeft: view.cursor === null ? now : now - 1, ArrowRight: now + 1, ArrowDown: now - 1,
        ArrowUp: now + 1, PageDown: now - page, PageUp: now + page, Home: 0, End: count - 1}[event.key];
      if (to !== undefined) pointAt(series.x[Math.max(0, Math.min(count - 1, to))]);
      else if (event.key === '+' || event.key === '=') zoom(0.5);
      else if (event.key === '-') zoom(2);
      else if (event.key === 'Escape' || event.key === '0') { pointAt(null); choose('all'); }
      else return;
      busy();
      event.preventDefault();
    });
  }

  // --- the controls ---

  const controls = {smooth: find('#smooth'), strength: find('#strength'), log: find('#log')};
  controls.smooth.checked = view.smooth;
  controls.strength.value = String(Math.round(100 * view.strength));
  controls.log.checked = view.log;
  controls.strength.disabled = !view.smooth;
  function changed() {
    view.smooth = controls.smooth.checked;
    view.strength = Math.min(0.99, controls.strength.value / 100);
    view.log = controls.log.checked;
    controls.strength.disabled = !view.smooth;
    busy();
    draw();
    keep();
  }
  for (const control of Object.values(controls)) control.addEventListener('input', changed);
  for (const button of all('[data-span]')) button.addEventListener('click', () => choose(button.dataset.span));
  find('#whole').addEventListener('click', () => choose('all'));
  find('#more')?.addEventListener('click', () => { document.body.classList.add('every-sample'); keep(); });
  for (const button of all('[data-step]')) {
    button.addEventListener('click', () => {
      find('#plot-loss').focus({preventScroll: true});
      find('#charts').scrollIntoView({block: 'start'});
      if (+button.dataset.step < view.from || +button.dataset.step > view.to) choose('all');
      pointAt(+button.dataset.step);
    });
  }

  // --- restore the view after a reload ---

  if (kept.more) document.body.classList.add('every-sample');
  for (const id of kept.open || []) document.getElementById(id)?.setAttribute('open', '');
  show(span);
  draw();
  if (kept.cursor !== undefined && kept.cursor !== null) pointAt(kept.cursor);
  if (kept.top !== undefined) {
    history.scrollRestoration = 'manual';
    scrollTo({left: kept.left, top: kept.top, behavior: 'instant'});
  }
  for (const [id, top, left] of kept.scrolled || []) document.getElementById(id)?.scrollTo(left, top);
  if (kept.focus) document.getElementById(kept.focus)?.focus({preventScroll: true});
  new ResizeObserver(() => draw()).observe(find('#plot-loss'));
  addEventListener('pagehide', keep);

  // --- auto-refresh ---

  const live = find('#live');
  if (live) live.checked = kept.live ?? true;
  const age = find('#age');
  function tell() {
    const seconds = Math.max(0, Date.now() / 1000 - data.written);
    const minutes = Math.round(seconds / 60), hours = Math.round(seconds / 3600);
    age.textContent = seconds < 60 ? 'just now' : minutes < 60 ? `${minutes} min ago` : hours < 48 ? `${hours} h ago` :
        `${Math.round(hours / 24)} days ago`;
    const silent = data.refresh > 0 && seconds > 60 + 12 * data.refresh;
    document.body.classList.toggle('silent', silent);
    find('#silent').hidden = !silent;
  }
  tell();
  setInterval(tell, 5000);
  if (live) {
    const loaded = Date.now();
    setInterval(() => {
      const reading = Date.now() - touched < 4000 || !getSelection().isCollapsed;
      if (!live.checked || document.hidden || reading || Date.now() - loaded < 1000 * data.refresh) return;
      keep();
      location.reload();
    }, 500);
  }
})();
