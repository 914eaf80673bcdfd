"use strict";
// Plots as SVG. A plot is {id, title, note, x, y, series, bands}; x and y are {label, scale, min, max, floor, percent, ticks};
// a series is {name, kind, solver, color, shape, dash, isContext, points: [{x, y, low, high, hollow, note}]}, grey and without a name if
// isContext; a band is {name, points: [{x, low, high, note}]}.
const COLOR_COUNT = 8;
// Narrower plots have a legend below, wider ones have names at the ends of the lines; panels are small plots of one solver.
const NARROW_PIXELS = 480, PANEL_PIXELS = 250;
// Printed plots have fixed widths in pixels, so that their text stays readable on A4.
const paper = { on: false, wide: 760, half: 430 };
const SHAPES = ["circle", "square", "triangle", "diamond"];
// Downloaded files get plain colors, because not every SVG viewer supports CSS variables.
const LIGHT = { "--bg": "#fff", "--fg": "#1d1f21", "--soft": "#5c6166", "--grid": "#ebebe6", "--band": "#8a8f98", "--c0": "#0072b2", "--c1": "#d55e00",
  "--context": "#c9ccd0", "--c2": "#009e73", "--c3": "#b5578c", "--c4": "#b97f00", "--c5": "#2f9bd6", "--c6": "#6b5b95", "--c7": "#6f7276" };

function look(kind, index) {
  if (kind === "curve") return { color: "var(--soft)", dash: "5 4" };
  if (kind === "dotted") return { color: "var(--soft)", dash: "1.5 3" };
  const round = Math.floor(index / COLOR_COUNT);
  return { color: `var(--c${index % COLOR_COUNT})`, shape: SHAPES[(index + round) % SHAPES.length], dash: ["", "6 3", "2 3"][round % 3] };
}

function isReference(series) {
  return series.kind === "curve" || series.kind === "dotted";
}

function mark(shape, x, y, color, hollow, r = 4) {
  const paint = { fill: hollow ? "var(--bg)" : color, stroke: color, "stroke-width": 1.5 };
  if (shape === "circle") return svg("circle", { cx: x, cy: y, r, ...paint });
  const corners = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], triangle: [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]],
    diamond: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]] }[shape];
  const k = shape === "square" ? r * 0.9 : r;
  return svg("polygon", { points: corners.map(([a, b]) => `${(x + a * k).toFixed(1)},${(y + b * k).toFixed(1)}`).join(" "), ...paint });
}

function brief(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const rounded = Number(value.toPrecision(3));
  return size >= 1e5 || size < 1e-3 ? rounded.toExponential().replace("e+", "e") : String(rounded);
}

function shortName(name) {
  const short = name.replace(/\w+=/g, "");
  return short.length > 28 ? `${short.slice(0, 27)}…` : short;
}

// --- scales ---

function isGiven(value) { return value !== null && value !== undefined; }

function drawnPoints(series) { return series.points.filter((p) => p.y !== null); }

function drawnSeries(spec) {
  // Context first and the best solvers last, so that these are drawn above the rest.
  const drawn = spec.series.filter((s) => drawnPoints(s).length).reverse();
  return [...drawn.filter((s) => s.isContext), ...drawn.filter((s) => !s.isContext)];
}

function bandPoints(spec) { return spec.bands.flatMap((band) => band.points); }

function isLog(axis) { return axis.scale === "log"; }

function logTicks(low, high, count) {
  const values = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
    for (const f of high / low > 100 ? [1] : [1, 2, 5]) values.push(f * 10 ** k);
  const inside = values.filter((v) => v >= low * 0.999 && v <= high * 1.001);
  const every = Math.ceil(inside.length / count);
  return inside.filter((_, k) => k % every === 0);
}

function ticks(axis, low, high, count) {
  if (axis.ticks && axis.ticks.length <= count) return axis.ticks;
  if (isLog(axis) && high / low > 4) return logTicks(low, high, count);
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * unit).find((s) => s >= raw);
  const values = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) values.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return values;
}

