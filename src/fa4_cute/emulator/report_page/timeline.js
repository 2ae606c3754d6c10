// Draws REPORT (see timeline.py) and connects it with the PTX listing and the findings.
"use strict";

const COLOURS = {
  "other": "#c4cad3", "ld/st": "#9c755f", "TMA issue": "#4e79a7", "MMA issue": "#3f8f4f", "MMA": "#3f8f4f", "tcgen05.ld": "#b07aa1",
  "tcgen05.st": "#7b4a9e", "synchronisation": "#d9a400", "TMEM allocation": "#17becf", "waits": "#f4c7c3",
  "waits for ever": "#d62728", "TMA in": "#4e79a7", "TMA out": "#76b7b2", "commit": "#d9a400", "cp.async": "#86a8cf",
  "cp.async arrival": "#d9a400", "phase 0": "#8fb3d9", "phase 1": "#f0b77d", "freed": "#eceff3",
};
const GUTTER = 250, ROW = 15, HEAD = 22, AXIS = 24;
const chart = document.getElementById("chart"), axis = document.getElementById("axis");
const tip = document.getElementById("tip"), listing = document.getElementById("listing");

// Rows from top to bottom: the title of a group, or a lane.
const rows = [];
let height = 0;
for (const group of REPORT.groups) {
  if (!group.lanes.length) continue;
  rows.push({ title: group.name, y: height });
  height += HEAD;
  for (const lane of group.lanes) {
    rows.push({ lane, kind: group.kind, y: height });
    height += ROW;
  }
}

const view = { from: 0, perPixel: 1, width: 0 };
let marks = [];  // positions of the finding that is shown
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const toX = (position) => GUTTER + (position - view.from) / view.perPixel;
const toPosition = (x) => view.from + (x - GUTTER) * view.perPixel;

function whole() {
  view.from = 0;
  view.perPixel = Math.max(1, REPORT.instructions) / (view.width - GUTTER);
}

function settle() {
  const most = Math.max(1, REPORT.instructions) / (view.width - GUTTER);
  view.perPixel = clamp(view.perPixel, Math.min(0.02, most), most);
  view.from = clamp(view.from, 0, REPORT.instructions - (view.width - GUTTER) * view.perPixel);
}

function zoom(factor, x) {
  const at = toPosition(x);
  view.perPixel /= factor;
  settle();
  view.from = at - (x - GUTTER) * view.perPixel;
  draw();
}

function prepared(canvas, canvasHeight) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = view.width * ratio;
  canvas.height = canvasHeight * ratio;
  canvas.style.width = view.width + "px";
  canvas.style.height = canvasHeight + "px";
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  return context;
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let keep = text.length;
  while (keep > 1 && context.measureText(text.slice(0, keep) + "…").width > width) keep--;
  return text.slice(0, keep) + "…";
}

// The first entry that ends behind a position.
function firstBehind(entries, position) {
  let low = 0, high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle][1] > position) high = middle; else low = middle + 1;
  }
  return low;
}

function drawEntry(context, row, entry) {
  const [from, to, what, , , , share] = entry;
  const left = clamp(toX(from), GUTTER, view.width), right = clamp(toX(to), GUTTER, view.width);
  const width = Math.max(1, right - left);
  const waits = what.startsWith("waits");
  const tall = ROW - 3, top = row.y + (waits && what === "waits" ? 5 : 1);
  context.fillStyle = COLOURS[what] || "#999";
  if (row.kind === "phase") {  // pale, and filled up as arrivals come in
    context.globalAlpha = 0.35;
    context.fillRect(left, top, width, tall);
    context.globalAlpha = 1;
    context.fillRect(left, top + tall * (1 - share), width, tall * share);
    return;
  }
  context.fillRect(left, top, width, waits && what === "waits" ? 4 : tall);
  if (row.kind === "memory" && width > 2) {
    context.fillStyle = "#fff";
    context.fillRect(left, top, 1, tall);
  }
}

function draw() {
  settle();
  const context = prepared(chart, height);
  for (const row of rows) {
    if (row.title) {
      context.fillStyle = "#eef1f5";
      context.fillRect(0, row.y, view.width, HEAD - 2);
      context.fillStyle = "#1c2430";
      context.font = "600 12px system-ui, 'DejaVu Sans', sans-serif";
      context.fillText(row.title, 4, row.y + HEAD / 2 - 1);
      context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
      continue;
    }
    context.fillStyle = "#1c2430";
    context.fillText(fitted(context, row.lane.label, GUTTER - 16), 10, row.y + ROW / 2);
    context.fillStyle = "#f6f7f9";
    context.fillRect(GUTTER, row.y + 1, view.width - GUTTER, ROW - 3);
    const entries = row.lane.entries, until = toPosition(view.width);
    const overlaps = row.kind === "operation";
    for (let i = overlaps ? 0 : Math.max(0, firstBehind(entries, view.from) - 1); i < entries.length; i++) {
      if (entries[i][0] > until) break;
      if (entries[i][1] >= view.from) drawEntry(context, row, entries[i]);
    }
  }
  for (const [position, colour] of marks) {
    if (toX(position) < GUTTER) continue;
    context.fillStyle = colour;
    context.fillRect(toX(position) - 1, 0, 2, height);
  }
  drawAxis();
}

function drawAxis() {
  const context = prepared(axis, AXIS);
  const span = (view.width - GUTTER) * view.perPixel;
  let step = Math.pow(10, Math.floor(Math.log10(span / 6)));
  while (span / step > 12) step *= step.toString().startsWith("2") ? 2.5 : 2;
  step = Math.max(1, Math.round(step));
  context.fillStyle = "#5a6472";
  context.fillText("instructions, in emulated order (not time)", 4, AXIS / 2);
  for (let at = Math.ceil(view.from / step) * step; toX(at) < view.width - 30; at += step) {
    if (toX(at) < GUTTER) continue;
    context.fillRect(toX(at), AXIS - 5, 1, 5);
    context.fillText(at.toLocaleString("en"), toX(at) + 3, AXIS / 2);
  }
}

