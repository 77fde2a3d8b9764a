// One checkpoint: its maps, what its heads are worth, and how they came to be.
const address = (layer, head) => `layer ${layer}, head ${head}`;

// ---- Every head at a glance, and one of them in full.

let chosen = {layer: 0, head: 0};
let panels = [];

function fill(name, options) {
  const before = pick(name).value;
  pick(name).replaceChildren(...options.map((text, value) => new Option(text, value)));
  if (Number(before) < options.length) pick(name).value = before || 0;
}

function attentionShown() { return data.examples[pick("example").value].attentions[pick("attention").value]; }

function hitRate(attention, layer, head) {
  const found = data.heads.find((each) => each.attention === attention.name && each.layer === layer && each.head === head);
  return found && found.hit_rate !== null ? found.hit_rate : null;
}

function showAll() {
  fill("attention", data.examples[pick("example").value].attentions.map((attention) => attention.name));
  const attention = attentionShown();
  const layers = attention.layers.length;
  const heads = attention.layers[0].length;
  chosen = {layer: Math.min(chosen.layer, layers - 1), head: Math.min(chosen.head, heads - 1)};
  panels = gallery(pick("glance"), "button", layers, heads);
  for (const {panel, canvas, caption, layer, head} of panels) {
    const weights = attention.layers[layer][head];
    paint(canvas, weights.length, weights[0].length, (row, column) => weights[row][column], attention.gold);
    const rate = hitRate(attention, layer, head);
    caption.textContent = `${layer}.${head}` + (rate === null ? "" : ` hits ${rate.toFixed(2)}`);
    panel.setAttribute("aria-label", `Show ${address(layer, head)}` + (rate === null ? "" : `, hit rate ${rate.toFixed(3)}`));
    panel.addEventListener("click", () => { chosen = {layer, head}; showOne(); });
  }
  pick("cut").textContent = attention.cut ? "A long sequence: only " + attention.cut + " are shown." : "";
  showOne();
}

function showOne() {
  for (const each of panels) {
    each.panel.setAttribute("aria-pressed", each.layer === chosen.layer && each.head === chosen.head);
  }
  const attention = attentionShown();
  const weights = attention.layers[chosen.layer][chosen.head];
  const named = attention.heads[chosen.head] || `head ${chosen.head}`;
  const title = `${attention.name}, layer ${chosen.layer}, ${named}`;
  pick("shown").textContent = title;
  const gold = (attention.gold || []).map((column, row) => [column, row]).filter(([column]) => column !== null);
  draw("viewer", `Attention map of ${title}; the table below has its weights.`, [{
    type: "heatmap", z: weights, zmin: 0, zmax: 1, colorscale: SCALE, xgap: 1, ygap: 1,
    colorbar: {thickness: 12, outlinewidth: 0},
    customdata: attention.queries.map((query) => attention.keys.map((key) => [escaped(query), escaped(key)])),
    hovertemplate: attention.query_name + " %{customdata[0]}<br>" + attention.key_name +
      " %{customdata[1]}<br>weight %{z:.3f}<extra></extra>",
  }], {
    height: 110 + 26 * attention.queries.length, width: 170 + 28 * attention.keys.length, margin: {t: 10, l: 60, r: 10},
    xaxis: axis({tickvals: attention.keys.map((_, i) => i), ticktext: attention.keys.map(escaped),
                 title: {text: attention.key_name}, showgrid: false}),
    yaxis: axis({tickvals: attention.queries.map((_, i) => i), ticktext: attention.queries.map(escaped),
                 title: {text: attention.query_name}, autorange: "reversed", showgrid: false}),
    shapes: gold.map(([x, y]) => ({type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5,
                                   line: {color: "#e8590c", width: 2}})),
  });
  linkTokens(attention, weights, title);
  fillCells(attention, weights);
}