function tickLabel(axis, value) { return axis.percent ? `${brief(value * 100)} %` : brief(value); }

function extent(axis, values) {
  let shown = values.filter((v) => isGiven(v) && (!isLog(axis) || v > 0));
  if (!shown.length) shown = [1];
  let low = axis.min ?? shown.reduce((a, b) => Math.min(a, b)), high = axis.max ?? shown.reduce((a, b) => Math.max(a, b));
  if (isLog(axis)) return low < high ? [low * (axis.min ? 1 : 0.85), high * 1.15] : [low / 2, high * 2];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const pad = (high - low) * 0.04;
  return [axis.min ?? low - pad, axis.max ?? high + pad];
}

function verticalExtent(spec) {
  const points = spec.series.flatMap((s) => s.points), bands = bandPoints(spec);
  const heights = [...points.flatMap((p) => [p.y, p.low, p.high]), ...bands.map((b) => b.low)].filter(isGiven)
    .map((v) => Math.max(v, spec.y.floor ?? -Infinity));
  // The band may leave the plot at the top: weak bounds would compress everything else.
  const top = heights.reduce((a, b) => Math.max(a, b), -Infinity), bottom = heights.reduce((a, b) => Math.min(a, b), Infinity);
  return extent(spec.y, [...heights, ...bands.map((b) => Math.min(b.high, top + 0.35 * (top - bottom)))]);
}

function scale(axis, [low, high], from, to) {
  const f = isLog(axis) ? Math.log : (v) => v;
  return (v) => from + (to - from) * (f(isLog(axis) ? Math.max(v, low * 1e-3) : v) - f(low)) / (f(high) - f(low));
}

function layOut(spec, width) {
  const isPanel = width <= PANEL_PIXELS, isNarrow = width < NARROW_PIXELS;
  const height = Math.round(isPanel ? width * 0.66 : Math.max(260, Math.min(420, width * 0.62)));
  const names = [...drawnSeries(spec).filter((s) => !s.isContext).map((s) => s.name), ...spec.bands.map((band) => band.name)];
  const longest = names.reduce((most, name) => Math.max(most, shortName(name).length), 0);
  const box = { left: 52, right: width - (isNarrow ? 14 : Math.min(200, 24 + longest * 6.8)), top: isPanel ? 10 : 30, bottom: height - (isPanel ? 24 : 42) };
  const xExtent = extent(spec.x, [...spec.series.flatMap((s) => s.points.map((p) => p.x)), ...bandPoints(spec).map((b) => b.x)]);
  const yExtent = verticalExtent(spec);
  const X = scale(spec.x, xExtent, box.left, box.right), Y = scale(spec.y, yExtent, box.bottom, box.top);
  // Points below the plot are reported at its lower edge.
  const visibleY = (v) => Math.min(Y(v), box.bottom);
  return { width, height, isNarrow, isPanel, box, xExtent, yExtent, X, Y, visibleY };
}

// --- drawing ---

function drawAxes(root, spec, { height, isNarrow, isPanel, box, xExtent, yExtent, X, Y }) {
  for (const v of ticks(spec.y, ...yExtent, isPanel ? 4 : 6)) {
    root.append(svg("line", { x1: box.left, x2: box.right, y1: Y(v), y2: Y(v), stroke: v === 0 ? "var(--soft)" : "var(--grid)" }));
    root.append(svg("text", { x: box.left - 7, y: Y(v) + 4, "text-anchor": "end", fill: "var(--soft)" }, tickLabel(spec.y, v)));
  }
  for (const v of ticks(spec.x, ...xExtent, isNarrow ? 4 : 7)) {
    root.append(svg("line", { x1: X(v), x2: X(v), y1: box.bottom, y2: box.bottom + 5, stroke: "var(--soft)" }));
    root.append(svg("text", { x: X(v), y: box.bottom + 18, "text-anchor": "middle", fill: "var(--soft)" }, tickLabel(spec.x, v)));
  }
  root.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: "var(--soft)" }));
  root.append(svg("text", { x: box.right, y: height - 6, "text-anchor": "end", fill: "var(--soft)" }, spec.x.label));
  root.append(svg("text", { x: 0, y: 12, fill: "var(--soft)" }, spec.y.label));
}

