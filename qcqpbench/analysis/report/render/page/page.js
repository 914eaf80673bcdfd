"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const solvers = data.solvers.filter((solver) => solver.competes);
  const index = new Map(solvers.map((solver, k) => [solver.name, k]));
  const hidden = new Set();
  const state = {};
  const fraction = { label: "fraction of problems", min: 0, max: 1, percent: true }, ratio = { label: "time / shortest time", log: true, min: 1 };

  const has = (id) => document.getElementById(id) !== null;
  const isVisible = (name) => !hidden.has(name);
  const style = (name) => ({ name, ...look(index.get(name)) });
  const unique = (values) => [...new Set(values)];
  const note = (text) => `${text ? `${text} ` : ""}Limits: ${data.limits}.`;
  const targetText = (quality) => `${Math.round(quality * 100)} % of the best known margin`;

  // --- controls ---

  function addChips() {
    const place = document.getElementById("solvers");
    for (const solver of solvers) {
      const { shape, color } = style(solver.name);
      const sign = svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(shape, 0, 0, color, false, 4.5));
      place.append(element("button", { type: "button", class: "chip", "aria-pressed": "true", title: `${solver.spec}\n${solver.limits}`, onclick: (event) => {
        if (!hidden.delete(solver.name)) hidden.add(solver.name);
        event.currentTarget.setAttribute("aria-pressed", String(isVisible(solver.name)));
        drawAll();
      } }, sign, solver.name));
    }
  }

  function addMenu(place, key, label, choices, change = drawAll) {
    // choices: [value, text]; a single choice has no menu
    if (choices.length && !choices.some(([value]) => value === state[key])) state[key] = choices[0][0];
    if (choices.length < 2) return;
    const select = element("select", { id: `switch-${key}`, onchange: () => { state[key] = choices[select.selectedIndex][0]; change(); } },
      ...choices.map(([value, text]) => element("option", { selected: value === state[key] }, text)));
    document.getElementById(place).append(element("label", {}, label, select));
  }

  function addMenus() {
    for (const place of ["capacity", "size", "anytime", "profile"]) document.getElementById(`${place}-switches`).replaceChildren();
    const variants = unique(data.capacity.map((panel) => panel.variant));
    // The sizes depend on the variant.
    addMenu("capacity-switches", "variant", "problem", variants.map((variant) => [variant, variant]), () => { addMenus(); drawAll(); });
    const sizes = data.capacity.filter((panel) => panel.variant === state.variant).map((panel) => panel.m);
    state.m ??= sizes[sizes.length - 1];
    addMenu("capacity-switches", "m", "m", sizes.map((m) => [m, m]));
    const formulations = unique(solvers.map((solver) => solver.formulation));
    addMenu("capacity-switches", "formulation", "formulation", [["", "all"], ...formulations.map((name) => [String(name), name ?? "none (task solvers)"])]);
    addMenu("capacity-switches", "choice", "start", [["best", "best"], ["median", "median"]]);
    addMenu("size-switches", "size", "problem", data.sizes.map((panel, k) => [k, `${panel.variant}, ${panel.at}`]));
    const load = (panel) => (panel.load === null ? "all loads" : `load ${panel.load}`);
    addMenu("anytime-switches", "anytime", "problem", data.anytime.map((panel, k) => [k, `${panel.variant}, m = ${panel.m}, ${load(panel)}`]));
    addMenu("profile-switches", "quality", "target", data.profiles.map(({ quality }) => [quality, targetText(quality)]));
    const pairs = data.profiles.length ? data.profiles[0].pairs.map(([a, b], k) => [k, `${a} and ${b}`]) : [];
    addMenu("profile-switches", "pair", "solvers", [[-1, "all"], ...pairs]);
  }

  // --- margins and gaps against load ---

  function byLoad(panel, read) {
    const isShown = (name) => isVisible(name) && (state.formulation === "" || String(solvers[index.get(name)].formulation) === state.formulation);
    const withNote = (p) => ({ x: p.load, note: `${p.runs} runs, ${p.with_point} of ${p.sets} pattern sets with a point`, ...read(p) });
    return unique(panel.points.map((p) => p.solver)).filter(isShown)
      .map((name) => ({ ...style(name), points: panel.points.filter((p) => p.solver === name).map(withNote) }));
  }

  function drawMargins(panel, x, where) {
    const series = byLoad(panel, (p) => {
      const [y, low, high] = p[state.choice] ?? [null];
      return { y, low, high, hollow: p.with_point < p.sets };
    });
    if (panel.theory.length) series.push({ name: "theory", color: "var(--soft)", dash: "5 4", plain: true, points: panel.theory.map(([load, kappa]) => ({ x: load, y: kappa })) });
    const bands = panel.band.map(([load, low, high, sets, all]) => ({ x: load, low, high, note: `${sets} of ${all} pattern sets with a bound` }));
    // Very negative margins would compress everything else.
    const floor = -0.4 * Math.max(0.5, ...series.flatMap((s) => s.points.map((p) => p.y ?? 0)));
    const isBelow = (p) => p.y !== null && (p.low ?? p.y) < floor;
    const cut = [...(bands.length ? ["the band at the top"] : []), ...(series.some((s) => s.points.some(isBelow)) ? ["lines at the bottom"] : [])];
    show("plot-capacity", { title: `κ̄ against load, ${state.choice} start`, note: note(`${where}${cut.length ? ` The plot may cut off ${cut.join(" and ")}.` : ""}`),
      x, y: { label: "κ̄", floor }, series, bands });
  }

  function drawPositive(panel, x, where) {
    const ofRuns = state.choice === "median";
    show("plot-positive", { title: `Fraction of ${ofRuns ? "runs" : "pattern sets"} with a positive margin`, note: note(`${where} Failed runs are included.`),
      x, y: { label: "fraction", min: 0, max: 1, percent: true },
      series: byLoad(panel, (p) => ({ y: ofRuns ? p.positive_runs / p.runs : p.positive_sets / p.sets })) });
  }

  function drawGap(panel, x, where, id, title, key, empty) {
    const smallest = 1e-6;
    show(id, { title, note: note(`${where} Gaps below 1e-6 are drawn at 1e-6.`), x, y: { label: "relative gap", log: true }, empty,
      series: byLoad(panel, (p) => ({ y: p[key] === null ? null : Math.max(smallest, p[key]), hollow: p.with_point < p.sets })) });
  }

  function drawCapacity() {
    const panel = data.capacity.find(({ variant, m }) => variant === state.variant && m === state.m) ?? { points: [], theory: [], band: [] };
    const x = { label: "load p/(nm)" }, where = panel.m ? `m = ${panel.m}.` : "";
    drawMargins(panel, x, where);
    drawPositive(panel, x, where);
    drawGap(panel, x, where, "plot-gap-best", "Gap to the best known margin", "gap_best");
    drawGap(panel, x, where, "plot-gap-bound", "Optimality gap, to the smallest upper bound", "gap_bound", "No solver proved a bound here.");
  }

  // --- time ---

  function drawSizes() {
    const panel = data.sizes[state.size] ?? { points: [], fits: [] };
    const sizes = unique(panel.points.map((p) => p.size)).sort((a, b) => a - b);
    for (const part of ["build", "solve"]) {
      const series = unique(panel.points.map((p) => p.solver)).filter(isVisible).map((name) => {
        const fit = panel.fits.find((f) => f.solver === name && f.what === part);
        const points = panel.points.filter((p) => p.solver === name && p[part]).map((p) => ({ x: p.size, y: p[part][0], low: p[part][1], high: p[part][2],
          hollow: part === "solve" && p.at_limit > 0, note: `${p.runs} runs, ${p.at_limit} at the time limit` }));
        return { ...style(name), name: fit ? `${name} ∝ ${panel.axis}^${(Math.round(fit.exponent * 10) / 10 || 0).toFixed(1)}` : name, points };
      });
      show(`plot-${part}`, { title: part === "build" ? "Build time" : "Solve time",
        note: note(`${panel.variant}, ${panel.at}. Medians, bars: minimum to maximum; hollow: some runs at the time limit.`),
        x: { label: panel.axis === "p" ? "patterns p" : "m", log: true, values: sizes }, y: { label: "seconds", log: true }, series, empty: "No problem in two sizes." });
    }
  }

  function drawAnytime() {
    const panel = data.anytime[state.anytime] ?? { curves: {}, seconds: [], load: null };
    const { seconds, load, best, problems } = panel;
    const series = steps(panel.curves, seconds);
    if (load !== null) series.push({ name: "best known", color: "var(--soft)", dash: "5 4", plain: true, points: [seconds[0], seconds[seconds.length - 1]].map((x) => ({ x, y: best })) });
    show("plot-anytime", { title: load === null ? "Fraction of the best known margin against time" : `κ̄ against time, load ${load}`,
      note: note(`${panel.variant}, m = ${panel.m}, ${problems} ${problems === 1 ? "problem" : "problems"}.`), x: { label: "seconds", log: true },
      y: load === null ? { label: "fraction", min: 0, max: 1, percent: true } : { label: "κ̄", min: 0 }, series });
  }

  // --- profiles ---

  function steps(curves, levels) {
    const visible = Object.entries(curves).filter(([name]) => isVisible(name));
    return visible.map(([name, values]) => ({ ...style(name), step: true, points: levels.map((x, k) => ({ x, y: values[k] })) }));
  }

  function drawProfiles() {
    const profile = data.profiles.find(({ quality }) => quality === state.quality);
    if (!profile) return;
    const pair = profile.pairs[state.pair];
    const performance = pair ? { [pair[0]]: pair[2], [pair[1]]: pair[3] } : profile.all;
    const within = Object.fromEntries(Object.entries(profile.data).filter(([name]) => name in performance));
    const target = `Target: ${targetText(profile.quality)}.`;
    show("plot-performance", { title: pair ? `Performance profile, ${pair[0]} and ${pair[1]} only` : "Performance profile, all solvers", note: note(target),
      series: steps(performance, profile.ratios), x: ratio, y: fraction });
    show("plot-data", { title: "Data profile", note: note(target), series: steps(within, profile.budgets), x: { label: "seconds", log: true }, y: fraction });
  }

  function drawGeneral() {
    for (const profile of data.general.profiles) {
      const target = `Target: the best known value to within 0.0001·max(1, |best known|). Limits: ${data.general.limits}.`;
      show("plot-general-data", { title: "Data profile, general QCQPs", note: target, series: steps(profile.data, profile.budgets),
        x: { label: "seconds, with restarts until success", log: true }, y: fraction });
      show("plot-general-performance", { title: "Performance profile, general QCQPs", note: target, series: steps(profile.all, profile.ratios), x: ratio, y: fraction });
    }
  }

  function drawAll() {
    if (has("capacity")) for (const drawSection of [drawCapacity, drawSizes, drawAnytime, drawProfiles]) drawSection();
    if (has("general")) drawGeneral();
  }

  addChips();
  if (has("capacity")) addMenus();
  drawAll();
  document.querySelectorAll(".table[data-name]").forEach(addTools);
  runsTable(document.getElementById("rows"), data.rows);
  for (const [event, isPrinting] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { paper.on = isPrinting; drawAll(); });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  document.documentElement.dataset.ready = "yes";
})();
