"use strict";
// Plots as SVG. A plot is {title, note, x, y, series, bands}: x, y = {label, log, min, max, floor, percent};
// a series = {name, color, shape, dash, plain, step, points: [{x, y, low, high, hollow, note}]}.
const PALETTE = 8;
// Below this width a legend stands under the plot, above it names stand at the ends of the lines.
const NARROW = 480;
const BOUND = "proved bound";
// While the page is printed, plots have widths that leave their text readable on A4.
const paper = { on: false, wide: 760, half: 430 };
const SHAPES = ["circle", "square", "triangle", "diamond"];
// For files: not every program that shows SVG knows CSS variables.
const LIGHT = { "--bg": "#fff", "--fg": "#1d1f21", "--soft": "#5c6166", "--grid": "#ebebe6", "--band": "#8a8f98", "--c0": "#0072b2", "--c1": "#d55e00",
  "--c2": "#009e73", "--c3": "#b5578c", "--c4": "#b97f00", "--c5": "#2f9bd6", "--c6": "#6b5b95", "--c7": "#6f7276" };

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
  const bands = spec.bands ?? [];
  const longest = [...named, ...bands.slice(-1)].reduce((most, s) => Math.max(most, brieflyNamed(s.name ?? BOUND).length), 0);
  const right = narrow ? 14 : Math.min(190, 22 + longest * 6.3);
  const box = { left: 52, right: width - right, top: 14, bottom: height - 42 };
  const points = spec.series.flatMap((s) => s.points);
  const [x0, x1] = extent(spec.x, [...points.map((p) => p.x), ...bands.map((b) => b.x)]);
  const heights = [...points.flatMap((p) => [p.y, p.low, p.high]), ...bands.map((b) => b.low)].filter((v) => v !== null && v !== undefined)
    .map((v) => Math.max(v, spec.y.floor ?? -Infinity));
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
  const labels = [];
  if (bands.length) {
    const edge = [...bands.map((b) => [X(b.x), Math.max(box.top, Y(b.high))]), ...bands.slice().reverse().map((b) => [X(b.x), Y(b.low)])];
    labels.push({ name: BOUND, x: edge[bands.length - 1][0], y: edge[bands.length - 1][1], color: "var(--band)" });
    root.append(svg("polygon", { points: edge.map((p) => p.map((v) => v.toFixed(1)).join()).join(" "), class: "band",
      fill: "var(--band)", "fill-opacity": 0.16, stroke: "var(--band)", "stroke-opacity": 0.4 }));
  }
  const low = (v) => Math.min(Y(v), box.bottom);
  // An svg of its own: it cuts off what is below.
  const inside = svg("svg", { width, height: box.bottom + 6 });
  root.append(inside);
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
      own.append(mark(s.shape, X(p.x), Y(p.y), s.color, p.hollow));
    }
    inside.append(own);
    const last = known[known.length - 1];
    labels.push({ name: s.name, y: low(last.y), x: X(last.x), color: s.color });
  }
  if (!narrow) {
    spread(labels, box.top + 4, box.bottom, 14);
    for (const l of labels) {
      const short = brieflyNamed(l.name);
      root.append(svg("path", { d: `M${l.x + 6} ${l.y}L${box.right + 8} ${l.at}`, stroke: l.color, "stroke-opacity": 0.35, fill: "none" }));
      root.append(svg("text", { x: box.right + 11, y: l.at + 4, fill: l.color, class: "label" }, short, svg("title", {}, l.name)));
    }
  }
  const said = (s, p) => `${s.name}: ${spec.x.label} ${brief(p.x)}, ${spec.y.label} ${write(spec.y, p.y)}${p.high > p.low ? ` (${brief(p.low)} to ${brief(p.high)})` : ""}${p.note ? `; ${p.note}` : ""}`;
  const spots = named.map((s) => s.points.filter((p) => p.y !== null).map((p) => ({ x: X(p.x), y: low(p.y), text: said(s, p) })));
  return { root, spots };
}

