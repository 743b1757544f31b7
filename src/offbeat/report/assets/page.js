"use strict";
// Draws the figures of the page. Colours are tokens ("@asgd/0.2") until the theme is known.
(function () {
  const data = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("offbeat-theme"); } catch (e) { /* from disk, some browsers keep nothing */ }
  let printing = false;
  const state = {};      // figure key -> {view, log}
  const waiting = [];    // figures that have not been drawn yet

  function theme() { return printing ? "light" : chosen || root.dataset.around || (media.matches ? "dark" : "light"); }

  function colour(token) {
    const [name, alpha] = token.slice(1).split("/");
    const hex = data.palettes[theme()][name] || "#888888";
    if (alpha === undefined) return hex;
    const n = parseInt(hex.slice(1), 16);
    return `rgba(${n >> 16 & 255},${n >> 8 & 255},${n & 255},${alpha})`;
  }

  function themed(node) {
    if (typeof node === "string") return node[0] === "@" ? colour(node) : node;
    if (Array.isArray(node)) return typeof node[0] === "number" && typeof node[1] !== "string" ? node : node.map(themed);
    if (node === null || typeof node !== "object") return node;
    const out = {};
    for (const key of Object.keys(node)) out[key] = themed(node[key]);
    return out;
  }

  function dressed(spec, log, width) {
    const narrow = width < 480;
    const made = { data: themed(spec.data), layout: themed(spec.layout) };
    const layout = made.layout;
    const ink = colour("@ink"), faint = colour("@faint"), grid = colour("@grid");
    const axis = { gridcolor: grid, zeroline: false, linecolor: faint, ticks: "outside", ticklen: 4, tickcolor: grid,
                   automargin: true, tickfont: { color: faint, size: narrow ? 10.5 : 11.5 } };
    for (const name of ["xaxis", "yaxis"]) {
      if (!layout[name]) continue;
      layout[name] = Object.assign({}, axis, layout[name]);
      layout[name].title = Object.assign({ standoff: 10, font: { color: faint, size: 12 } }, layout[name].title);
    }
    if (layout.scene) {
      for (const name of ["xaxis", "yaxis", "zaxis"]) {
        layout.scene[name] = Object.assign({ gridcolor: grid, zerolinecolor: grid, color: faint,
          backgroundcolor: "rgba(0,0,0,0)", tickfont: { size: 10 } }, layout.scene[name]);
      }
      if (narrow) {  // a step back, and the scale, which has the height's name, above
        const eye = layout.scene.camera.eye;
        for (const name in eye) eye[name] *= 1.35;
        layout.scene.zaxis.title = { text: "" };
        for (const trace of made.data) if (trace.colorbar) trace.colorbar.orientation = "h";
      }
    }
    if (log && layout.yaxis) { layout.yaxis.type = "log"; delete layout.yaxis.range; }
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { family: getComputedStyle(document.body).fontFamily, color: ink, size: 12 };
    layout.margin = Object.assign({ l: 56, r: 24, t: layout.showlegend ? 34 : 14, b: 46 }, layout.margin || {});
    if (narrow) layout.margin.l = layout.scene ? 4 : 44;
    layout.legend = { orientation: "h", x: 0, xanchor: "left", y: 1.01, yanchor: "bottom", font: { size: 11.5, color: ink },
                      bgcolor: "rgba(0,0,0,0)", itemsizing: "constant", traceorder: "normal" };
    layout.hoverlabel = { bgcolor: colour("@paper"), bordercolor: faint, font: { color: ink, size: 12 } };
    layout.bargap = 0.25;
    layout.dragmode = layout.scene ? "turntable" : narrow ? false : "zoom";
    for (const trace of made.data) {
      if (trace.colorbar) Object.assign(trace.colorbar, { tickfont: { color: faint, size: 10.5 }, len: 0.95 });
    }
    return made;
  }

  function draw(key) {
    const place = document.getElementById("plot-" + key), chart = data.charts[key], now = state[key];
    try {
      const made = dressed(chart.views[now.view], now.log, place.clientWidth);
      place.style.height = made.layout.height + "px";
      return Plotly.react(place, made.data, made.layout, {
        responsive: true, displaylogo: false, displayModeBar: "hover" in window ? true : undefined,
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
        toImageButtonOptions: { format: "svg", filename: key },
      }).then(() => { place.dataset.drawn = now.view; place.dataset.theme = theme(); });
    } catch (e) {
      place.innerHTML = '<p class="trouble">This figure could not be drawn.</p>';
      console.error(key, e);
    }
  }

  // A few figures at a time, so that the page answers while it fills.
  function next() {
    const key = waiting.shift();
    if (key === undefined) { root.dataset.ready = "true"; return; }
    draw(key);
    setTimeout(next, 0);
  }

  function drawAll(keys) { const idle = waiting.length === 0; delete root.dataset.ready; waiting.push(...keys); if (idle) next(); }

  function show(key, view) {
    // Figures with the same choice follow: all curves against time, or all against samples.
    for (const other of Object.keys(data.charts)) {
      if (other !== key && !(view in data.charts[other].views)) continue;
      if (state[other].view === view) continue;
      state[other].view = view;
      marks(other);
      draw(other);
    }
  }

  function marks(key) {
    for (const b of document.querySelectorAll(`[data-chart="${key}"] .views button`))
      b.setAttribute("aria-pressed", String(b.dataset.view === state[key].view));
    const log = document.querySelector(`[data-chart="${key}"] .log`);
    if (log) log.setAttribute("aria-pressed", String(state[key].log));
  }

  function dress() { root.dataset.theme = theme(); document.getElementById("theme").textContent = theme() === "dark" ? "Light" : "Dark"; }

  for (const key of Object.keys(data.charts)) {
    state[key] = { view: Object.keys(data.charts[key].views)[0], log: false };
    const box = document.querySelector(`[data-chart="${key}"]`);
    for (const b of box.querySelectorAll(".views button")) b.addEventListener("click", () => show(key, b.dataset.view));
    const log = box.querySelector(".log");
    if (log) log.addEventListener("click", () => { state[key].log = !state[key].log; marks(key); draw(key); });
  }

  for (const b of document.querySelectorAll("[data-table]")) {
    b.addEventListener("click", () => {
      const text = data.tables[b.dataset.table][b.dataset.form];
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
      link.download = `${b.dataset.table}.${b.dataset.form}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  function redraw() { dress(); drawAll(Object.keys(data.charts).filter((k) => !waiting.includes(k))); }
  document.getElementById("theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("offbeat-theme", chosen); } catch (e) { /* not kept */ }
    redraw();
  });
  media.addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { printing = true; dress(); Object.keys(data.charts).forEach(draw); });
  window.addEventListener("afterprint", () => { printing = false; redraw(); });
  dress();
  drawAll(Object.keys(data.charts));
})();