// Lines from each token that is read to each row that reads it, as thick as the weight.
function linkTokens(attention, weights, title) {
  const apart = 22, left = 90, right = 250;
  const tall = Math.max(attention.keys.length, attention.queries.length) * apart + 30;
  const drawing = pick("links");
  const element = (tag, attributes, text) => {
    const made = document.createElementNS(drawing.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const at = (number) => 38 + number * apart;
  drawing.setAttribute("viewBox", `0 0 340 ${tall + 12}`);
  drawing.setAttribute("aria-label", `Lines from token to token of ${title}, as thick as the weight.`);
  drawing.replaceChildren(element("text", {x: left, y: 14, "text-anchor": "end", class: "heading"}, attention.key_name.replace("attends to ", "")),
                 element("text", {x: right, y: 14, class: "heading"}, attention.query_name));
  const lines = weights.map((row, query) => {
    const group = element("g", {});
    row.forEach((weight, key) => {
      const isGold = attention.gold && attention.gold[query] === key;
      if (weight < 0.02 && !isGold) return;
      const line = {x1: left + 6, y1: at(key) - 4, x2: right - 6, y2: at(query) - 4};
      if (isGold) group.append(element("line", {...line, stroke: "#e8590c", "stroke-width": 1, "stroke-dasharray": "4 3"}));
      group.append(element("line", {...line, stroke: "#4dabf7", "stroke-width": 5 * weight, opacity: 0.25 + 0.75 * weight}));
    });
    drawing.append(group);
    return group;
  });
  attention.keys.forEach((key, number) => drawing.append(element("text", {x: left, y: at(number), "text-anchor": "end"}, key)));
  attention.queries.forEach((query, number) => {
    const token = element("text", {x: right, y: at(number)}, query);
    token.addEventListener("mouseenter", () => lines.forEach((group, row) => { group.style.opacity = row === number ? 1 : 0.08; }));
    token.addEventListener("mouseleave", () => lines.forEach((group) => { group.style.opacity = 1; }));
    drawing.append(token);
  });
}

function fillCells(attention, weights) {
  const row = (cells, first) => {
    const line = document.createElement("tr");
    line.append(...cells.map((text, number) => {
      const cell = document.createElement(first || number === 0 ? "th" : "td");
      cell.textContent = text;
      if (first || number === 0) cell.scope = first ? "col" : "row";
      return cell;
    }));
    return line;
  };
  pick("cells").replaceChildren(row([attention.query_name, ...attention.keys], true),
    ...weights.map((line, number) => row([attention.queries[number], ...line.map((weight) => weight.toFixed(3))], false)));
}

if (data.examples.length) {
  fill("example", data.examples.map((example) => example.name));
  fill("attention", data.examples[0].attentions.map((attention) => attention.name));
  pick("attention").value = Math.max(0, data.examples[0].attentions.findIndex((attention) => attention.gold));
  if (data.best) chosen = {layer: data.best.layer, head: data.best.head};
  showAll();
  for (const name of ["example", "attention"]) pick(name).addEventListener("change", showAll);
} else {
  pick("shown").textContent = "No example was mapped.";
}

// ---- What the heads are worth: one by one, together, and edge by edge.

const margin = {t: 10, b: 60, r: 10};

if (data.heads.length) {
  const names = data.heads.map((head) => `${head.layer}.${head.head}`);
  const series = {
    hit_rate: ["hit rate", "#1971c2"], mass: ["mass", "#74c0fc"],
    exact_match_without: ["exact match without it (zero)", "#868e96"],
    exact_match_with_mean: ["exact match without it (mean)", "#e8590c"],
  };
  draw("single", "Heads one by one. " + Object.entries(series).map(([name, [label]]) =>
    label + ": " + listed(data.heads.map((head, number) => [names[number], head[name]]))).join("; "),
    Object.entries(series).map(([name, [label, colour]]) => ({
      type: "bar", name: label, x: names, y: data.heads.map((head) => head[name]), marker: {color: colour},
      hovertemplate: "head %{x}: " + label + " %{y:.3f}<extra></extra>",
    })), {
      height: 300, margin, barmode: "group", legend: {orientation: "h", y: -0.3},
      xaxis: axis({type: "category", title: {text: "layer.head"}}), yaxis: axis({range: [0, 1.05]}),
    });
  pick("single").on("plotly_click", (clicked) => {
    const head = data.heads[clicked.points[0].pointNumber];
    const place = data.examples[pick("example").value]?.attentions.findIndex((each) => each.name === head.attention) ?? -1;
    if (place < 0) return;
    pick("attention").value = place;
    chosen = {layer: head.layer, head: head.head};
    showAll();
    pick("glance").scrollIntoView();
  });
} else {
  pick("single").remove();
}

draw("cuts", "Exact match: " + listed(data.cuts.map((cut) => [cut.name.replace("<br>", " "), cut.exact_match])), [{
  type: "bar", x: data.cuts.map((cut) => cut.name), y: data.cuts.map((cut) => cut.exact_match),
  text: data.cuts.map((cut) => cut.exact_match.toFixed(3)), textposition: "outside", cliponaxis: false,
  marker: {color: "#4dabf7"}, hovertemplate: "%{x}: %{y:.3f}<extra></extra>",
}], {height: 280, margin, xaxis: axis(), yaxis: axis({title: {text: "exact match"}, range: [0, 1.12]})});

draw("together", "Exact match by heads silenced: " +
     listed(data.together.map((record) => [record.silenced, record.exact_match])),
  ["exact_match", "token_accuracy"].map((name) => ({
    name: name.replace("_", " "), x: data.together.map((record) => record.silenced),
    y: data.together.map((record) => record[name]), mode: "lines+markers",
    hovertemplate: "%{x} silenced: " + name.replace("_", " ") + " %{y:.3f}<extra></extra>",
  })), {height: 280, margin, legend: {x: 0.02, y: 0.05}, yaxis: axis({range: [-0.03, 1.08]}),
        xaxis: axis({title: {text: "heads silenced together, best aligned first"}, dtick: data.together.length > 20 ? null : 1})});

// ---- How the alignment formed.

function replay({steps, exact_match, hit_rate, shape, maps, gold, example}) {
  const [layers, heads, rows, columns] = shape;
  const bytes = Uint8Array.from(atob(maps), (letter) => letter.charCodeAt(0));
  const names = [...Array(layers * heads).keys()].map((each) => `${Math.floor(each / heads)}.${each % heads}`);
  const shown = gallery(pick("replay"), "figure", layers, heads);
  const slider = pick("step");
  slider.max = steps.length - 1;
  const scored = steps.map((step, number) => [step, number]).filter(([, number]) => hit_rate[number]);
  const chart = (number) => draw("lockon", "Exact match, by step: " +
    listed(scored.map(([step, each]) => [step, exact_match[each]])), [
    {x: scored.map(([step]) => step), y: scored.map(([, each]) => exact_match[each]), yaxis: "y2", mode: "lines+markers",
     line: {color: "#e8590c"}, hovertemplate: "step %{x}: exact match %{y:.3f}<extra></extra>"},
    {type: "heatmap", x: scored.map(([step]) => step), y: names, z: names.map((_, head) => scored.map(([, each]) => hit_rate[each][head])),
     zmin: 0, zmax: 1, colorscale: SCALE, colorbar: {thickness: 12, outlinewidth: 0, title: {text: "hit rate"}},
     hovertemplate: "step %{x}, head %{y}: hit rate %{z:.3f}<extra></extra>"},
  ], {
    height: 230 + 16 * Math.min(names.length, 30), margin: {t: 10, r: 10}, showlegend: false,
    xaxis: axis({title: {text: "step"}, showgrid: false}), yaxis2: axis({domain: [0.6, 1], range: [-0.05, 1.08], title: {text: "exact match"}}),
    yaxis: axis({domain: [0, 0.55], type: "category", autorange: "reversed", title: {text: "layer.head"}}),
    shapes: [{type: "line", yref: "paper", x0: steps[number], x1: steps[number], y0: 0, y1: 1, line: {color: ink(), width: 1.5}}],
  });
  const show = () => {
    const number = Number(slider.value);
    shown.forEach(({canvas, caption}, head) => {
      const begin = (number * layers * heads + head) * rows * columns;
      paint(canvas, rows, columns, (row, column) => bytes[begin + row * columns + column] / 255, gold);
      const rate = hit_rate[number] ? hit_rate[number][head] : null;
      caption.textContent = names[head] + (rate === null ? "" : ` hits ${rate.toFixed(2)}`);
    });
    const text = `step ${steps[number]}` + (exact_match[number] === null ? ", before training" : `: exact match ${exact_match[number].toFixed(3)}`);
    pick("when").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    chart(number);
  };
  let playing = null;
  const stop = () => { clearInterval(playing); playing = null; pick("play").textContent = "Play"; };
  pick("play").addEventListener("click", () => {
    if (playing) { stop(); return; }
    if (Number(slider.value) === steps.length - 1) slider.value = 0;
    pick("play").textContent = "Pause";
    playing = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (Number(slider.value) === steps.length - 1) stop();
    }, 250);
  });
  slider.addEventListener("input", () => { stop(); show(); });
  slider.value = steps.length - 1;
  pick("replayed").textContent = example;
  show();
}
if (data.replay) replay(data.replay);

// ---- How it holds as sequences grow.

draw("curve", "Exact match, decoded, by source length: " +
     listed(data.curve.map((record) => [record.length, record.decoded_exact_match])),
  Object.entries(data.lines).map(([name, label]) => ({
    name: label, x: data.curve.map((record) => record.length), y: data.curve.map((record) => record[name]),
    mode: "lines+markers", visible: data.shown.includes(name) ? true : "legendonly",
    hovertemplate: "length %{x}: " + label + " %{y:.3f}<extra></extra>",
  })), {
    height: 400, margin: {t: 10, r: 10}, legend: {orientation: "h", y: -0.25}, yaxis: axis({range: [-0.03, 1.05]}),
    xaxis: axis({type: "log", title: {text: "source length (symbols)"}, tickvals: data.curve.map((record) => record.length)}),
    shapes: shaded(data.trained),
  });
