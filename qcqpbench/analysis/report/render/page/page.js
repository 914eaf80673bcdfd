"use strict";
// Controls and figures of the page. Plots, menus and series are data; this file does not know their meaning.
// data: {solvers: [{name, hint}], menus: [{id, label, section, first}], plots: [{id, title, note, x, y, series, bands, empty, choices}], arrays, rows}.
// Plots with the same id share a figure, which shows the first plot whose choices, [menu, option] pairs, are selected.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const positions = new Map(data.solvers.map((solver, k) => [solver.name, k]));
  const hidden = new Set();
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
    const series = plot.series.map((s, k) => ({ ...s, ...look(s.kind, positions.get(s.solver) ?? k) }));
    return { ...plot, series: series.filter(({ solver }) => !hidden.has(solver)) };
  }

  function drawAll() {
    const isSelected = ([menu, option]) => selected.get(menu) === option;
    for (const [id, plots] of plotsById) show(id, drawable(plots.find(({ choices }) => choices.every(isSelected))));
  }

  // --- controls ---

  function addChip(solver, k) {
    const { shape, color } = look("points", k);
    const sign = svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(shape, 0, 0, color, false, 4.5));
    document.getElementById("solvers").append(element("button", { type: "button", class: "chip", "aria-pressed": "true", title: solver.hint, onclick: (event) => {
      if (!hidden.delete(solver.name)) hidden.add(solver.name);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(solver.name)));
      drawAll();
    } }, sign, solver.name));
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

  data.solvers.forEach(addChip);
  addMenus();
  document.querySelectorAll(".table[data-name]").forEach(addTools);
  if (data.rows.start.length) runsTable(document.getElementById("rows"), data.rows);
  for (const [event, isPrinting] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { paper.on = isPrinting; drawAll(); });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  document.documentElement.dataset.ready = "yes";
})();