function drawBand(root, { name, points }, { box, X, Y }) {
  const upper = points.map((b) => [X(b.x), Math.max(box.top, Y(b.high))]), lower = points.map((b) => [X(b.x), Y(b.low)]).reverse();
  root.append(svg("polygon", { points: [...upper, ...lower].map((p) => p.map((v) => v.toFixed(1)).join()).join(" "), class: "band",
    fill: "var(--band)", "fill-opacity": 0.16, stroke: "var(--band)", "stroke-opacity": 0.4 }));
  const [x, y] = upper[upper.length - 1];
  return { name, x, y, color: "var(--band)" };
}

function linePath(points, isStep, { X, Y }) {
  return points.map((p, k) => {
    const [x, y] = [X(p.x).toFixed(1), Y(p.y).toFixed(1)];
    return k === 0 ? `M${x} ${y}` : isStep ? `H${x}V${y}` : `L${x} ${y}`;
  }).join("");
}

function drawSeries(parent, series, layout) {
  const { X, Y, visibleY } = layout, points = drawnPoints(series), isCurve = isReference(series);
  const group = svg("g", { class: isCurve ? "curve" : series.isContext ? "series context" : "series", "data-name": series.name,
    "data-solver": series.solver || null, style: `--own: ${series.color}` });
  const paint = series.isContext ? "var(--context)" : series.color;
  if (series.kind !== "marks")
    group.append(svg("path", { d: linePath(points, series.kind === "steps", layout), fill: "none", stroke: paint,
      "stroke-width": series.isContext ? 1.2 : isCurve ? 1.5 : 2, "stroke-dasharray": (!series.isContext && series.dash) || null, "stroke-linejoin": "round" }));
  const hasMarks = series.kind === "marks" || (series.kind === "points" && !series.isContext);
  if (hasMarks) for (const p of points) {
    if (p.high > p.low)
      group.append(svg("line", { x1: X(p.x), x2: X(p.x), y1: Y(p.low), y2: Y(p.high), stroke: paint, "stroke-opacity": 0.5 }));
    group.append(mark(series.shape, X(p.x), visibleY(p.y), paint, p.hollow, layout.isPanel ? 2.5 : 4));
  }
  parent.append(group);
  const last = points[points.length - 1];
  return { name: series.name, x: X(last.x), y: visibleY(last.y), color: series.color };
}

function spreadOut(labels, top, bottom, gap) {
  // Sets `at`, the height of each label, so that labels do not overlap.
  labels.sort((a, b) => a.y - b.y);
  for (let k = 0; k < labels.length; k++) labels[k].at = Math.max(labels[k].y, top, k ? labels[k - 1].at + gap : top);
  let lowest = bottom;
  for (let k = labels.length - 1; k >= 0; k--, lowest -= gap) labels[k].at = Math.min(labels[k].at, lowest);
}

function drawLabels(root, labels, box) {
  spreadOut(labels, box.top, box.bottom, 14);
  for (const l of labels) {
    root.append(svg("path", { d: `M${l.x + 6} ${l.y}L${box.right + 8} ${l.at}`, stroke: l.color, "stroke-opacity": 0.35, fill: "none" }));
    root.append(svg("text", { x: box.right + 11, y: l.at + 4, fill: l.color, class: "label" }, shortName(l.name), svg("title", {}, l.name)));
  }
}

function describe(spec, series, p) {
  const range = p.high > p.low ? ` (${brief(p.low)} to ${brief(p.high)})` : "", note = p.note ? `; ${p.note}` : "";
  return `${series.name}: ${spec.x.label} ${brief(p.x)}, ${spec.y.label} ${tickLabel(spec.y, p.y)}${range}${note}`;
}

