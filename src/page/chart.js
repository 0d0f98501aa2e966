// SPDX-License-Identifier: Apache-2.0
'use strict';

// Line charts over the steps of a run, as SVG. All charts share the visible range and the selected step.
const qkvChart = (() => {
  const margin = {left: 54, right: 14, top: 10, bottom: 24};

  function element(name, attributes, parent) {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key of Object.keys(attributes)) made.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(made);
    return made;
  }

  // --- number formatting ---

  const grouped = (value) => Math.round(value).toLocaleString('en-US');

  function short(value) {  // axis labels
    const size = Math.abs(value);
    if (value === 0) return '0';
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + 'M';
    if (size >= 1e4) return +(value / 1e3).toPrecision(3) + 'k';
    if (size >= 1e-3) return String(+value.toPrecision(4));
    return value.toExponential(1).replace('.0e', 'e');
  }

  function niceStep(span, count) {
    const raw = span / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw)), part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
  }

  function linearTicks(low, high, count) {
    const step = niceStep(high - low, count), ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(i * step);
    return ticks;
  }

  function logTicks(low, high, count) {
    const ticks = [], decades = Math.log10(high / low), parts = decades > count ? [1] : decades > 1.5 ? [1, 2, 5] :
        [1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
    const every = Math.max(1, Math.ceil(decades / count));
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
      if (e % every) continue;
      for (const part of parts) {
        const value = part * 10 ** e;
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push(value);
      }
    }
    return ticks.length > 1 ? ticks : linearTicks(low, high, count);
  }

  // --- series ---

  // {a: first steps, b: last steps (absent: the same), mean, least, greatest (absent: the same)}
  function prepare(data) {
    const last = data.b || data.a;
    return {
      x: data.a.map((first, i) => (first + last[i]) / 2), first: data.a, last,
      mean: data.mean, least: data.least || data.mean, greatest: data.greatest || data.mean,
      joined: Boolean(data.b), smooth: data.mean, strength: 0,
    };
  }

  // Exponential moving average; each value weighs `strength` times the next one.
  function smoothed(series, strength) {
    if (series.strength === strength) return series.smooth;
    let sum = 0, weight = 0;
    series.strength = strength;
    series.smooth = strength === 0 ? series.mean : series.mean.map((value) => {
      sum = strength * sum + (1 - strength) * value;
      weight = strength * weight + (1 - strength);
      return sum / weight;
    });
    return series.smooth;
  }

  function nearest(series, step) {
    let low = 0, high = series.x.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (series.x[middle] < step) low = middle + 1; else high = middle;
    }
    if (low > 0 && step - series.x[low - 1] < series.x[low] - step) --low;
    return low;
  }

  // The visible range. On a linear scale a few values far above the rest would flatten the chart: they are cut off at
  // the top and marked by an arrow.
  function limits(chart, view) {
    let low = Infinity, high = -Infinity;
    const tops = [];
    for (const line of chart.lines) {
      const s = line.series;
      for (let i = 0; i < s.x.length; ++i) {
        if (s.last[i] < view.from || s.first[i] > view.to) continue;
        if (chart.log && s.least[i] <= 0) continue;
        low = Math.min(low, s.least[i]);
        high = Math.max(high, s.greatest[i]);
        tops.push(s.greatest[i]);
      }
    }
    if (low > high) return chart.log ? [1, 10] : [0, 1];
    tops.sort((a, b) => a - b);
    const usual = tops[Math.floor(0.97 * (tops.length - 1))];
    if (!chart.log && low >= 0 && tops.length > 20 && high > 4 * usual) high = 1.5 * usual;
    if (chart.log) {
      if (low === high) return [low / 2, high * 2];
      const room = (high / low) ** 0.04;
      return [low / room, high * room];
    }
    if (chart.fromZero && low > 0) low = 0;
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 ? 0 : low - room, high + room];
  }

  class Chart {
    // plot: an empty element. lines: [{name, kind, series, band, points, smoothable, text}]
    constructor(plot, options) {
      Object.assign(this, {log: false, fromZero: false, marks: []}, options);
      this.plot = plot;
      this.root = element('svg', {'aria-hidden': 'true', focusable: 'false'}, plot);
    }

    draw(view) {
      const width = this.plot.clientWidth, height = this.plot.clientHeight;
      if (width < 80 || height < 60) return;
      this.log = this.logarithmic && view.log;
      const box = {x: margin.left, y: margin.top, w: width - margin.left - margin.right,
        h: height - margin.top - margin.bottom};
      const [low, high] = limits(this, view), span = view.to - view.from || 1;
      this.box = box;
      this.x = (step) => box.x + (step - view.from) / span * box.w;
      this.step = (x) => view.from + (x - box.x) / box.w * span;
      const unit = this.log ? (v) => Math.log(v / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
      this.y = (value) => box.y + box.h - Math.max(-0.1, Math.min(1.1, unit(value))) * box.h;
      this.high = high;
      this.root.replaceChildren();
      this.root.setAttribute('viewBox', `0 0 ${width} ${height}`);
      const clip = element('clipPath', {id: 'clip-' + this.name}, this.root);
      element('rect', {x: box.x - 2, y: box.y - 4, width: box.w + 4, height: box.h + 5}, clip);
      this.drawAxes(view, low, high);
      this.drawing = element('g', {'clip-path': `url(#clip-${this.name})`}, this.root);
      this.drawMarks(view);
      for (const line of this.lines) this.drawLine(line, view);
      this.pointer = element('g', {}, this.root);
      this.point(view);
    }

    drawAxes(view, low, high) {
      const {box} = this, axes = element('g', {class: 'axes'}, this.root);
      const rows = Math.max(3, Math.floor(box.h / 36)), columns = Math.max(2, Math.floor(box.w / 75));
      let above = Infinity;
      this.ticks = [];
      for (const tick of this.log ? logTicks(low, high, rows) : linearTicks(low, high, rows)) {
        const y = this.y(tick);
        if (above - y < 15) continue;
        above = y;
        element('line', {x1: box.x, x2: box.x + box.w, y1: y, y2: y}, axes);
        element('text', {x: box.x - 8, y: y + 4, class: 'y'}, axes).textContent = this.axis(tick);
      }
      for (const tick of linearTicks(view.from, view.to, columns)) {
        if (tick % 1) continue;
        const x = Math.min(this.x(tick), box.x + box.w - 2);
        const label = element('text', {x, y: box.y + box.h + 17, class: 'x'}, axes);
        label.textContent = tick < 1e5 ? grouped(tick) : short(tick);
        this.ticks.push([x, label]);
      }
      element('line', {x1: box.x, x2: box.x + box.w, y1: box.y + box.h, y2: box.y + box.h, class: 'base'}, axes);
    }

    path(series, values) {
      const parts = [];
      for (let i = 0; i < values.length; ++i) {
        if (this.log && values[i] <= 0) continue;
        parts.push(this.x(series.x[i]).toFixed(1) + ' ' + this.y(values[i]).toFixed(1));
      }
      return parts.length ? 'M' + parts.join('L') : '';
    }

    drawLine(line, view) {
      const s = line.series, smooth = line.smoothable && view.smooth ? view.strength : 0;
      if (!s.x.length) return;
      const least = this.log ? Math.min(...s.mean.filter((v) => v > 0), Infinity) : 0;
      if (line.band && s.joined) {
        const down = [];
        for (let i = s.x.length - 1; i >= 0; --i) {
          const value = this.log ? Math.max(s.least[i], least) : s.least[i];
          down.push(this.x(s.x[i]).toFixed(1) + ' ' + this.y(value).toFixed(1));
        }
        const up = this.path(s, s.greatest);
        if (up) element('path', {d: up + 'L' + down.join('L') + 'Z', class: 'band ' + line.kind}, this.drawing);
      }
      if (smooth) element('path', {d: this.path(s, s.mean), class: 'line raw ' + line.kind}, this.drawing);
      element('path', {d: this.path(s, smoothed(s, smooth)), class: 'line ' + line.kind}, this.drawing);
      for (let i = 0; i < s.x.length; ++i) {
        const x = this.x(s.x[i]);
        if (!this.log && s.greatest[i] > this.high) {
          element('path', {d: `M${x - 4} ${this.box.y + 3}h8l-4 -6z`, class: 'beyond ' + line.kind}, this.drawing);
        } else if (line.points && s.x.length <= 60 || s.x.length === 1) {
          element('circle', {cx: x, cy: this.y(s.mean[i]), r: 3, class: 'dot ' + line.kind}, this.drawing);
        }
      }
    }

    drawMarks(view) {
      const {box} = this, bottom = box.y + box.h;
      for (const mark of this.marks) {
        if (mark.last < view.from || mark.first > view.to) continue;
        const x = this.x((mark.first + mark.last) / 2), y = bottom - 9;
        if (mark.kind === 'resumed') {
          element('line', {x1: x, x2: x, y1: box.y, y2: bottom, class: 'mark resumed'}, this.drawing);
        } else if (mark.kind === 'skipped') {
          element('path', {d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`, class: 'mark skipped'}, this.drawing);
        } else if (mark.kind === 'spike') {
          element('path', {d: `M${x - 5} ${y + 4}h10l-5 -9z`, class: 'mark spike'}, this.drawing);
        } else {
          element('circle', {cx: x, cy: y, r: 4.5, class: 'mark repeats'}, this.drawing);
        }
      }
    }

    // The crosshair at the selected step, if any.
    point(view) {
      if (!this.pointer) return;
      this.pointer.replaceChildren();
      for (const [, label] of this.ticks) label.removeAttribute('visibility');
      if (view.cursor === null || view.cursor < view.from || view.cursor > view.to) return;
      const {box} = this, x = this.x(view.cursor);
      element('line', {x1: x, x2: x, y1: box.y, y2: box.y + box.h, class: 'crosshair'}, this.pointer);
      for (const line of this.lines) {
        const s = line.series;
        if (!s.x.length) continue;
        const i = nearest(s, view.cursor), values = line.smoothable && view.smooth ? s.smooth : s.mean;
        if (this.log && values[i] <= 0) continue;
        element('circle', {cx: this.x(s.x[i]), cy: Math.max(box.y, this.y(values[i])), r: 4,
          class: 'dot here ' + line.kind}, this.pointer);
      }
      const label = element('text', {x: Math.max(box.x + 20, Math.min(x, box.x + box.w - 20)), y: box.y + box.h + 17,
        class: 'here'}, this.pointer);
      label.textContent = grouped(view.cursor);
      for (const [at, tick] of this.ticks) {
        if (Math.abs(at - x) < 22 + 4 * label.textContent.length) tick.setAttribute('visibility', 'hidden');
      }
    }

    // [{name, kind, text}] at the selected step, or at the latest one.
    values(view) {
      const found = [];
      for (const line of this.lines) {
        const s = line.series;
        if (!s.x.length) continue;
        const i = view.cursor === null ? s.x.length - 1 : nearest(s, view.cursor);
        let text = line.text(s.mean[i]);
        if (line.points && view.cursor !== null && s.first[i] !== view.cursor) text += ` at step ${grouped(s.last[i])}`;
        if (s.first[i] !== s.last[i] && line.band) text += ` (${line.text(s.least[i])} to ${line.text(s.greatest[i])})`;
        found.push({name: line.name, kind: line.kind, text});
        if (line.smoothable && view.smooth && line.smoothName)
          found.push({name: line.smoothName, kind: line.kind + ' smooth', text: line.text(smoothed(s, view.strength)[i])});
      }
      return found;
    }
  }

  return {Chart, prepare, nearest, grouped, short};
})();
