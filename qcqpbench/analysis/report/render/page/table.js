"use strict";
// Tables that sort and filter: those in the page, and that of all runs, of which a page at a time is drawn.

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === "") return 1;
  if (b === null || b === "") return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function sortButton(head, text, act) {
  head.replaceChildren(element("button", { type: "button", onclick: () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    act(down ? -1 : 1);
  } }, text));
}

function empty(value) { return value === null || value === undefined || value === ""; }

function ordered(value, sign) {
  // What has no value comes last both ways.
  return (a, b) => {
    const [u, v] = [value(a), value(b)];
    return empty(u) || empty(v) ? empty(u) - empty(v) : sign * compare(u, v);
  };
}

function enliven(box) {
  const table = box.querySelector("table"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const name = box.dataset.name, title = table.caption.textContent;
  const value = (k) => (row) => row.cells[k].dataset.value === undefined ? row.cells[k].textContent : Number(row.cells[k].dataset.value);
  heads.forEach((head, k) => {
    if ([...body.rows].some((row) => row.cells[k].classList.contains("number"))) head.classList.add("number");
    sortButton(head, head.textContent, (sign) => body.append(...[...body.rows].sort(ordered(value(k), sign))));
  });
  const columns = heads.map((head) => head.textContent);
  const tools = element("div", { class: "tabletools" });
  if (body.rows.length > 6) tools.append(element("input", { type: "search", placeholder: "filter", "aria-label": `Filter ${title}`, oninput: (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  } }));
  tools.append(element("button", { type: "button", "aria-label": `Download ${title} as CSV`, onclick: () =>
    download(`${name}.csv`, "text/csv", csv(columns, [...body.rows].filter((row) => !row.hidden).map((row) => columns.map((_, k) => value(k)(row))))) }, "CSV"));
  tools.prepend(element("h3", {}, title));
  box.before(tools);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", title);
}

const PAGE = 50;

function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function runsTable(place, rows) {
  const count = rows.start.length, wrong = new Set(rows.false);
  const word = (name) => (k) => rows[name].words[rows[name].index[k]];
  const number = (name) => (k) => rows[name][k];
  const command = (k) => ["qcqpbench", "run", "smoke", "-p", quote(word("problem")(k)), "-s", quote(word("solver")(k)), "-r", rows.start[k] + 1,
    "--seed", rows.seed[k], "--timeout", rows.time_limit[k] ?? "inf", ...(rows.memory_limit[k] ? ["--memory", rows.memory_limit[k] / 1e9] : []),
    "--threads", rows.threads[k], "-o", "again.db"].join(" ");
  const machine = (k) => (rows.machine[k] === null ? null : rows.machine[k] + 1);
  const bytes = (k) => (rows.peak_memory_bytes[k] ? Math.round(rows.peak_memory_bytes[k] / 1e6) : null);
  const all = [...Array(count).keys()];
  const columns = [["solver", word("label")], ["problem", word("problem_label")], ["start", number("start")], ["claimed", word("termination")],
    ["verified", word("point_status")], ["κ̄", number("kappa_bar")], ["objective", number("objective")], ["bound", number("bound")],
    ["violation", number("violation")], ["relative", number("relative_violation")], ["build s", number("build_seconds")], ["solve s", number("solve_seconds")], ["limit s", number("time_limit")],
    ["memory MB", bytes], ["iterations", number("iterations")], ["machine", machine], ["message", word("message")]].filter(([, get]) => all.some((k) => !empty(get(k))));
  const isNumber = columns.map(([, get]) => { for (let k = 0; k < count; k++) if (!empty(get(k))) return typeof get(k) === "number"; return false; });
  const texts = [];
  const textOf = (k) => (texts[k] ??= columns.map(([, get]) => get(k)).join(" ").toLowerCase());
  let shown = all, order = all, first = 0;
  const body = element("tbody"), said = element("span", { "aria-live": "polite" });
  const filter = element("input", { type: "search", placeholder: "filter: words in any column", "aria-label": "Filter the runs", oninput: choose });
  const pick = (label, name) => element("select", { "aria-label": label, onchange: choose }, element("option", { value: "" }, label),
    ...rows[name].words.slice().sort().map((each) => element("option", { value: each }, each)));
  const picks = [["label", pick("all solvers", "label")], ["termination", pick("all claims", "termination")], ["point_status", pick("all verdicts", "point_status")]];
  const turn = (text, label, by) => element("button", { type: "button", "aria-label": label, onclick: () => { first += by * PAGE; fill(); } }, text);
  const back = turn("←", "Runs before these", -1), on = turn("→", "More runs", 1);

  function choose() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = picks.filter(([, select]) => select.value).map(([name, select]) => [rows[name].index, rows[name].words.indexOf(select.value)]);
    shown = order.filter((k) => wanted.every(([index, value]) => index[k] === value) && (!words.length || words.every((each) => textOf(k).includes(each))));
    first = 0;
    fill();
  }
  function fill() {
    body.replaceChildren(...shown.slice(first, first + PAGE).map((k) => element("tr", { class: wrong.has(k) ? "wrong" : null },
      element("td", {}, element("button", { type: "button", title: command(k), onclick: (event) => copy(event.target, command(k)) }, "Copy")),
      ...columns.map(([, get], c) => element("td", isNumber[c] ? { class: "number" } : { class: "clip", title: get(k) }, empty(get(k)) ? "" : isNumber[c] ? String(Number(get(k).toPrecision(5))) : get(k))))));
    said.textContent = shown.length ? `${first + 1}–${Math.min(first + PAGE, shown.length)} of ${shown.length}` : "none";
    back.disabled = first === 0;
    on.disabled = first + PAGE >= shown.length;
  }
  const heads = columns.map(([name], c) => element("th", { scope: "col", class: isNumber[c] ? "number" : null }, name));
  heads.forEach((head, c) => sortButton(head, columns[c][0], (sign) => { order = all.slice().sort(ordered(columns[c][1], sign)); choose(); }));
  const save = element("button", { type: "button", "aria-label": "Download the runs as CSV", onclick: () =>
    download("runs.csv", "text/csv", csv([...columns.map(([name]) => name), "all settings", "full problem", "version", "command"],
      shown.map((k) => [...columns.map(([, get]) => get(k)), word("solver")(k), word("problem")(k), word("version")(k), command(k)]))) }, "CSV");
  place.append(element("div", { class: "tabletools" }, filter, ...picks.map(([, select]) => select), back, said, on, save),
    element("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Runs" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "again"), ...heads)), body)));
  fill();
}

function copy(button, text) {
  const area = element("textarea", { readonly: true, style: "position:fixed;opacity:0" });
  area.value = text;
  document.body.append(area);
  area.select();
  // The clipboard's newer interface is not there on pages from a file.
  const done = document.execCommand("copy");
  area.remove();
  button.focus();
  button.textContent = done ? "Copied" : "Failed";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
