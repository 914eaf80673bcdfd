"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const solvers = data.solvers.filter((each) => each.competes);
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
    if (!has("capacity")) return;
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
    menu("size-switches", "size", "problem", data.sizes.map((each, k) => [k, `${each.variant}, ${each.at}`]), drawAll);
    menu("anytime-switches", "anytime", "problem", data.anytime.map((each, k) => [k, `${each.variant}, m = ${each.m}, ${each.load === null ? "all loads" : `load ${each.load}`}`]), drawAll);
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
    // What fails badly would leave no room for the rest.
    const floor = -0.4 * Math.max(0.5, ...series.flatMap((s) => s.points.map((p) => p.y ?? 0)));
    const beyond = [...(bands.length ? ["the band above"] : []), ...(series.some((s) => s.points.some((p) => p.y !== null && (p.low ?? p.y) < floor)) ? ["lines below"] : [])];
    show("plot-capacity", { title: `κ̄ against load, ${state.choice} start`, note: note(`${where}${beyond.length ? ` The plot may cut off ${beyond.join(", ")}.` : ""}`), x, y: { label: "κ̄", floor }, series, bands });
    const runs = state.choice === "median";
    show("plot-positive", { title: runs ? "Fraction of runs with a positive margin" : "Fraction of pattern sets with a positive margin", note: note(`${where} Failed runs count.`), x,
      y: { label: "fraction", min: 0, max: 1, percent: true },
      series: byLoad(panel, (p) => ({ y: runs ? p.positive_runs / p.runs : p.positive_sets / p.sets })) });
    const least = 1e-6;
    const gaps = (id, title, key, empty) => show(id, { title, note: note(`${where} Gaps below 1e-6 are drawn there.`), x, y: { label: "relative gap", log: true },
      series: byLoad(panel, (p) => ({ y: p[key] === null ? null : Math.max(least, p[key]), hollow: p.with_point < p.sets })), empty });
    gaps("plot-gap-best", "Gap to the best known", "gap_best");
    gaps("plot-gap-bound", "Gap to the least proved bound", "gap_bound", "No solver proved a bound here.");
  }

  function drawTime() {
    const panel = data.sizes[state.size] ?? { points: [], fits: [] };
    for (const part of ["build", "solve"]) {
      const series = unique(panel.points.map((p) => p.solver)).filter(visible).map((name) => {
        const fit = panel.fits.find((each) => each.solver === name && each.what === part);
        return { ...style(name), name: fit ? `${name} ∝ ${panel.axis}^${(Math.round(fit.exponent * 10) / 10 || 0).toFixed(1)}` : name,
          points: panel.points.filter((p) => p.solver === name && p[part]).map((p) => ({ x: p.size, y: p[part][0], low: p[part][1], high: p[part][2],
            hollow: part === "solve" && p.at_limit > 0, note: `${p.runs} runs, ${p.at_limit} at the time limit` })) };
      });
      show(`plot-${part}`, { title: part === "build" ? "Building the model" : "Solving", note: note(`${panel.variant}, ${panel.at}. Medians, bars from least to largest; hollow: some runs at the limit.`),
        x: { label: panel.axis === "p" ? "patterns p" : "m", log: true, values: unique(panel.points.map((p) => p.size)).sort((a, b) => a - b) }, y: { label: "seconds", log: true }, series, empty: "No problem in two sizes." });
    }
    const curve = data.anytime[state.anytime] ?? { curves: {}, seconds: [], load: null };
    const lines = Object.entries(curve.curves).filter(([name]) => visible(name)).map(([name, values]) => ({ ...style(name), step: true, points: values.map((y, k) => ({ x: curve.seconds[k], y })) }));
    if (curve.load !== null) lines.push({ name: "best known", color: "var(--soft)", dash: "5 4", plain: true, points: [curve.seconds[0], curve.seconds[curve.seconds.length - 1]].map((x) => ({ x, y: curve.best })) });
    show("plot-anytime", { title: curve.load === null ? "Share of the best known margin against time" : `κ̄ against time, load ${curve.load}`,
      note: note(`${curve.variant}, m = ${curve.m}, ${curve.problems} ${curve.problems === 1 ? "problem" : "problems"}.`), x: { label: "seconds", log: true },
      y: curve.load === null ? { label: "share", min: 0, max: 1, percent: true } : { label: "κ̄", min: 0 }, series: lines });
  }

  const steps = (of, levels) => Object.entries(of).filter(([name]) => visible(name)).map(([name, values]) => ({ ...style(name), step: true, points: levels.map((x, k) => ({ x, y: values[k] })) }));
  const share = { label: "share of problems", min: 0, max: 1, percent: true }, ratio = { label: "time over the least time", log: true, min: 1 };

  function drawProfiles() {
    const found = data.profiles.find((each) => each.quality === state.quality);
    if (!found) return;
    const pair = found.pairs[state.pair];
    const curves = pair ? { [pair[0]]: pair[2], [pair[1]]: pair[3] } : found.all;
    const goal = `${Math.round(found.quality * 100)} % of the best known.`;
    show("plot-performance", { title: pair ? `Performance profile, ${pair[0]} and ${pair[1]} alone` : "Performance profile, all solvers", note: note(goal), series: steps(curves, found.ratios), x: ratio, y: share });
    const data_ = Object.fromEntries(Object.entries(found.data).filter(([name]) => name in curves));
    show("plot-data", { title: "Data profile", note: note(goal), series: steps(data_, found.budgets), x: { label: "seconds", log: true }, y: share });
  }

  function drawGeneral() {
    for (const found of data.general.profiles) {
      const goal = `To the best known value, 0.0001 of max(1, |best known|) at most. Limits: ${data.general.limits}.`;
      show("plot-general-data", { title: "Problems at the best known value against time", note: goal, series: steps(found.data, found.budgets), x: { label: "seconds, restarts until success", log: true }, y: share });
      show("plot-general-performance", { title: "Performance profile to the best known value", note: goal, series: steps(found.all, found.ratios), x: ratio, y: share });
    }
  }

  const has = (id) => document.getElementById(id) !== null;
  function drawAll() {
    if (has("capacity")) { drawCapacity(); drawTime(); drawProfiles(); }
    if (has("general")) drawGeneral();
  }

  chips();
  menus();
  drawAll();
  document.querySelectorAll(".table[data-name]").forEach(enliven);
  runsTable(document.getElementById("rows"), data.rows);
  let width = innerWidth;
  for (const [event, value] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { paper.on = value; drawAll(); });
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  document.documentElement.dataset.ready = "yes";
})();
