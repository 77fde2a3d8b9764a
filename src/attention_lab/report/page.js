// What both kinds of page share: charts that follow the reader's colours, and say in words what they show.
const data = JSON.parse(document.getElementById("data").textContent);
const pick = (name) => document.getElementById(name);
const quiet = {displaylogo: false, displayModeBar: false, responsive: true};

// Charts stand on the page's own ground and are written in its ink, on paper as well.
function ink() { return getComputedStyle(document.documentElement).getPropertyValue("--ink").trim(); }
function axis(more) { return {gridcolor: "#8883", zeroline: false, linecolor: "#8888", automargin: true, ...more}; }
function draw(name, label, traces, layout) {
  const place = pick(name);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  Plotly.react(place, traces, {paper_bgcolor: "#0000", plot_bgcolor: "#0000", font: {color: ink()}, ...layout}, quiet);
}
function drawnAnew(colour) {
  document.querySelectorAll(".js-plotly-plot").forEach((chart) => {
    Plotly.relayout(chart, {"font.color": colour});
    Plotly.Plots.resize(chart);
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawnAnew(ink()));
addEventListener("beforeprint", () => drawnAnew("#000"));
addEventListener("afterprint", () => drawnAnew(ink()));

// Plotly takes some tags in its labels for markup.
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const listed = (pairs) => pairs.map(([name, value]) => name + " " + (value === null ? "none" : value.toFixed(3))).join(", ");
// At the foot of a chart, however many lines it takes.
const below = {orientation: "h", yref: "container", yanchor: "bottom", y: 0};
const shaded = (lengths) => (lengths ? [{
  type: "rect", xref: "x", yref: "paper", x0: lengths[0], x1: lengths[1], y0: 0, y1: 1,
  fillcolor: "#8882", line: {width: 0}, layer: "below",
}] : []);

// From white (0) to dark blue (1), as everywhere in this project.
const SHADES = [[0, [247, 251, 255]], [0.5, [106, 174, 214]], [1, [8, 48, 107]]];
const SCALE = SHADES.map(([place, colour]) => [place, `rgb(${colour})`]);
function shade(weight) {
  const [from, to] = weight < 0.5 ? [SHADES[0], SHADES[1]] : [SHADES[1], SHADES[2]];
  const part = Math.min(1, Math.max(0, (weight - from[0]) / 0.5));
  return `rgb(${from[1].map((each, number) => Math.round(each + part * (to[1][number] - each)))})`;
}

// A small map without labels: `weight(row, column)` in each cell, gold cells outlined.
function paint(canvas, rows, columns, weight, gold) {
  const side = Math.max(3, Math.floor(260 / Math.max(rows, columns)));
  canvas.width = columns * side;
  canvas.height = rows * side;
  const pen = canvas.getContext("2d");
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      pen.fillStyle = shade(weight(row, column));
      pen.fillRect(column * side, row * side, side, side);
    }
  }
  pen.strokeStyle = "#e8590c";
  pen.lineWidth = Math.max(1, side / 10);
  (gold || []).forEach((column, row) => {
    if (column !== null) pen.strokeRect((column + 0.1) * side, (row + 0.1) * side, 0.8 * side, 0.8 * side);
  });
}

// A map a head, in rows of layers; `made` says what each is made of: an element with a canvas and a caption in it.
function gallery(place, tag, layers, heads) {
  place.replaceChildren();
  place.style.setProperty("--heads", heads);
  const made = [];
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      const panel = document.createElement(tag);
      const canvas = document.createElement("canvas");
      const caption = document.createElement("span");
      if (tag === "button") panel.type = "button";
      panel.append(canvas, caption);
      place.append(panel);
      made.push({panel, canvas, caption, layer, head});
    }
  }
  return made;
}
