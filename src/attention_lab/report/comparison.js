// Several checkpoints: one chart of one figure at a time, and what each group's heads look at.
const groups = data.groups;
const byLength = groups.some((group) => group.records.length);
const colour = (number) => data.colours[number % data.colours.length];

function overLengths(name, title) {
  const traces = groups.flatMap((group, number) => ["mean", "worst"].map((what) => ({
    name: escaped(group.label), legendgroup: number, showlegend: what === "mean",
    x: group.records.map((record) => record.length), y: group.records.map((record) => record[name][what]),
    mode: what === "mean" ? "lines+markers" : "lines",
    line: {color: colour(number), dash: what === "mean" ? "solid" : "dot"},
    marker: {symbol: Math.floor(number / data.colours.length)},
    hovertemplate: escaped(group.label) + "<br>length %{x}: " + what + " %{y:.4f}<extra></extra>",
  })));
  const lengths = [...new Set(groups.flatMap((group) => group.records.map((record) => record.length)))];
  draw("chart", title + ", by source length, mean: " + groups.map((group) => group.label + ": " +
       group.records.map((record) => record.length + " " + (record[name].mean ?? "none")).join(", ")).join("; "), traces, {
    height: 360 + 14 * groups.length, margin: {t: 10, r: 10}, hovermode: "closest", legend: below,
    xaxis: axis({type: "log", title: {text: "source length (symbols)"}, tickvals: lengths}),
    yaxis: axis({range: [-0.03, 1.05], title: {text: title}}), shapes: shaded(data.trained),
  });
  pick("what").textContent = "Lines are means over seeds, dotted lines the worst seed. " +
    (data.trained ? "Shaded: the lengths that all were trained on. " : "") + "Choose lines in the legend.";
}

function onTest() {
  draw("chart", "Exact match, decoded, mean: " + listed(groups.map((group) => [group.label, group.exact_match.mean])), [
    {type: "bar", orientation: "h", y: groups.map((group) => escaped(group.label)), x: groups.map((group) => group.exact_match.mean),
     marker: {color: groups.map((_, number) => colour(number))}, text: groups.map((group) => group.exact_match.mean.toFixed(3)),
     textposition: "outside", cliponaxis: false, hovertemplate: "%{y}: mean %{x:.4f}<extra></extra>"},
    {type: "scatter", mode: "markers", y: groups.map((group) => escaped(group.label)), x: groups.map((group) => group.exact_match.worst),
     marker: {symbol: "line-ns", size: 14, line: {width: 2, color: ink()}}, hovertemplate: "%{y}: worst seed %{x:.4f}<extra></extra>"},
  ], {
    height: 110 + 28 * groups.length, margin: {t: 10, r: 40}, showlegend: false,
    xaxis: axis({range: [0, 1.05], title: {text: "exact match, decoded"}}), yaxis: axis({type: "category", autorange: "reversed"}),
  });
  pick("what").textContent = "Bars are means over seeds, the mark is the worst seed.";
}

const figures = {"exact match on the test split": onTest};
if (byLength) {
  for (const [name, title] of Object.entries(data.panels)) figures[title + ", by length"] = () => overLengths(name, title);
}
pick("figure").replaceChildren(...Object.keys(figures).map((name) => new Option(name, name)));
if (byLength) pick("figure").selectedIndex = 1;
pick("figure").addEventListener("change", () => figures[pick("figure").value]());
figures[pick("figure").value]();

for (const group of groups) {
  const panel = document.createElement("figure");
  if (group.map) {
    const {weights, gold, head, seed} = group.map;
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${group.label}, seed ${seed}: ${head}`);
    paint(canvas, weights.length, weights[0].length, (row, column) => weights[row][column], gold);
    panel.append(canvas);
  }
  const link = document.createElement("a");
  link.href = encodeURI(group.page);
  link.textContent = group.label + (group.map ? "" : ": no map");
  panel.append(link);
  pick("maps").append(panel);
}
