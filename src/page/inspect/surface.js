// SPDX-License-Identifier: Apache-2.0
'use strict';

// One drawing interface with two targets: canvas (animation, PNG files) and SVG (text, SVG files).
(() => {
  const sans = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK JP", "DejaVu Sans", sans-serif';
  const mono = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Noto Sans Mono CJK JP", monospace';
  const font = (o) => `${o.weight || 400} ${o.size || 13}px ${o.mono ? mono : sans}`;
  const measure = document.createElement('canvas').getContext('2d');

  // The text, truncated to a width with an ellipsis, between characters.
  const fitted = new Map();
  function fit(text, width, o) {
    const key = `${width} ${o.size} ${o.mono} ${o.weight} ${text}`;
    if (fitted.has(key)) return fitted.get(key);
    measure.font = font(o);
    let shown = text;
    if (measure.measureText(text).width > width) {
      const characters = [...text];
      let low = 0, high = characters.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (measure.measureText(characters.slice(0, middle).join('') + '…').width <= width) low = middle;
        else high = middle - 1;
      }
      shown = characters.slice(0, low).join('') + '…';
    }
    if (fitted.size > 20000) fitted.clear();
    fitted.set(key, shown);
    return shown;
  }

  const widths = new Map();
  function textWidth(text, o) {
    const key = `${o.size} ${o.mono} ${o.weight} ${text}`;
    if (!widths.has(key)) {
      measure.font = font(o);
      widths.set(key, measure.measureText(text).width);
    }
    return widths.get(key);
  }

  class CanvasSurface {
    constructor(context) { this.context = context; }

    rect(x, y, w, h, o) {
      const c = this.context;
      c.globalAlpha = o.opacity ?? 1;
      c.beginPath();
      if (o.radius) c.roundRect(x, y, w, h, o.radius); else c.rect(x, y, w, h);
      if (o.fill) { c.fillStyle = o.fill; c.fill(); }
      if (o.stroke) { c.strokeStyle = o.stroke; c.lineWidth = o.width || 1; c.stroke(); }
      c.globalAlpha = 1;
    }

    // list: [[x, y, w, h], ...], all in one color.
    rects(list, o) {
      const c = this.context;
      c.globalAlpha = o.opacity ?? 1;
      c.fillStyle = o.fill;
      for (const [x, y, w, h] of list) c.fillRect(x, y, w, h);
      c.globalAlpha = 1;
    }

    // points: [[x, y], ...]; curve: an S-curve with horizontal ends.
    path(points, o) {
      const c = this.context;
      c.globalAlpha = o.opacity ?? 1;
      c.strokeStyle = o.stroke;
      c.lineWidth = o.width || 1;
      c.setLineDash(o.dash || []);
      c.beginPath();
      c.moveTo(points[0][0], points[0][1]);
      if (o.curve) {
        const [[x, y], [u, v]] = points, middle = (x + u) / 2;
        c.bezierCurveTo(middle, y, middle, v, u, v);
      } else for (let i = 1; i < points.length; ++i) c.lineTo(points[i][0], points[i][1]);
      c.stroke();
      c.setLineDash([]);
      c.globalAlpha = 1;
    }

    text(x, y, text, o) {
      const c = this.context;
      c.globalAlpha = o.opacity ?? 1;
      c.font = font(o);
      c.fillStyle = o.fill;
      c.textAlign = o.align || 'left';
      c.textBaseline = 'alphabetic';
      c.direction = 'ltr';
      const shown = o.max ? fit(text, o.max, o) : text;
      if (o.turned) {
        c.save();
        c.translate(x, y);
        c.rotate(-Math.PI / 2);
        c.fillText(shown, 0, 0);
        c.restore();
      } else c.fillText(shown, x, y);
      c.globalAlpha = 1;
    }

    image(picture, x, y, w, h, from) {  // from: [x, y, w, h] in the picture
      this.context.imageSmoothingEnabled = false;
      if (from) this.context.drawImage(picture, ...from, x, y, w, h);
      else this.context.drawImage(picture, x, y, w, h);
    }

    group(x, y, draw) {
      this.context.save();
      this.context.translate(x, y);
      draw();
      this.context.restore();
    }

    clipped(x, y, w, h, draw) {
      this.context.save();
      this.context.beginPath();
      this.context.rect(x, y, w, h);
      this.context.clip();
      draw();
      this.context.restore();
    }
  }

  // When redrawn, a surface keeps its elements and changes only differences, since most of a view is unchanged.
  let clips = 0;
  const set = new WeakMap();  // the attributes of each element
  class SvgSurface {
    constructor(width, height) {
      this.root = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      this.parent = this.root;
      this.next = null;  // the next existing element in parent, if any
      this.set(this.root, {width, height, viewBox: `0 0 ${width} ${height}`});
    }

    again(width, height, draw) {
      this.set(this.root, {width, height, viewBox: `0 0 ${width} ${height}`});
      this.inside(this.root, draw);
    }

    set(element, attributes) {
      const before = set.get(element);
      for (const name in attributes) {
        let value = attributes[name] ?? null;
        if (typeof value === 'number') attributes[name] = value = Math.round(value * 100) / 100;
        if (before ? before[name] === value : value === null) continue;
        if (value === null) element.removeAttribute(name); else element.setAttribute(name, value);
      }
      for (const name in before) if (!(name in attributes)) element.removeAttribute(name);
      set.set(element, attributes);
      return element;
    }

    add(name, attributes) {
      let made = this.next;
      if (made?.nodeName === name) this.next = made.nextSibling;
      else made = this.parent.insertBefore(document.createElementNS('http://www.w3.org/2000/svg', name), this.next);
      return this.set(made, attributes);
    }

    inside(element, draw) {
      const outer = [this.parent, this.next];
      this.parent = element;
      this.next = element.firstChild;
      draw(this);
      while (this.next) {
        const left = this.next;
        this.next = left.nextSibling;
        left.remove();
      }
      [this.parent, this.next] = outer;
    }

    group(x, y, draw) {
      this.inside(this.add('g', {transform: x || y ? `translate(${Math.round(x * 100) / 100} ${Math.round(y * 100) / 100})` : null}), draw);
    }

    rect(x, y, w, h, o) {
      this.add('rect', {x, y, width: Math.max(0, w), height: Math.max(0, h), fill: o.fill || 'none', stroke: o.stroke ?? null,
        'stroke-width': o.stroke ? o.width || 1 : null, opacity: o.opacity ?? null, rx: o.radius ?? null, 'data-name': o.name ?? null});
    }

    rects(list, o) {
      this.add('path', {d: list.map(([x, y, w, h]) => `M${x.toFixed(1)} ${y.toFixed(1)}h${w.toFixed(1)}v${h.toFixed(1)}h${(-w).toFixed(1)}z`).join(''),
        fill: o.fill, opacity: o.opacity ?? null});
    }

    path(points, o) {
      const at = ([x, y]) => x.toFixed(1) + ' ' + y.toFixed(1);
      const [a, b] = points, middle = o.curve ? ((a[0] + b[0]) / 2).toFixed(1) : 0;
      const d = o.curve ? `M${at(a)}C${middle} ${a[1].toFixed(1)} ${middle} ${b[1].toFixed(1)} ${at(b)}` : 'M' + points.map(at).join('L');
      this.add('path', {d, fill: 'none', stroke: o.stroke, 'stroke-width': o.width || 1, opacity: o.opacity ?? null,
        'stroke-dasharray': o.dash?.join(' ') ?? null});
    }

    text(x, y, text, o) {
      const made = this.add('text', {x, y, fill: o.fill, opacity: o.opacity ?? null, 'font-size': o.size || 13,
        'font-weight': o.weight ?? null, 'font-family': o.mono ? mono : sans, 'data-name': o.name ?? null, style: 'white-space:pre',
        'text-anchor': {right: 'end', center: 'middle'}[o.align] ?? null, transform: o.turned ? `rotate(-90 ${x} ${y})` : null});
      const shown = o.max ? fit(text, o.max, o) : text;
      if (!made.firstChild) made.textContent = shown; else if (made.firstChild.data !== shown) made.firstChild.data = shown;
    }

    image(picture, x, y, w, h, from) {
      let shown = picture;
      if (from) {
        shown = document.createElement('canvas');
        shown.width = from[2];
        shown.height = from[3];
        shown.getContext('2d').drawImage(picture, ...from, 0, 0, from[2], from[3]);
      }
      this.add('image', {href: shown.toDataURL('image/png'), x, y, width: w, height: h, preserveAspectRatio: 'none',
        style: 'image-rendering: pixelated'});
    }

    clipped(x, y, w, h, draw) {
      const id = 'clip' + ++clips;
      this.inside(this.add('clipPath', {id}), () => this.rect(x, y, w, h, {fill: '#000'}));
      this.inside(this.add('g', {'clip-path': `url(#${id})`}), draw);
    }
  }

  // Sizes a canvas to its element in device pixels. Returns the cleared surface.
  function onCanvas(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1, w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return new CanvasSurface(context);
  }

  Object.assign(qkv, {CanvasSurface, SvgSurface, onCanvas, textWidth});
})();
