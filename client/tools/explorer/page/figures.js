// Figures: curves and dots as SVG, tables of numbers as a canvas. Each figure
// has a caption with its finding, a cursor that arrow keys move, and a table of
// its numbers.

const MOST_POINTS = 512;

function make(tag, attributes, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'circle', 'text', 'rect'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function number(value) {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return String(Number(value.toPrecision(6)));
}

function percent(value) {
  return number(Math.round(value * 1000) / 10) + ' %';
}

// At most MOST_POINTS of the indices of xs, evenly spaced on a logarithmic
// axis, including the first and the last.
function thin(xs) {
  if (xs.length <= MOST_POINTS) return xs.map((x, i) => i);
  const chosen = [0];
  const low = Math.log(Math.max(xs[0], 1));
  const step = (Math.log(xs[xs.length - 1]) - low) / (MOST_POINTS - 2);
  for (let i = 1, next = 0; i < xs.length - 1; ++i) {
    if (Math.log(Math.max(xs[i], 1)) - low < next * step) continue;
    chosen.push(i);
    next = Math.floor((Math.log(Math.max(xs[i], 1)) - low) / step) + 1;
  }
  chosen.push(xs.length - 1);
  return chosen;
}

function scale(low, high, from, to, logarithmic) {
  const of = logarithmic ? x => Math.log(Math.max(x, low)) : x => x;
  const span = of(high) - of(low) || 1;
  return x => from + (of(x) - of(low)) / span * (to - from);
}

// Ticks of a decimal logarithmic axis: 1, 10, 100, ...
function decades(low, high) {
  const ticks = [];
  for (let x = 10 ** Math.floor(Math.log10(low)); x <= high * 1.0001; x *= 10) {
    if (x >= low * 0.9999) ticks.push(x);
  }
  return ticks;
}

function short(x) {
  if (x === 0) return '0';
  if (x < 0) return '-' + short(-x);
  if (x >= 1e15 || x < 1e-3) return x.toExponential(0);
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (x >= unit) return number(x / unit) + name;
  }
  return number(x);
}

