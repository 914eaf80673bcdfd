"use strict";
// Plots as SVG. A plot is {title, note, x, y, series, bands}: x, y = {label, log, min, max, percent};
// a series = {name, color, shape, dash, plain, step, points: [{x, y, low, high, hollow}]}.
const PALETTE = 8;
// Below this width a legend stands under the plot, above it names stand at the ends of the lines.
const NARROW = 480;
const SHAPES = ["circle", "square", "triangle", "diamond"];
const LIGHT = "--bg:#fff;--fg:#1d1f21;--soft:#5c6166;--line:#dcdcd6;--grid:#ebebe6;--band:#8a8f98;--c0:#0072b2;--c1:#d55e00;" +
  "--c2:#009e73;--c3:#b5578c;--c4:#b97f00;--c5:#2f9bd6;--c6:#6b5b95;--c7:#6f7276";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function look(index) {
  return { color: `var(--c${index % PALETTE})`, shape: SHAPES[(index + Math.floor(index / PALETTE)) % SHAPES.length],
    dash: ["", "6 3", "2 3"][Math.floor(index / PALETTE) % 3] };
}

function mark(shape, x, y, color, hollow, r = 4) {
  const paint = { fill: hollow ? "var(--bg)" : color, stroke: color, "stroke-width": 1.5 };
  if (shape === "circle") return svg("circle", { cx: x, cy: y, r, ...paint });
  const d = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], triangle: [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]],
    diamond: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]] }[shape];
  const k = shape === "square" ? r * 0.9 : r;
  return svg("polygon", { points: d.map(([a, b]) => `${(x + a * k).toFixed(1)},${(y + b * k).toFixed(1)}`).join(" "), ...paint });
}

function brief(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

function ticks(axis, low, high, count) {
  if (axis.values && axis.values.length <= count) return axis.values;
  if (axis.log && high / low > 4) {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
      for (const f of high / low > 100 ? [1] : [1, 2, 5]) found.push(f * 10 ** k);
    const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    const every = Math.ceil(inside.length / count);
    return inside.filter((_, k) => k % every === 0);
  }
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * unit).find((s) => s >= raw);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

function extent(axis, values) {
  let found = values.filter((v) => v !== null && v !== undefined && (!axis.log || v > 0));
  if (!found.length) found = [1];
  let low = axis.min ?? found.reduce((a, b) => Math.min(a, b)), high = axis.max ?? found.reduce((a, b) => Math.max(a, b));
  if (axis.log) return low < high ? [low * (axis.min ? 1 : 0.85), high * 1.15] : [low / 2, high * 2];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const pad = (high - low) * 0.04;
  return [axis.min ?? low - pad, axis.max ?? high + pad];
}

function spread(labels, top, bottom, gap) {
  labels.sort((a, b) => a.y - b.y);
  for (let k = 0; k < labels.length; k++) labels[k].at = Math.max(labels[k].y, top, k ? labels[k - 1].at + gap : top);
  let below = bottom;
  for (let k = labels.length - 1; k >= 0; k--, below -= gap) labels[k].at = Math.min(labels[k].at, below);
}

function brieflyNamed(name) {
  const short = name.replace(/\w+=/g, "");
  return short.length > 28 ? `${short.slice(0, 27)}…` : short;
}

function draw(spec, width) {
  const narrow = width < NARROW, height = Math.round(Math.max(260, Math.min(420, width * 0.62)));
  const named = spec.series.filter((s) => s.points.some((p) => p.y !== null));
  const longest = named.reduce((most, s) => Math.max(most, brieflyNamed(s.name).length), 0);
  const right = narrow ? 14 : Math.min(190, 22 + longest * 6.3);
  const box = { left: 52, right: width - right, top: 14, bottom: height - 42 };
  const points = spec.series.flatMap((s) => s.points);
  const bands = spec.bands ?? [];
  const [x0, x1] = extent(spec.x, [...points.map((p) => p.x), ...bands.map((b) => b.x)]);
  const heights = [...points.flatMap((p) => [p.y, p.low, p.high]), ...bands.map((b) => b.low)].filter((v) => v !== null && v !== undefined);
  // Weak bounds would leave no room for the rest: the band may go beyond the top.
  const top = heights.reduce((a, b) => Math.max(a, b), -Infinity), bottom = heights.reduce((a, b) => Math.min(a, b), Infinity);
  const [y0, y1] = extent(spec.y, [...heights, ...bands.map((b) => Math.min(b.high, top + 0.35 * (top - bottom)))]);
  const scale = (axis, low, high, from, to) => {
    const f = axis.log ? Math.log : (v) => v;
    return (v) => from + (to - from) * (f(axis.log ? Math.max(v, low * 1e-3) : v) - f(low)) / (f(high) - f(low));
  };
  const X = scale(spec.x, x0, x1, box.left, box.right), Y = scale(spec.y, y0, y1, box.bottom, box.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": spec.title,
    "font-family": "system-ui, sans-serif", "font-size": 12 });
  const write = (axis, v) => (axis.percent ? `${brief(v * 100)} %` : brief(v));
  for (const v of ticks(spec.y, y0, y1, 6)) {
    root.append(svg("line", { x1: box.left, x2: box.right, y1: Y(v), y2: Y(v), stroke: v === 0 ? "var(--soft)" : "var(--grid)" }));
    root.append(svg("text", { x: box.left - 7, y: Y(v) + 4, "text-anchor": "end", fill: "var(--soft)" }, write(spec.y, v)));
  }
  for (const v of ticks(spec.x, x0, x1, narrow ? 4 : 7)) {
    root.append(svg("line", { x1: X(v), x2: X(v), y1: box.bottom, y2: box.bottom + 5, stroke: "var(--soft)" }));
    root.append(svg("text", { x: X(v), y: box.bottom + 18, "text-anchor": "middle", fill: "var(--soft)" }, write(spec.x, v)));
  }
  root.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: "var(--soft)" }));
  root.append(svg("text", { x: box.right, y: height - 6, "text-anchor": "end", fill: "var(--soft)" }, spec.x.label));
  if (bands.length) {
    const edge = [...bands.map((b) => [X(b.x), Math.max(box.top, Y(b.high))]), ...bands.slice().reverse().map((b) => [X(b.x), Y(b.low)])];
    const text = svg("title", {}, "between the best known and the least proved bound");
    root.append(svg("polygon", { points: edge.map((p) => p.map((v) => v.toFixed(1)).join()).join(" "), class: "band",
      fill: "var(--band)", "fill-opacity": 0.16, stroke: "var(--band)", "stroke-opacity": 0.4 }, text));
  }
  const labels = [];
  for (const s of named) {
    const known = s.points.filter((p) => p.y !== null);
    const own = svg("g", { class: s.plain ? "curve" : "series", "data-name": s.name });
    let d = "";
    known.forEach((p, k) => {
      const [px, py] = [X(p.x).toFixed(1), Y(p.y).toFixed(1)];
      d += k === 0 ? `M${px} ${py}` : s.step ? `H${px}V${py}` : `L${px} ${py}`;
    });
    own.append(svg("path", { d, fill: "none", stroke: s.color, "stroke-width": s.plain ? 1.5 : 2, "stroke-dasharray": s.dash || null,
      "stroke-linejoin": "round" }));
    if (!s.step && !s.plain) for (const p of known) {
      if (p.low !== undefined && p.high > p.low)
        own.append(svg("line", { x1: X(p.x), x2: X(p.x), y1: Y(p.low), y2: Y(p.high), stroke: s.color, "stroke-opacity": 0.5 }));
      const m = mark(s.shape, X(p.x), Y(p.y), s.color, p.hollow);
      m.append(svg("title", {}, `${s.name}\n${spec.x.label} ${brief(p.x)}\n${spec.y.label} ${write(spec.y, p.y)}${p.note ? `\n${p.note}` : ""}`));
      own.append(m);
    }
    root.append(own);
    const last = known[known.length - 1];
    labels.push({ name: s.name, y: Y(last.y), x: X(last.x), color: s.color });
  }
  if (!narrow) {
    spread(labels, box.top + 4, box.bottom, 14);
    for (const l of labels) {
      const short = brieflyNamed(l.name);
      root.append(svg("path", { d: `M${l.x + 6} ${l.y}L${box.right + 8} ${l.at}`, stroke: l.color, "stroke-opacity": 0.35, fill: "none" }));
      root.append(svg("text", { x: box.right + 11, y: l.at + 4, fill: l.color, class: "label" }, short, svg("title", {}, l.name)));
    }
  }
  return root;
}

