// Every head at a glance, and one of them in full: as a map, as lines from token to token, and as a table.
const address = (layer, head) => `layer ${layer}, head ${head}`;

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
  const nothing = Object.assign(document.createElement("p"), {textContent: "No attention was mapped.", className: "note"});
  pick("maps").replaceChildren(nothing);
}

