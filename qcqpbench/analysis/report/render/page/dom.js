"use strict";
// Elements, CSV text and downloads.

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // Spreadsheets would run such text as a formula; `qcqpbench export` has the same rule.
  const safe = typeof value !== "number" && /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv(columns, rows) {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function copy(button, text) {
  const area = element("textarea", { readonly: true, style: "position:fixed;opacity:0" });
  area.value = text;
  document.body.append(area);
  area.select();
  // navigator.clipboard does not exist on pages opened from a file.
  const copied = document.execCommand("copy");
  area.remove();
  button.focus();
  button.textContent = copied ? "Copied" : "Failed";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
