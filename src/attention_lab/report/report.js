// One checkpoint: what its heads are worth, and how they came to be.

// ---- What the heads are worth: one by one, together, and edge by edge.

const margin = {t: 10, b: 60, r: 10};

function drawHeads() {
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
      height: 300, margin, barmode: "group", legend: below,
      xaxis: axis({type: "category", title: {text: "layer.head"}}), yaxis: axis({range: [0, 1.05]}),
    });
  pick("single").on("plotly_click", (clicked) => {
    const head = data.heads[clicked.points[0].pointNumber];
    if (!data.examples.length) return;
    const place = data.examples[pick("example").value].attentions.findIndex((each) => each.name === head.attention);
    if (place < 0) return;
    pick("attention").value = place;
    chosen = {layer: head.layer, head: head.head};
    showAll();
    pick("glance").scrollIntoView();
  });
  drawInterventions();
}

function drawInterventions() {
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
}
if (data.heads.length) drawHeads();

function drawPatching({clean, corrupted, heads, restored, together}) {
  const rows = [...heads.map(({layer, head}) => `${layer}.${head}`), "all"];
  const shares = [...restored, together];
  const places = clean.map((_, place) => place);
  draw("patching", "Share of the answer that a head brings back at each token; the table below has the figures.", [{
    type: "heatmap", z: shares, x: places, y: rows, zmin: 0, zmax: 1, colorscale: SCALE, xgap: 1, ygap: 1, hoverongaps: false,
    colorbar: {thickness: 12, outlinewidth: 0}, customdata: rows.map(() => clean.map((token, place) => [escaped(token), escaped(corrupted[place])])),
    hovertemplate: "head %{y} at %{customdata[0]} (not %{customdata[1]}): %{z:.2f} back<extra></extra>",
  }], {
    height: 110 + 20 * rows.length, margin,
    xaxis: axis({tickvals: places, ticktext: clean.map(escaped), title: {text: "token of the answer"}, showgrid: false}),
    yaxis: axis({type: "category", autorange: "reversed", title: {text: "layer.head"}, showgrid: false}),
  });
}
if (data.patching) drawPatching(data.patching);

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
    height: 400, margin: {t: 10, r: 10}, legend: below, yaxis: axis({range: [-0.03, 1.05]}),
    xaxis: axis({type: "log", title: {text: "source length (symbols)"}, tickvals: data.curve.map((record) => record.length)}),
    shapes: shaded(data.trained),
  });