function frame(width, height, x, y, xTicks, yTicks, names) {
  const box = {left: 44, right: width - 10, top: 10, bottom: height - 34};
  const svg = make('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  const toX = scale(x.low, x.high, box.left, box.right, x.logarithmic);
  const toY = scale(y.low, y.high, box.bottom, box.top, y.logarithmic);
  for (const tick of xTicks) {
    svg.append(make('line', {class: 'grid', x1: toX(tick), x2: toX(tick), y1: box.top, y2: box.bottom}),
               make('text', {x: toX(tick), y: box.bottom + 14, 'text-anchor': 'middle'}, short(tick)));
  }
  for (const tick of yTicks) {
    svg.append(make('line', {class: 'grid', x1: box.left, x2: box.right, y1: toY(tick), y2: toY(tick)}),
               make('text', {x: box.left - 5, y: toY(tick) + 4, 'text-anchor': 'end'}, short(tick)));
  }
  svg.append(make('path', {class: 'axis', d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`}),
             make('text', {x: box.right, y: height - 4, 'text-anchor': 'end'}, names.x));
  return {svg, toX, toY, box};
}

function markX(plot, x, label) {
  const at = plot.toX(x);
  plot.svg.append(
      make('line', {class: 'mark', x1: at, x2: at, y1: plot.box.top, y2: plot.box.bottom, 'data-mark': x}),
      make('text', {x: at - 4, y: plot.box.top + 11, 'text-anchor': 'end'}, label));
}

function markY(plot, y, label) {
  const at = plot.toY(y);
  plot.svg.append(
      make('line', {class: 'mark', x1: plot.box.left, x2: plot.box.right, y1: at, y2: at, 'data-mark': y}),
      make('text', {x: plot.box.left + 4, y: at - 4}, label));
}

function legend(series) {
  const list = make('ul', {class: 'legend'});
  for (const {name, style, dots} of series) {
    const sample = make('svg', {viewBox: '0 0 40 12', class: style, 'aria-hidden': 'true'});
    sample.append(dots ? make('circle', {class: 'dot', cx: 20, cy: 6, r: 4})
                       : make('path', {class: 'curve', d: 'M0 6H40'}));
    list.append(make('li', {}, sample, ' ', make('span', {}, name)));
  }
  return list;
}

// A range input that moves the cursor, and a text about the cursor's position.
function cursorRow(label, most, value, tell) {
  const input = make('input', {type: 'range', min: 0, max: most, step: 1, value});
  const output = make('output');
  const show = () => {
    const text = tell(Number(input.value));
    output.textContent = text;
    input.setAttribute('aria-valuetext', text);
  };
  input.addEventListener('input', show);
  show();
  return make('div', {class: 'cursor-row'}, make('label', {}, label, ' ', input), output);
}

// A table that is made when it is first opened.
function disclosed(summary, head, rows) {
  const details = make('details', {}, make('summary', {}, summary));
  details.addEventListener('toggle', () => {
    if (details.children.length > 1) return;
    const body = make('tbody');
    for (const row of rows()) {
      body.append(make('tr', {}, ...row.map((cell, i) => i === 0 ? make('th', {scope: 'row'}, cell) : make('td', {}, cell))));
    }
    details.append(make('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': summary},
        make('table', {}, make('thead', {}, make('tr', {}, ...head.map(name => make('th', {scope: 'col'}, name)))), body)));
  });
  return details;
}

let captions = 0;

// Fills a figure with its parts, and labels the picture by its caption.
function fill(figure, picture, caption, ...rest) {
  captions += 1;
  const text = make('figcaption', {id: 'caption-' + captions}, caption);
  picture.setAttribute('aria-labelledby', text.id);
  figure.replaceChildren(picture, text, ...rest);
}

// Draws curves over distances. Each curve is {name, style, ys} in `series`; all
// curves have the same xs.
function curves(figure, {xs, series, low, high, mark, markLabel, caption, xName}) {
  const width = Math.max(300, Math.round(figure.clientWidth || 640));
  const last = xs[xs.length - 1];
  const yTicks = [];
  for (let y = Math.ceil(low * 4) / 4; y <= high + 1e-9; y += high - low > 3 ? 5 : 0.25) yTicks.push(y);
  const plot = frame(width, Math.min(300, Math.round(width * 0.62)), {low: 1, high: last, logarithmic: true},
                     {low, high}, decades(1, last), yTicks, {x: xName});
  const chosen = thin(xs).filter(i => xs[i] >= 1);
  for (const {name, style, ys} of series) {
    const d = chosen.map((i, n) => (n ? 'L' : 'M') + plot.toX(xs[i]).toFixed(2) + ' ' + plot.toY(ys[i]).toFixed(2)).join('');
    plot.svg.append(make('g', {class: style, 'data-series': name}, make('path', {class: 'curve', d})));
  }
  if (mark !== undefined) markX(plot, mark, markLabel);
  const cursor = make('line', {class: 'cursor', y1: plot.box.top, y2: plot.box.bottom});
  plot.svg.append(cursor);
  const row = cursorRow(xName, chosen.length - 1, Math.round(chosen.length * 0.6), n => {
    const i = chosen[n];
    cursor.setAttribute('x1', plot.toX(xs[i]));
    cursor.setAttribute('x2', plot.toX(xs[i]));
    return number(xs[i]) + ': ' + series.map(each => each.name + ' ' + number(each.ys[i])).join(', ');
  });
  fill(figure, plot.svg, caption, legend(series), row,
       disclosed('Numbers', [xName, ...series.map(each => each.name)],
                 () => chosen.map(i => [number(xs[i]), ...series.map(each => number(each.ys[i]))])));
}

// Draws wavelengths, with a dot for each pair and reader.
function dots(figure, {series, mark, markLabel, caption}) {
  const width = Math.max(300, Math.round(figure.clientWidth || 640));
  const all = series.flatMap(each => each.ys).filter(Number.isFinite);
  const low = Math.min(...all, mark);
  const high = Math.max(...all, mark);
  const pairs = Math.max(...series.map(each => each.ys.length));
  const ticks = [];
  for (let i = 0; i < pairs; i += Math.max(1, Math.ceil(pairs / 8))) ticks.push(i);
  const plot = frame(width, Math.min(300, Math.round(width * 0.62)), {low: 0, high: pairs - 1}, {low, high, logarithmic: true},
                     ticks, decades(low, high).filter((t, i, list) => list.length < 9 || i % 2 === 0), {x: 'pair'});
  series.forEach(({name, style, ys}, n) => {
    const group = make('g', {class: style, 'data-series': name});
    ys.forEach((y, i) => {
      if (Number.isFinite(y)) group.append(make('circle', {class: 'dot', cx: plot.toX(i).toFixed(2), cy: plot.toY(y).toFixed(2), r: 2 + 1.6 * n}));
    });
    plot.svg.append(group);
  });
  markY(plot, mark, markLabel);
  const cursor = make('line', {class: 'cursor', y1: plot.box.top, y2: plot.box.bottom});
  plot.svg.append(cursor);
  const row = cursorRow('pair', pairs - 1, 0, i => {
    cursor.setAttribute('x1', plot.toX(i));
    cursor.setAttribute('x2', plot.toX(i));
    return i + ': ' + series.map(each => each.name + ' ' + number(each.ys[i])).join(', ');
  });
  fill(figure, plot.svg, caption, legend(series.map(each => ({...each, dots: true}))), row,
       disclosed('Numbers', ['pair', ...series.map(each => each.name)],
                 () => Array.from({length: pairs}, (x, i) => [String(i), ...series.map(each => number(each.ys[i]))])));
}

// Stops of the colour map cividis (Nunez et al. 2018), from -1 to 1.
const CIVIDIS = [
  [0x00, 0x22, 0x4e], [0x12, 0x35, 0x70], [0x3b, 0x49, 0x6c], [0x57, 0x5d, 0x6d], [0x70, 0x71, 0x73],
  [0x8a, 0x86, 0x78], [0xa5, 0x9c, 0x74], [0xc3, 0xb3, 0x69], [0xe1, 0xcc, 0x55], [0xfe, 0xe8, 0x38],
];

function colour(value) {
  const at = Math.min(Math.max((value + 1) / 2, 0), 1) * (CIVIDIS.length - 1);
  const i = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[i].map((low, c) => Math.round(low + (at - i) * (CIVIDIS[i + 1][c] - low)));
}

// Draws cells, one pixel each. `valueAt(row, column)` is in [-1, 1].
function heat(rows, columns, valueAt, square) {
  const canvas = make('canvas', {width: columns, height: rows, role: 'img', class: square ? 'square' : ''});
  const context = canvas.getContext('2d');
  const image = context.createImageData(columns, rows);
  for (let row = 0; row < rows; ++row) {
    for (let column = 0; column < columns; ++column) {
      const at = 4 * (row * columns + column);
      image.data.set(colour(valueAt(row, column)), at);
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