function draw(spec, width) {
  // Returns the SVG element, and per series where its points are and what they say.
  const layout = layOut(spec, width), { height, box, X, visibleY } = layout, series = drawnSeries(spec);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": spec.title,
    "font-family": "system-ui, sans-serif", "font-size": 12 });
  drawAxes(root, spec, layout);
  const labels = spec.bands.map((band) => drawBand(root, band, layout));
  // A nested svg clips what is below the plot.
  const clip = svg("svg", { width, height: box.bottom + 6 });
  root.append(clip);
  for (const s of series) {
    const label = drawSeries(clip, s, layout);
    if (!s.isContext && s.kind !== "marks") labels.push(label);
  }
  if (!layout.isNarrow) drawLabels(root, labels.reverse(), box);
  const spots = series.map((s) => drawnPoints(s).map((p) => ({ x: X(p.x), y: visibleY(p.y), text: describe(spec, s, p) })));
  return { root, spots };
}

function legend(spec) {
  const item = (sign, name) => element("span", {}, svg("svg", { viewBox: "-7 -7 14 14" }, sign), shortName(name));
  const line = (s) => svg("path", { d: "M-7 0H7", stroke: s.color, "stroke-width": 2, "stroke-dasharray": s.kind === "dotted" ? "1.5 2" : "4 2" });
  const items = drawnSeries(spec).filter((s) => !s.isContext).reverse().map((s) => item(isReference(s) ? line(s) : mark(s.shape, 0, 0, s.color, false, 4.5), s.name));
  const box = () => svg("rect", { x: -7, y: -5, width: 14, height: 10, fill: "var(--band)", "fill-opacity": 0.4 });
  items.push(...spec.bands.map((band) => item(box(), band.name)));
  return element("div", { class: "legend", "aria-hidden": "true" }, ...items);
}

// --- reading a plot ---

function nearest(spots, x, y, lines) {
  let closest = [Infinity, 0, -1];
  lines.forEach((k) => spots[k].forEach((spot, j) => {
    const distance = Math.hypot(spot.x - x, spot.y - y);
    if (distance < closest[0]) closest = [distance, k, j];
  }));
  return closest;
}

function emphasize(group, isChosen, isAnyChosen) {
  group.classList.toggle("chosen-line", Boolean(isChosen));
  group.setAttribute("opacity", !isAnyChosen || isChosen ? 1 : 0.3);
}

function emphasizeSolver(name) {
  // In all plots of the page; without a name, no line is emphasized.
  for (const group of document.querySelectorAll("figure .series")) emphasize(group, group.dataset.solver === name, name);
}

function follow(root, spots, out) {
  // Describes the point under the pointer; arrow keys move along a line and from line to line.
  const ring = svg("circle", { r: 7, fill: "none", stroke: "var(--fg)", "stroke-width": 1.5, visibility: "hidden" });
  const groups = [...root.querySelectorAll(".series, .curve")];
  root.append(ring);
  // The best solver is drawn last.
  let line = spots.length - 1, at = -1;
  const select = (k, j) => {
    [line, at] = [k, j];
    const spot = spots[k]?.[j];
    ring.setAttribute("visibility", spot ? "visible" : "hidden");
    if (spot) for (const name of ["x", "y"]) ring.setAttribute(`c${name}`, spot[name]);
    groups.forEach((group, g) => emphasize(group, spot && g === k, spot));
    out.textContent = spot ? spot.text : "";
  };
  const point = (event) => {
    const box = root.getBoundingClientRect(), k = root.viewBox.baseVal.width / box.width;
    const [distance, ...spot] = nearest(spots, (event.clientX - box.left) * k, (event.clientY - box.top) * k, [...spots.keys()]);
    select(...(distance < 30 ? spot : [line, -1]));
  };
  for (const name of ["pointermove", "pointerdown"]) root.addEventListener(name, point);
  for (const name of ["pointerleave", "blur"]) root.addEventListener(name, () => select(line, -1));
  root.addEventListener("keydown", (event) => {
    const along = { ArrowRight: 1, ArrowLeft: -1 }[event.key], across = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!along && !across) return;
    event.preventDefault();
    const spot = spots[line][at];
    if (!spot) select(line, 0);
    else if (along) select(line, Math.min(Math.max(at + along, 0), spots[line].length - 1));
    else select(...nearest(spots, spot.x, spot.y, [(line + across + spots.length) % spots.length]).slice(1));
  });
}

