"use strict";
// Sorting and filtering of the page's tables, and the table of all runs, which shows one page of rows at a time.
const ROWS_PER_PAGE = 50;

function isEmpty(value) { return value === null || value === undefined || value === ""; }

function compare(a, b) {
  if (a === b) return 0;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function ordering(value, sign) {
  // Empty cells come last in both directions.
  return (a, b) => {
    const [u, v] = [value(a), value(b)];
    return isEmpty(u) || isEmpty(v) ? isEmpty(u) - isEmpty(v) : sign * compare(u, v);
  };
}

function wordsOf(input) { return input.value.toLowerCase().split(/\s+/).filter(Boolean); }

function sortButton(head, text, sort) {
  head.replaceChildren(element("button", { type: "button", onclick: () => {
    const isAscending = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isAscending ? "descending" : "ascending");
    sort(isAscending ? -1 : 1);
  } }, text));
}

// --- tables in the page ---

function cellValue(row, k) {
  const { dataset, textContent } = row.cells[k];
  return dataset.value === undefined ? textContent : Number(dataset.value);
}

function filterRows(body, words) {
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

function addTools(box) {
  const table = box.querySelector("table"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const title = table.caption.textContent, columns = heads.map((head) => head.textContent);
  heads.forEach((head, k) => {
    if ([...body.rows].some((row) => row.cells[k].classList.contains("number"))) head.classList.add("number");
    sortButton(head, columns[k], (sign) => body.append(...[...body.rows].sort(ordering((row) => cellValue(row, k), sign))));
  });
  const shownRows = () => [...body.rows].filter((row) => !row.hidden).map((row) => columns.map((_, k) => cellValue(row, k)));
  const tools = element("div", { class: "tabletools" }, element("h3", {}, title));
  if (body.rows.length > 6)
    tools.append(element("input", { type: "search", placeholder: "filter", "aria-label": `Filter ${title}`, oninput: (event) => filterRows(body, wordsOf(event.target)) }));
  tools.append(element("button", { type: "button", "aria-label": `Download ${title} as CSV`, onclick: () =>
    download(`${box.dataset.name}.csv`, "text/csv", csv(columns, shownRows())) }, "CSV"));
  box.before(tools);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", title);
}

// --- the table of all runs ---

function shellQuote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function textOf(rows, name, k) { return rows[name].words[rows[name].index[k]]; }

function command(rows, k) {
  const memory = rows.memory_limit_bytes[k] ? ["--memory", rows.memory_limit_bytes[k] / 1e9] : [];
  return ["qcqpbench", "run", "smoke", "-p", shellQuote(textOf(rows, "problem", k)), "-s", shellQuote(textOf(rows, "solver", k)),
    "-r", rows.start[k] + 1, "--seed", rows.start_seed[k], "--timeout", rows.time_limit[k] ?? "inf", ...memory,
    "--threads", rows.threads[k], "-o", "again.db"].join(" ");
}

function runColumns(rows) {
  // Name and value of every column that is not empty.
  const text = (name) => (k) => textOf(rows, name, k);
  const number = (name) => (k) => rows[name][k];
  const machine = (k) => (rows.machine_number[k] === null ? null : rows.machine_number[k] + 1);
  const megabytes = (k) => (rows.peak_memory_bytes[k] ? Math.round(rows.peak_memory_bytes[k] / 1e6) : null);
  const columns = [["solver", text("label")], ["problem", text("problem_label")], ["start", number("start")], ["claimed", text("termination")],
    ["verified", text("point_status")], ["κ̄", number("kappa_bar")], ["objective", number("objective")], ["bound", number("bound")],
    ["violation", number("violation")], ["relative", number("relative_violation")], ["build s", number("build_seconds")],
    ["solve s", number("solve_seconds")], ["limit s", number("time_limit")], ["memory MB", megabytes], ["iterations", number("iterations")],
    ["machine", machine], ["message", text("message")]];
  const all = [...rows.start.keys()];
  return columns.map(([name, get]) => ({ name, get, first: all.map(get).find((value) => !isEmpty(value)) }))
    .filter(({ first }) => !isEmpty(first)).map(({ name, get, first }) => ({ name, get, isNumber: typeof first === "number" }));
}

function runRow(rows, columns, isFalse, k) {
  const shown = ({ get, isNumber }) => (isEmpty(get(k)) ? "" : isNumber ? String(Number(get(k).toPrecision(5))) : get(k));
  const button = element("button", { type: "button", title: command(rows, k), onclick: (event) => copy(event.target, command(rows, k)) }, "Copy");
  return element("tr", { class: isFalse ? "wrong" : null }, element("td", {}, button),
    ...columns.map((column) => element("td", column.isNumber ? { class: "number" } : { class: "clip", title: column.get(k) }, shown(column))));
}

function runsCsv(rows, columns, shown) {
  const extra = (k) => [textOf(rows, "solver", k), textOf(rows, "problem", k), textOf(rows, "version", k), command(rows, k)];
  return csv([...columns.map(({ name }) => name), "all settings", "full problem", "version", "command"],
    shown.map((k) => [...columns.map(({ get }) => get(k)), ...extra(k)]));
}

function runsTable(place, rows) {
  const all = [...rows.start.keys()], columns = runColumns(rows), falseClaims = new Set(rows.false), texts = [];
  const searchText = (k) => (texts[k] ??= columns.map(({ get }) => get(k)).join(" ").toLowerCase());
  let order = all, shown = all, first = 0;
  const body = element("tbody"), position = element("span", { "aria-live": "polite" });
  const filter = element("input", { type: "search", placeholder: "filter: words in any column", "aria-label": "Filter the runs", oninput: choose });
  const menus = [["label", "all solvers"], ["termination", "all claims"], ["point_status", "all point statuses"]].map(([name, label]) => {
    const options = rows[name].words.slice().sort().map((word) => element("option", { value: word }, word));
    return { name, select: element("select", { "aria-label": label, onchange: choose }, element("option", { value: "" }, label), ...options) };
  });
  const turn = (text, label, pages) => element("button", { type: "button", "aria-label": label, onclick: () => { first += pages * ROWS_PER_PAGE; fill(); } }, text);
  const back = turn("←", "Previous runs", -1), forward = turn("→", "Next runs", 1);

  function choose() {
    const words = wordsOf(filter), chosen = menus.filter(({ select }) => select.value)
      .map(({ name, select }) => [rows[name].index, rows[name].words.indexOf(select.value)]);
    shown = order.filter((k) => chosen.every(([index, value]) => index[k] === value) && (!words.length || words.every((word) => searchText(k).includes(word))));
    first = 0;
    fill();
  }
  function fill() {
    const last = Math.min(first + ROWS_PER_PAGE, shown.length);
    body.replaceChildren(...shown.slice(first, last).map((k) => runRow(rows, columns, falseClaims.has(k), k)));
    position.textContent = shown.length ? `${first + 1}–${last} of ${shown.length}` : "none";
    back.disabled = first === 0;
    forward.disabled = last >= shown.length;
  }
  const heads = columns.map(({ name, get, isNumber }) => {
    const head = element("th", { scope: "col", class: isNumber ? "number" : null }, name);
    sortButton(head, name, (sign) => { order = all.slice().sort(ordering(get, sign)); choose(); });
    return head;
  });
  const save = element("button", { type: "button", "aria-label": "Download the runs as CSV", onclick: () => download("runs.csv", "text/csv", runsCsv(rows, columns, shown)) }, "CSV");
  place.append(element("div", { class: "tabletools" }, filter, ...menus.map(({ select }) => select), back, position, forward, save),
    element("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Runs" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "repeat"), ...heads)), body)));
  fill();
}