function legend(spec) {
  const known = spec.series.filter((s) => s.points.some((p) => p.y !== null));
  return element("div", { class: "legend", "aria-hidden": "true" }, ...known.map((s) => element("span", {},
    svg("svg", { viewBox: "-7 -7 14 14" }, s.plain ? svg("path", { d: "M-7 0H7", stroke: s.color, "stroke-width": 2, "stroke-dasharray": "4 2" })
      : mark(s.shape, 0, 0, s.color, false, 4.5)), brieflyNamed(s.name))));
}

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would take it for a formula.
  const safe = /^[=+@\t]|^-[^\d.]/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv(columns, rows) {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function plotData(spec) {
  const rows = spec.series.flatMap((s) => s.points.map((p) => [s.name, p.x, p.y, p.low, p.high, p.note]));
  for (const b of spec.bands ?? []) rows.push(["best known to bound", b.x, null, b.low, b.high, b.note]);
  return csv(["series", spec.x.label, spec.y.label, "low", "high", "note"], rows);
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function standalone(spec) {
  const drawn = draw(spec, 820);
  drawn.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  drawn.setAttribute("style", LIGHT + ";background:#fff");
  drawn.prepend(svg("title", {}, spec.title), svg("desc", {}, spec.note));
  return new XMLSerializer().serializeToString(drawn);
}

function show(id, spec) {
  const figure = document.getElementById(id);
  figure.replaceChildren(element("h3", {}, spec.title));
  if (!spec.series.some((s) => s.points.some((p) => p.y !== null))) {
    figure.append(element("p", { class: "empty" }, spec.empty ?? "No data for this choice."));
    return;
  }
  const width = Math.max(300, figure.clientWidth || 720);
  figure.append(draw(spec, width));
  if (width < NARROW) figure.append(legend(spec));
  const name = id.replace("plot-", "");
  figure.append(element("figcaption", {}, element("span", {}, spec.note), element("span", { class: "tools" },
    element("button", { type: "button", "aria-label": `Download ${spec.title} as SVG`, onclick: () => download(`${name}.svg`, "image/svg+xml", standalone(spec)) }, "SVG"),
    element("button", { type: "button", "aria-label": `Download the data of ${spec.title} as CSV`, onclick: () => download(`${name}.csv`, "text/csv", plotData(spec)) }, "CSV"))));
}