// --- a figure of the page ---

function plotData(spec) {
  const rows = spec.series.flatMap((s) => s.points.map((p) => [s.name, p.x, p.y, p.low, p.high, p.note]));
  for (const { name, points } of spec.bands) rows.push(...points.map((b) => [name, b.x, null, b.low, b.high, b.note]));
  return csv(["series", spec.x.label, spec.y.label, "low", "high", "note"], rows);
}

function standalone(spec) {
  const { root } = draw(spec, 820);
  root.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  root.setAttribute("style", "background:#fff");
  root.prepend(svg("title", {}, spec.title), svg("desc", {}, spec.note));
  return new XMLSerializer().serializeToString(root).replace(/var\((--\w+)\)/g, (_, name) => LIGHT[name]);
}

function caption(spec) {
  const name = spec.id;
  const button = (text, label, save) => element("button", { type: "button", "aria-label": label, onclick: save }, text);
  return element("figcaption", {}, element("span", {}, spec.note), element("span", { class: "tools" },
    button("SVG", `Download ${spec.title} as SVG`, () => download(`${name}.svg`, "image/svg+xml", standalone(spec))),
    button("CSV", `Download the data of ${spec.title} as CSV`, () => download(`${name}.csv`, "text/csv", plotData(spec)))));
}

function panels(spec, width) {
  // One panel per solver: its line in front of those of the others.
  const solvers = [...new Set(drawnSeries(spec).map((s) => s.solver).filter(Boolean))];
  const order = spec.series.map((s) => s.solver).filter((name) => solvers.includes(name));
  return order.map((name) => {
    const series = spec.series.map((s) => (s.solver && s.solver !== name ? { ...s, isContext: true } : { ...s, isContext: false }));
    const panel = { ...spec, series, title: `${spec.title}: ${name}`, x: { ...spec.x, label: "" }, y: { ...spec.y, label: "" } };
    const { root, spots } = draw(panel, Math.min(width, PANEL_PIXELS));
    return { name, root, spots };
  });
}

function show(id, spec, hasPanels) {
  const figure = document.getElementById(`plot-${id}`);
  // A menu may select what another figure does not have.
  figure.hidden = !spec;
  if (!spec) return;
  figure.replaceChildren(element("h3", {}, spec.title));
  if (!drawnSeries(spec).length) {
    figure.append(element("p", { class: "empty" }, "The solvers of this plot are hidden."));
    return;
  }
  const printWidth = figure.className === "wide" ? paper.wide : paper.half;
  const width = paper.on ? printWidth : Math.max(300, figure.clientWidth || 720), out = element("output");
  const drawings = hasPanels ? panels(spec, width) : [{ name: null, ...draw(spec, width) }];
  const place = hasPanels ? element("div", { class: "panels" }) : figure;
  if (hasPanels) figure.append(element("p", { class: "axes" }, `Across: ${spec.x.label}. Up: ${spec.y.label}.`), place);
  for (const { name, root, spots } of drawings) {
    root.setAttribute("tabindex", 0);
    place.append(name === null ? root : element("div", {}, element("h4", { title: name }, shortName(name)), root));
    follow(root, spots, out);
  }
  if (!hasPanels && (width < NARROW_PIXELS || spec.series.some((s) => s.kind === "marks"))) figure.append(legend(spec));
  figure.append(out, caption(spec));
}