function under(event) {
  const box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const row = rows.find((r) => r.lane && y >= r.y && y < r.y + ROW);
  if (!row || x < 0) return {};
  if (x < GUTTER) return { row };
  const position = toPosition(x), slack = 2 * view.perPixel;
  let best = null;
  for (const entry of row.lane.entries) {
    if (entry[0] > position + slack) break;
    const width = entry[1] - entry[0];
    const near = position >= entry[0] - slack && position <= entry[1] + slack;
    if (near && (!best || width <= best[1] - best[0] || position > best[1])) best = entry;
  }
  return { row, entry: best };
}

const textOf = new Map(REPORT.listing);

function described(row, [from, to, what, first, last, text]) {
  const lines = [row.lane.label + ": " + what, "position " + from + (to > from ? " to " + to : "")];
  if (row.kind === "warp" && !what.startsWith("waits")) lines[1] += ": " + (to - from) + " instructions";
  if (text) lines.push(text);
  if (first) {
    lines.push("PTX line " + first + (last !== first ? " to " + last : "") + sourceOf(first));
    lines.push((textOf.get(first) || "").trim());
  }
  return lines.join("\n");
}

function sourceOf(line) {
  return REPORT.sources[line] ? "  (" + REPORT.sources[line] + ")" : "";
}

function showTip(event) {
  const { row, entry } = under(event);
  tip.hidden = !row;
  if (!row) return;
  tip.textContent = entry ? described(row, entry) : row.lane.label;
  tip.style.left = clamp(event.clientX + 14, 0, window.innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = clamp(event.clientY + 16, 0, window.innerHeight - tip.offsetHeight - 8) + "px";
}

function showLines(lines) {
  for (const marked of listing.querySelectorAll(".marked")) marked.classList.remove("marked");
  let first = null;
  for (const line of lines) {
    const row = document.getElementById("L" + line);
    if (!row) continue;
    row.classList.add("marked");
    first = first || row;
  }
  if (first) listing.scrollTop = first.offsetTop - listing.clientHeight / 2;
}

function fillListing() {
  let source = "";
  listing.classList.toggle("bare", !Object.keys(REPORT.sources).length);
  for (const [number, text] of REPORT.listing) {
    const row = document.createElement("div"), label = document.createElement("b");
    row.id = "L" + number;
    label.textContent = number;
    const note = document.createElement("em"), here = REPORT.sources[number];
    if (here && here !== source) note.textContent = source = here;
    row.append(label, note, text);
    listing.append(row);
  }
}

function fillLegend() {
  const used = new Map();  // colour -> what it stands for
  for (const row of rows) {
    for (const entry of row.lane ? row.lane.entries : []) {
      const colour = COLOURS[entry[2]] || "#999";
      if (!used.has(colour)) used.set(colour, new Set());
      used.get(colour).add(entry[2]);
    }
  }
  for (const [colour, meanings] of used) {
    const item = document.createElement("span"), swatch = document.createElement("i");
    swatch.style.background = colour;
    item.append(swatch, [...meanings].join(", "));
    document.getElementById("legend").append(item);
  }
}

let drag = null;
chart.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, from: view.from, moved: false };
  chart.setPointerCapture(event.pointerId);
});
chart.addEventListener("pointermove", (event) => {
  if (!drag) return showTip(event);
  drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 3;
  view.from = drag.from - (event.clientX - drag.x) * view.perPixel;
  draw();
});
chart.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) {
    const { entry } = under(event);
    if (entry && entry[3]) showLines([entry[3], entry[4]]);
  }
  drag = null;
});
chart.addEventListener("pointerleave", () => { tip.hidden = true; });
chart.addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - chart.getBoundingClientRect().left);
}, { passive: false });
chart.addEventListener("keydown", (event) => {
  const page = (view.width - GUTTER) * view.perPixel * 0.25, middle = (GUTTER + view.width) / 2;
  if (event.key === "+") zoom(2, middle);
  else if (event.key === "-") zoom(0.5, middle);
  else if (event.key === "ArrowLeft") { view.from -= page; draw(); }
  else if (event.key === "ArrowRight") { view.from += page; draw(); }
});

document.addEventListener("click", (event) => {
  const factor = event.target.dataset.zoom;
  if (factor === "0") { whole(); draw(); }
  else if (factor) zoom(Number(factor), (GUTTER + view.width) / 2);
  const link = event.target.closest("a[data-line], a[data-at]");
  if (!link) return;
  event.preventDefault();
  if (link.dataset.line) return showLines([link.dataset.line]);
  marks = [[Number(link.dataset.at), "#d62728"]];
  if (link.dataset.other) marks.push([Number(link.dataset.other), "#ff9896"]);
  const low = Math.min(...marks.map((m) => m[0])), high = Math.max(...marks.map((m) => m[0]));
  view.perPixel = Math.max(200, (high - low) * 1.4) / (view.width - GUTTER);
  view.from = (low + high) / 2 - (view.width - GUTTER) * view.perPixel / 2;
  showLines(link.dataset.lines.split(" "));
  draw();
  document.getElementById("lanes").scrollIntoView({ block: "start" });
});

function resize() {
  view.width = Math.max(GUTTER + 200, document.getElementById("lanes").clientWidth);
  draw();
}

fillListing();
fillLegend();
view.width = Math.max(GUTTER + 200, document.getElementById("lanes").clientWidth);
whole();
draw();
window.addEventListener("resize", resize);
