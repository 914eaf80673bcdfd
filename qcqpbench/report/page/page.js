"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const solvers = data.solvers.filter((each) => each.ran);
  const index = new Map(solvers.map((each, k) => [each.name, k]));
  const hidden = new Set();
  const state = {};

  const visible = (name) => !hidden.has(name);
  const style = (name) => ({ name, ...look(index.get(name)) });
  const unique = (values) => [...new Set(values)];
  const note = (text) => `${text ? `${text} ` : ""}Limits: ${data.limits}.`;

  function chips() {
    const place = document.getElementById("solvers");
    solvers.forEach((each, k) => {
      const chosen = look(k);
      const sign = svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(chosen.shape, 0, 0, chosen.color, false, 4.5));
      place.append(element("button", { type: "button", class: "chip", "aria-pressed": "true", title: `${each.spec}\n${each.limits}`, onclick: (event) => {
        if (!hidden.delete(each.name)) hidden.add(each.name);
        event.currentTarget.setAttribute("aria-pressed", String(visible(each.name)));
        drawAll();
      } }, sign, each.name));
    });
  }

  function menu(place, key, label, choices, act) {
    // choices: [value, text]; one alone needs no menu
    if (choices.length && !choices.some(([value]) => value === state[key])) state[key] = choices[0][0];
    if (choices.length < 2) return;
    const select = element("select", { id: `switch-${key}`, onchange: () => { state[key] = choices[select.selectedIndex][0]; act(); } },
      ...choices.map(([value, text]) => element("option", { selected: value === state[key] }, text)));
    document.getElementById(place).append(element("label", {}, label, select));
  }

  function menus() {
    for (const place of ["capacity", "size", "anytime", "profile"]) document.getElementById(`${place}-switches`).replaceChildren();
    const again = () => { menus(); drawAll(); };
    const variants = unique(data.capacity.map((each) => each.variant));
    menu("capacity-switches", "variant", "problem", variants.map((each) => [each, each]), again);
    const sizes = data.capacity.filter((each) => each.variant === state.variant).map((each) => each.m);
    state.m ??= sizes[sizes.length - 1];
    menu("capacity-switches", "m", "m", sizes.map((each) => [each, each]), drawAll);
    const forms = unique(solvers.map((each) => each.formulation));
    menu("capacity-switches", "formulation", "formulation", [["", "all"], ...forms.map((each) => [String(each), each ?? "none (task solvers)"])], drawAll);
    menu("capacity-switches", "choice", "of the starts", [["best", "the best"], ["median", "the median"]], drawAll);
    const panels = data.sizes.filter((each) => unique(each.points.map((p) => p.m)).length > 1);
    menu("size-switches", "size", "problem and load", panels.map((each) => [`${each.variant} ${each.load}`, `${each.variant}, load ${each.load}`]), drawAll);
    menu("anytime-switches", "anytime", "problem and size", data.anytime.map((each) => [`${each.variant} ${each.m}`, `${each.variant}, m = ${each.m}`]), drawAll);
    menu("profile-switches", "quality", "target", data.profiles.map((each) => [each.quality, `${Math.round(each.quality * 100)} % of the best known`]), drawAll);
    const names = data.profiles.length ? data.profiles[0].pairs.map(([a, b], k) => [k, `${a} and ${b}`]) : [];
    menu("profile-switches", "pair", "solvers", [[-1, "all"], ...names], drawAll);
  }

  function byLoad(panel, read) {
    const wanted = (name) => visible(name) && (state.formulation === "" || String(solvers[index.get(name)].formulation) === state.formulation);
    return unique(panel.points.map((p) => p.solver)).filter(wanted).map((name) => ({
      ...style(name),
      points: panel.points.filter((p) => p.solver === name).map((p) => ({ x: p.load, note: `${p.runs} runs, ${p.with_point} of ${p.sets} pattern sets with a point`, ...read(p) })),
    }));
  }

  function drawCapacity() {
    const panel = data.capacity.find((each) => each.variant === state.variant && each.m === state.m) ?? { points: [], theory: [], band: [] };
    const x = { label: "load p/(nm)" }, where = panel.m ? `m = ${panel.m}.` : "";
    const series = byLoad(panel, (p) => {
      const found = p[state.choice];
      return { y: found ? found[0] : null, low: found ? found[1] : undefined, high: found ? found[2] : undefined, hollow: p.with_point < p.sets };
    });
    if (panel.theory.length) series.push({ name: "theory", color: "var(--soft)", dash: "5 4", plain: true, points: panel.theory.map(([a, b]) => ({ x: a, y: b })) });
    const bands = panel.band.map(([load, low, high, sets, all]) => ({ x: load, low, high, note: `${sets} of ${all} pattern sets with a bound` }));
    show("plot-capacity", { title: `κ̄ against load, ${state.choice} start`, note: note(`${where}${bands.length ? " The band may go on above the plot." : ""}`), x, y: { label: "κ̄" }, series, bands });
    const runs = state.choice === "median";
    show("plot-positive", { title: runs ? "Fraction of runs with a positive margin" : "Fraction of pattern sets with a positive margin", note: note(`${where} Failed runs count.`), x,
      y: { label: "fraction", min: 0, max: 1, percent: true },
      series: byLoad(panel, (p) => ({ y: runs ? p.positive_runs / p.runs : p.positive_sets / p.sets })) });
    const floor = 1e-6;
    const gaps = (id, title, key, empty) => show(id, { title, note: note(`${where} Gaps below 1e-6 are drawn there.`), x, y: { label: "relative gap", log: true },
      series: byLoad(panel, (p) => ({ y: p[key] === null ? null : Math.max(floor, p[key]) })), empty });
    gaps("plot-gap-best", "Gap to the best known", "gap_best");
    gaps("plot-gap-bound", "Gap to the least proved bound", "gap_bound", "No solver proved a bound here.");
  }

  function drawTime() {
    const panel = data.sizes.find((each) => `${each.variant} ${each.load}` === state.size) ?? { points: [], fits: [] };
    for (const part of ["build", "solve"]) {
      const series = unique(panel.points.map((p) => p.solver)).filter(visible).map((name) => {
        const fit = panel.fits.find((each) => each.solver === name && each.what === part);
        return { ...style(name), name: fit ? `${name} ∝ m^${fit.exponent.toFixed(1)}` : name,
          points: panel.points.filter((p) => p.solver === name && p[part]).map((p) => ({ x: p.m, y: p[part][0], low: p[part][1], high: p[part][2],
            hollow: p.at_limit > 0, note: `${p.runs} runs, ${p.at_limit} at the time limit` })) };
      });
      show(`plot-${part}`, { title: part === "build" ? "Building the model" : "Solving", note: note("Medians, bars from least to largest; hollow: some runs at the limit."),
        x: { label: "m", log: true, values: unique(panel.points.map((p) => p.m)).sort((a, b) => a - b) }, y: { label: "seconds", log: true }, series, empty: "No problem at two sizes and the same load." });
    }
    const curve = data.anytime.find((each) => `${each.variant} ${each.m}` === state.anytime) ?? { curves: {}, seconds: [] };
    show("plot-anytime", { title: "Share of the best known margin against time", note: note(`${curve.problems ?? 0} problems.`), x: { label: "seconds", log: true },
      y: { label: "share", min: 0, max: 1, percent: true },
      series: Object.entries(curve.curves).filter(([name]) => visible(name)).map(([name, values]) => ({ ...style(name), step: true, points: values.map((y, k) => ({ x: curve.seconds[k], y })) })) });
  }

  function drawProfiles() {
    const found = data.profiles.find((each) => each.quality === state.quality);
    if (!found) return;
    const pair = found.pairs[state.pair];
    const curves = pair ? { [pair[0]]: pair[2], [pair[1]]: pair[3] } : found.all;
    const lines = (of, levels) => Object.entries(of).filter(([name]) => visible(name)).map(([name, values]) => ({ ...style(name), step: true, points: levels.map((x, k) => ({ x, y: values[k] })) }));
    const goal = `${Math.round(found.quality * 100)} % of the best known.`;
    show("plot-performance", { title: pair ? `Performance profile, ${pair[0]} and ${pair[1]} alone` : "Performance profile, all solvers", note: note(goal), series: lines(curves, found.ratios),
      x: { label: "time over the least time", log: true, min: 1 }, y: { label: "share of problems", min: 0, max: 1, percent: true } });
    const data_ = Object.fromEntries(Object.entries(found.data).filter(([name]) => name in curves));
    show("plot-data", { title: "Data profile", note: note(goal), series: lines(data_, found.budgets), x: { label: "seconds", log: true }, y: { label: "share of problems", min: 0, max: 1, percent: true } });
  }

  function drawAll() { drawCapacity(); drawTime(); drawProfiles(); }

  chips();
  menus();
  drawAll();
  document.querySelectorAll(".table[data-name]").forEach(enliven);
  runsTable(document.getElementById("rows"), data.rows);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  document.documentElement.dataset.ready = "yes";
})();