function follow(root, spots, out) {
  // Says what is under the pointer; with arrow keys along a line and from line to line.
  const ring = svg("circle", { r: 7, fill: "none", stroke: "var(--fg)", "stroke-width": 1.5, visibility: "hidden" });
  const groups = [...root.querySelectorAll(".series, .curve")];
  root.append(ring);
  let line = 0, at = -1;
  const tell = (k, j) => {
    [line, at] = [k, j];
    const spot = spots[k]?.[j];
    ring.setAttribute("visibility", spot ? "visible" : "hidden");
    if (spot) for (const name of ["x", "y"]) ring.setAttribute(`c${name}`, spot[name]);
    groups.forEach((group, g) => group.setAttribute("opacity", !spot || g === k ? 1 : 0.3));
    out.textContent = spot ? spot.text : "";
  };
  const nearest = (x, y, lines) => {
    let found = [Infinity, 0, -1];
    lines.forEach((k) => spots[k].forEach((spot, j) => { const d = Math.hypot(spot.x - x, spot.y - y); if (d < found[0]) found = [d, k, j]; }));
    return found;
  };
  const all = spots.map((_, k) => k);
  const point = (event) => {
    const box = root.getBoundingClientRect(), k = root.viewBox.baseVal.width / box.width;
    const [distance, ...spot] = nearest((event.clientX - box.left) * k, (event.clientY - box.top) * k, all);
    tell(...(distance < 30 ? spot : [line, -1]));
  };
  root.addEventListener("pointermove", point);
  root.addEventListener("pointerdown", point);
  root.addEventListener("pointerleave", () => tell(line, -1));
  root.addEventListener("blur", () => tell(line, -1));
  root.addEventListener("keydown", (event) => {
    const along = { ArrowRight: 1, ArrowLeft: -1 }[event.key], across = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!along && !across) return;
    event.preventDefault();
    const spot = spots[line][at];
    if (!spot) tell(line, 0);
    else if (along) tell(line, Math.min(Math.max(at + along, 0), spots[line].length - 1));
    else tell(...nearest(spot.x, spot.y, [(line + across + spots.length) % spots.length]).slice(1));
  });
}

function legend(spec) {
  const known = spec.series.filter((s) => s.points.some((p) => p.y !== null));
  const item = (sign, name) => element("span", {}, svg("svg", { viewBox: "-7 -7 14 14" }, sign), brieflyNamed(name));
  return element("div", { class: "legend", "aria-hidden": "true" }, ...known.map((s) => item(
    s.plain ? svg("path", { d: "M-7 0H7", stroke: s.color, "stroke-width": 2, "stroke-dasharray": "4 2" }) : mark(s.shape, 0, 0, s.color, false, 4.5), s.name)),
  ...(spec.bands?.length ? [item(svg("rect", { x: -7, y: -5, width: 14, height: 10, fill: "var(--band)", "fill-opacity": 0.4 }), BOUND)] : []));
}

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would take text like this for a formula; the same rule as in `qcqpbench export`.
  const safe = typeof value !== "number" && /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
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
  const { root } = draw(spec, 820);
  root.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  root.setAttribute("style", "background:#fff");
  root.prepend(svg("title", {}, spec.title), svg("desc", {}, spec.note));
  return new XMLSerializer().serializeToString(root).replace(/var\((--\w+)\)/g, (_, name) => LIGHT[name]);
}

function show(id, spec) {
  const figure = document.getElementById(id);
  figure.replaceChildren(element("h3", {}, spec.title));
  if (!spec.series.some((s) => s.points.some((p) => p.y !== null))) {
    figure.append(element("p", { class: "empty" }, spec.empty ?? "No data for this choice."));
    return;
  }
  const width = paper.on ? (figure.parentNode.className === "pair" ? paper.half : paper.wide) : Math.max(300, figure.clientWidth || 720);
  const { root, spots } = draw(spec, width), out = element("output");
  root.setAttribute("tabindex", 0);
  figure.append(root);
  if (width < NARROW) figure.append(legend(spec));
  figure.append(out);
  follow(root, spots, out);
  const name = id.replace("plot-", "");
  figure.append(element("figcaption", {}, element("span", {}, spec.note), element("span", { class: "tools" },
    element("button", { type: "button", "aria-label": `Download ${spec.title} as SVG`, onclick: () => download(`${name}.svg`, "image/svg+xml", standalone(spec)) }, "SVG"),
    element("button", { type: "button", "aria-label": `Download the data of ${spec.title} as CSV`, onclick: () => download(`${name}.csv`, "text/csv", plotData(spec)) }, "CSV"))));
}
