"use strict";
// Controls and figures of the page. Plots, menus and series are data; this file does not know their meaning.
// data: {solvers: [{name, hint}], menus: [{id, label, section, first}], plots: [{id, title, note, x, y, series, bands, choices}], arrays, rows}.
// Plots with the same id share a figure, which shows the first plot whose choices, [menu, option] pairs, are selected.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const positions = new Map(data.solvers.map((solver, k) => [solver.name, k]));
  // Of many solvers, the best ones are drawn in color and the others in grey.
  const names = data.solvers.map(({ name }) => name), best = names.slice(0, names.length > 8 ? 6 : 8);
  const picked = new Set(best), view = { others: "in grey", layout: "in one plot" };
  const selected = new Map();
  const plotsById = new Map();
  for (const plot of data.plots) plotsById.set(plot.id, [...(plotsById.get(plot.id) ?? []), plot]);

  // --- plots ---

  function points({ x, y, low, high, hollow, notes }) {
    // Columns are positions in data.arrays.
    const [ys, lows, highs, hollows, texts] = [y, low, high, hollow, notes].map((k) => data.arrays[k]);
    return data.arrays[x].map((value, k) => ({ x: value, y: ys?.[k], low: lows?.[k], high: highs?.[k], hollow: hollows?.[k], note: texts?.[k] }));
  }

  function drawable(plot) {
    // The points of a line are made when it is first drawn.
    for (const line of [...plot.series, ...plot.bands]) line.points ??= points(line);
    const series = plot.series.map((s, k) => ({ ...s, ...look(s.kind, positions.get(s.solver) ?? k), isContext: Boolean(s.solver) && !picked.has(s.solver) }));
    return { ...plot, series: view.others === "in grey" ? series : series.filter(({ isContext }) => !isContext) };
  }

  function drawAll() {
    const isSelected = ([menu, option]) => selected.get(menu) === option;
    for (const [id, plots] of plotsById) {
      const plot = plots.find(({ choices }) => choices.every(isSelected));
      show(id, plot && drawable(plot), view.layout !== "in one plot");
    }
  }

  // --- controls ---

  function sign(k) {
    const { shape, color } = look("points", k);
    return svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(shape, 0, 0, color, false, 4.5));
  }

  function addChips() {
    const place = document.getElementById("solvers");
    const chips = data.solvers.map(({ name, hint }, k) => element("button", { type: "button", class: "chip", title: `${name}\n${hint}`,
      onclick: () => { if (!picked.delete(name)) picked.add(name); update(); },
      onpointerenter: () => emphasizeSolver(name), onpointerleave: () => emphasizeSolver(null),
      onfocus: () => emphasizeSolver(name), onblur: () => emphasizeSolver(null) }, sign(k), element("span", {}, name)));
    function update() {
      chips.forEach((chip, k) => chip.setAttribute("aria-pressed", String(picked.has(names[k]))));
      drawAll();
    }
    const pick = (text, chosen) => element("button", { type: "button", onclick: () => {
      picked.clear();
      chosen.forEach((name) => picked.add(name));
      update();
    } }, text);
    const choose = (label, key, texts) => {
      const select = element("select", { id: `view-${key}`, onchange: () => { view[key] = select.value; drawAll(); } }, ...texts.map((text) => element("option", {}, text)));
      return element("label", {}, label, select);
    };
    if (names.length > 1 && data.plots.length) place.append(...chips, element("span", { class: "switches" }, pick("All", names), pick(`Best ${Math.min(best.length, 6)}`, best.slice(0, 6)),
      choose("others", "others", ["in grey", "hidden"]), choose("solvers", "layout", ["in one plot", "in panels"])));
    chips.forEach((chip, k) => chip.setAttribute("aria-pressed", String(picked.has(names[k]))));
  }

  function addSigns() {
    // The signs of the plots beside the names in the first table.
    for (const cell of document.querySelectorAll("#verdict .table td:first-child")) {
      const k = positions.get(cell.textContent);
      if (k !== undefined) cell.prepend(sign(k));
    }
  }

  function options(menu) {
    // The options of a menu depend on the menus before it in the choices of the plots.
    const found = new Set();
    for (const { choices } of data.plots) {
      const at = choices.findIndex(([id]) => id === menu.id);
      if (at >= 0 && choices.slice(0, at).every(([id, option]) => selected.get(id) === option)) found.add(choices[at][1]);
    }
    return [...found];
  }

  function fillMenu({ menu, select, label }) {
    const texts = options(menu);
    if (!texts.includes(selected.get(menu.id))) selected.set(menu.id, texts.at(menu.first));
    select.replaceChildren(...texts.map((text) => element("option", { selected: text === selected.get(menu.id) }, text)));
    label.hidden = texts.length < 2;
  }

  function addMenus() {
    const controls = data.menus.map((menu) => {
      const select = element("select", { id: `switch-${menu.id}`, onchange: () => { selected.set(menu.id, select.value); refresh(); } });
      const label = element("label", {}, menu.label, select);
      document.getElementById(`menus-${menu.section}`).append(label);
      return { menu, select, label };
    });
    function refresh() {
      controls.forEach(fillMenu);
      drawAll();
    }
    refresh();
  }

  addChips();
  addMenus();
  addSigns();
  document.querySelectorAll(".table[data-name]").forEach(addTools);
  if (data.rows.start.length) runsTable(document.getElementById("rows"), data.rows);
  for (const [event, isPrinting] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { paper.on = isPrinting; drawAll(); });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  document.documentElement.dataset.ready = "yes";
})();
