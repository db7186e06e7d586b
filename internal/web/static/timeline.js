// The request timeline of one run, on a canvas.
(() => {
  const root = document.getElementById("timeline");
  if (!root) return;
  const canvas = root.querySelector("canvas.main");
  const mini = root.querySelector("canvas.mini");
  const detail = root.querySelector(".detail");
  const readout = root.querySelector(".readout");
  const ctx = canvas.getContext("2d");
  const mctx = mini.getContext("2d");
  let data = null;
  let view = null; // {t0, t1} milliseconds, {r0} first row shown
  let chosen = -1, hovered = -1;
  let order = []; // requests by begin
  let flight = []; // requests in flight, sampled over the whole run
  const LEFT = 46, TOP = 22, MINI = 44;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let color = {};
  function readColors() {
    for (const n of ["paper", "ink", "muted", "faint", "grid", "rule", "bad", "t-device", "t-host", "t-storage", "t-none"]) color[n] = css("--" + n);
  }

  fetch(root.getAttribute("data-src")).then((r) => r.ok ? r.json() : r.json().then((e) => Promise.reject(new Error(e.error)))).then((d) => {
    data = d;
    const n = d.req.seq.length;
    order = Array.from({ length: n }, (_, i) => i);
    order.sort((a, b) => d.req.queued[a] - d.req.queued[b]);
    sampleFlight();
    view = fromHash() || { t0: d.start_ms, t1: d.end_ms, r0: 0 };
    // As high as the rows need, up to what the style sheet gives.
    canvas.style.height = Math.min(canvas.clientHeight, Math.max(120, TOP + d.rows * 18 + 4)) + "px";
    root.classList.remove("loading");
    root.setAttribute("data-ready", String(n));
    resize();
  }).catch((e) => { root.classList.remove("loading"); readout.textContent = String(e.message || e); });

  function sampleFlight() {
    const N = 600, d = data, span = d.end_ms - d.start_ms || 1;
    const diff = new Float64Array(N + 1);
    for (let i = 0; i < d.req.seq.length; i++) {
      if (d.req.sent[i] < 0) continue;
      const a = Math.floor((d.req.sent[i] - d.start_ms) / span * N), b = Math.floor((d.req.end[i] - d.start_ms) / span * N);
      diff[Math.max(0, a)]++;
      diff[Math.min(N, b + 1)]--;
    }
    flight = [];
    for (let i = 0, v = 0; i < N; i++) { v += diff[i]; flight.push(v); }
  }

  function fromHash() {
    const m = /^#t=(-?[\d.]+),(-?[\d.]+)(?:,([\d.]+))?$/.exec(location.hash);
    if (!m || !(+m[2] > +m[1])) return null;
    return { t0: +m[1], t1: +m[2], r0: +(m[3] || 0) };
  }
  let hashTimer = 0;
  function toHash() {
    clearTimeout(hashTimer);
    hashTimer = setTimeout(() => history.replaceState(null, "", `#t=${view.t0.toFixed(0)},${view.t1.toFixed(0)},${view.r0.toFixed(1)}`), 200);
  }
  addEventListener("hashchange", () => { const v = fromHash(); if (v && data) { view = v; draw(); } });

  function resize() {
    const dpr = devicePixelRatio || 1;
    for (const c of [canvas, mini]) {
      const w = c.clientWidth, h = c.clientHeight;
      c.width = Math.round(w * dpr);
      c.height = Math.round(h * dpr);
      c.getContext("2d").setTransform(dpr, 0, 0, dpr, 0, 0);
    }
    readColors();
    draw();
  }
  addEventListener("resize", () => data && resize());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => data && resize());

  const width = () => canvas.clientWidth, height = () => canvas.clientHeight;
  const px = (t) => LEFT + (t - view.t0) / (view.t1 - view.t0) * (width() - LEFT);
  const time = (x) => view.t0 + (x - LEFT) / (width() - LEFT) * (view.t1 - view.t0);
  function rowHeight() {
    const room = (height() - TOP) / Math.max(1, data.rows);
    return Math.min(18, Math.max(7, room));
  }
  const rowsShown = () => (height() - TOP) / rowHeight();
  const py = (row) => TOP + (row - view.r0) * rowHeight();

  function clamp() {
    const d = data, min = 50, max = d.end_ms - d.start_ms;
    let span = Math.min(max, Math.max(min, view.t1 - view.t0));
    if (view.t0 < d.start_ms) view.t0 = d.start_ms;
    if (view.t0 + span > d.end_ms) view.t0 = d.end_ms - span;
    view.t1 = view.t0 + span;
    view.r0 = Math.max(0, Math.min(view.r0, d.rows - rowsShown()));
    if (d.rows <= rowsShown()) view.r0 = 0;
  }

  function tierOf(i) {
    const q = data.req;
    const dev = Math.max(0, q.device[i]), host = Math.max(0, q.host[i]), sto = Math.max(0, q.storage[i]);
    const miss = q.device[i] < 0 ? 0 : q.in[i] - dev - host - sto;
    const best = Math.max(dev, host, sto, miss);
    if (q.device[i] < 0) return "muted";
    if (best === miss && miss > 0) return "miss";
    return best === dev ? "t-device" : best === host ? "t-host" : "t-storage";
  }

  function draw() {
    if (!data) return;
    clamp();
    const d = data, q = d.req, W = width(), H = height(), rh = rowHeight();
    ctx.clearRect(0, 0, W, H);
    ctx.fillStyle = color.paper;
    ctx.fillRect(0, 0, W, H);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, TOP, W - LEFT, H - TOP);
    ctx.clip();
    // Warm-up is shaded.
    const w0 = px(d.window_ms[0]), w1 = px(d.window_ms[1]);
    ctx.fillStyle = color.grid;
    if (w0 > LEFT) ctx.fillRect(LEFT, TOP, Math.min(W, w0) - LEFT, H - TOP);
    if (d.window_ms[1] > d.window_ms[0] && w1 < W) ctx.fillRect(Math.max(LEFT, w1), TOP, W - w1, H - TOP);
    // Lanes.
    ctx.strokeStyle = color.grid;
    ctx.lineWidth = 1;
    for (const l of d.lanes) {
      const y = Math.round(py(l.row)) + .5;
      if (y < TOP - 1 || y > H) continue;
      ctx.beginPath(); ctx.moveTo(LEFT, y); ctx.lineTo(W, y); ctx.stroke();
    }
    // Trees as spans behind their requests.
    for (const t of d.trees) {
      const x0 = px(t.start_ms), x1 = px(t.end_ms), y = py(t.row);
      if (x1 < LEFT || x0 > W || y > H || y + t.rows * rh < TOP) continue;
      ctx.strokeStyle = color.faint;
      ctx.strokeRect(Math.round(x0) + .5, Math.round(y) + 1.5, Math.max(1, x1 - x0), t.rows * rh - 3);
    }
    // Requests.
    for (const i of order) {
      if (q.queued[i] > view.t1) break;
      if (q.end[i] < view.t0) continue;
      const y = py(q.row[i]);
      if (y > H || y + rh < TOP) continue;
      bar(i, y, rh);
    }
    ctx.restore();
    axis(W, H);
    labels(H, rh);
    minimap();
    toHash();
  }

  function bar(i, y, rh) {
    const q = data.req, pad = rh > 10 ? 3 : 1.5, h = rh - 2 * pad, top = y + pad;
    const xq = px(q.queued[i]), xs = px(q.sent[i] < 0 ? q.end[i] : q.sent[i]), xe = px(q.end[i]);
    const xf = q.first[i] < 0 ? xe : px(q.first[i]), xl = q.last[i] < 0 ? xf : px(q.last[i]);
    // Waits before it could be sent: joins as hairlines, barriers dotted.
    for (const [wait, dash] of [[q.join[i], []], [q.barrier[i], [1, 3]]]) {
      if (!(wait > 0)) continue;
      ctx.strokeStyle = color.rule;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(px(q.queued[i] - wait), Math.round(top + h / 2) + .5);
      ctx.lineTo(xq, Math.round(top + h / 2) + .5);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    // What Weir itself ended is no failure of the server.
    const cut = q.failure[i] === "cancelled", failed = q.failure[i] !== "", tier = tierOf(i);
    const fill = cut ? color.muted : failed ? color.bad : tier === "miss" ? color.paper : color[tier];
    if (xs > xq + 1) { ctx.fillStyle = color.faint; ctx.fillRect(xq, top + h / 2 - 1, xs - xq, 2); }
    // Prefill in full, decode half as high.
    ctx.fillStyle = fill;
    ctx.fillRect(xs, top, Math.max(1, xf - xs), h);
    if (xl > xf) ctx.fillRect(xf, top + h * .3, Math.max(.7, xl - xf), h * .4);
    if (tier === "miss" && !failed) {
      ctx.strokeStyle = color.ink;
      ctx.lineWidth = .8;
      ctx.strokeRect(xs + .4, top + .4, Math.max(1, xf - xs) - .8, h - .8);
      if (xl > xf) ctx.strokeRect(xf + .4, top + h * .3, Math.max(.7, xl - xf), h * .4);
      ctx.lineWidth = 1;
    }
    if (i === chosen || i === hovered) {
      ctx.strokeStyle = color.ink;
      ctx.lineWidth = i === chosen ? 2 : 1;
      ctx.strokeRect(xs - 1.5, top - 1.5, Math.max(1, xe - xs) + 3, h + 3);
      ctx.lineWidth = 1;
    }
  }

  function niceStep(span, n) {
    const raw = span / n, mag = Math.pow(10, Math.floor(Math.log10(raw)));
    for (const m of [1, 2, 5, 10]) if (raw <= m * mag) return m * mag;
    return 10 * mag;
  }
  function axis(W, H) {
    ctx.font = "11.5px Inter, Helvetica, Arial, sans-serif";
    ctx.fillStyle = color.muted;
    ctx.textAlign = "center";
    const step = niceStep((view.t1 - view.t0) / 1000, Math.max(3, (W - LEFT) / 110)) * 1000;
    const origin = data.window_ms[0]; // zero is the start of profiling
    for (let t = Math.ceil((view.t0 - origin) / step) * step + origin; t <= view.t1; t += step) {
      const x = px(t), s = (t - origin) / 1000;
      const text = (Math.round(s * 1000) / 1000).toString().replace("-", "−") + " s";
      const half = ctx.measureText(text).width / 2;
      if (x - half < LEFT || x + half > W) continue;
      ctx.fillText(text, x, 13);
      ctx.fillRect(Math.round(x), TOP - 4, 1, 4);
    }
    ctx.fillStyle = color.rule;
    ctx.fillRect(LEFT, TOP - 1, W - LEFT, 1);
  }
  function labels(H, rh) {
    ctx.fillStyle = color.muted;
    ctx.textAlign = "right";
    let last = -99;
    for (const l of data.lanes) {
      const y = py(l.row) + Math.min(rh, 14) / 2 + 4;
      if (y < TOP + 8 || y > H || y - last < 12) continue;
      ctx.fillText(String(l.lane), LEFT - 7, y);
      last = y;
    }
    ctx.textAlign = "left";
    ctx.fillText("lane", 0, 13);
  }
  function minimap() {
    const W = mini.clientWidth, H = mini.clientHeight, d = data, span = d.end_ms - d.start_ms || 1;
    mctx.clearRect(0, 0, W, H);
    const peak = Math.max(1, ...flight);
    mctx.fillStyle = color.faint;
    for (let i = 0; i < flight.length; i++) {
      const h = flight[i] / peak * (H - 4);
      mctx.fillRect(LEFT + i / flight.length * (W - LEFT), H - h, (W - LEFT) / flight.length + .5, h);
    }
    const x0 = LEFT + (view.t0 - d.start_ms) / span * (W - LEFT), x1 = LEFT + (view.t1 - d.start_ms) / span * (W - LEFT);
    mctx.strokeStyle = color.ink;
    mctx.strokeRect(Math.round(x0) + .5, .5, Math.max(3, Math.round(x1 - x0) - 1), H - 1);
    mctx.fillStyle = color.muted;
    mctx.font = "11px Inter, Helvetica, Arial, sans-serif";
    mctx.fillText("≤ " + peak, 0, 11);
    mctx.fillText("in flight", 0, 24);
  }

  function at(x, y) {
    if (!data || x < LEFT || y < TOP) return -1;
    const t = time(x), row = Math.floor(view.r0 + (y - TOP) / rowHeight()), q = data.req;
    const slack = 3 / (width() - LEFT) * (view.t1 - view.t0);
    let best = -1;
    for (const i of order) {
      if (q.queued[i] > t + slack) break;
      if (q.row[i] === row && q.end[i] >= t - slack) best = i;
    }
    return best;
  }
  const num = (v) => v < 0 ? "unknown" : v.toLocaleString("en-US");
  const sec = (v) => v < 0 ? "never" : (v / 1000).toFixed(3) + " s";
  function text(i) {
    const q = data.req, rel = (v) => v < 0 ? -1 : v - q.sent[i];
    const lines = [
      `${data.streams[q.stream[i]]}, turn ${q.turn[i]}`,
      `${num(q.in[i])} tokens in, ${num(q.out[i])} out`,
      `found in HBM ${num(q.device[i])}, host ${num(q.host[i])}, storage ${num(q.storage[i])}; cacheable ${num(q.ceiling[i])}`,
      `first token after ${sec(rel(q.first[i]))}, last after ${sec(rel(q.last[i]))}`,
    ];
    if (q.join[i] > 0) lines.push(`waited ${sec(q.join[i])} for sub-agents`);
    if (q.barrier[i] > 0) lines.push(`waited ${sec(q.barrier[i])} at a barrier`);
    if (q.failure[i] === "cancelled") lines.push("cut at the end of the run");
    else if (q.failure[i]) lines.push("failed: " + q.failure[i]);
    if (q.phase[i] !== "pr" || q.queued[i] < data.window_ms[0]) lines.push("warm-up");
    return lines;
  }
  function state(t) {
    const q = data.req;
    let running = 0, first = 0, done = 0;
    for (const i of order) {
      if (q.sent[i] > t) break;
      if (q.sent[i] < 0) continue;
      if (q.end[i] <= t) done++;
      else if (q.first[i] >= 0 && q.first[i] <= t) running++;
      else first++;
    }
    return `${((t - data.window_ms[0]) / 1000).toFixed(1)} s: ${running} decoding, ${first} before their first token, ${done} done`;
  }

  const tip = document.getElementById("tip");
  function showTip(lines, x, y) {
    tip.replaceChildren();
    const b = document.createElement("b");
    b.textContent = lines[0];
    tip.append(b, "\n" + lines.slice(1).join("\n"));
    tip.hidden = false;
    const r = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, x + 16 + r.width > innerWidth - 8 ? x - r.width - 16 : x + 16) + "px";
    tip.style.top = Math.max(4, y + 14 + r.height > innerHeight - 8 ? y - r.height - 14 : y + 14) + "px";
  }

  let drag = null;
  canvas.addEventListener("pointermove", (e) => {
    if (!data) return;
    e.stopPropagation();
    if (drag) {
      const span = view.t1 - view.t0;
      view.t0 = drag.t0 - (e.offsetX - drag.x) / (width() - LEFT) * span;
      view.t1 = view.t0 + span;
      view.r0 = drag.r0 - (e.offsetY - drag.y) / rowHeight();
      drag.moved = drag.moved || Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) > 3;
      draw();
      return;
    }
    const i = at(e.offsetX, e.offsetY);
    if (i !== hovered) { hovered = i; draw(); }
    readout.textContent = state(time(e.offsetX));
    if (i >= 0) showTip(text(i), e.clientX, e.clientY); else tip.hidden = true;
  });
  canvas.addEventListener("pointerleave", () => { if (hovered >= 0) { hovered = -1; draw(); } tip.hidden = true; });
  canvas.addEventListener("pointerdown", (e) => {
    if (!data) return;
    drag = { x: e.offsetX, y: e.offsetY, t0: view.t0, r0: view.r0, moved: false };
    canvas.setPointerCapture(e.pointerId);
    tip.hidden = true;
  });
  canvas.addEventListener("pointerup", (e) => {
    const moved = drag && drag.moved;
    drag = null;
    if (moved || !data) return;
    choose(at(e.offsetX, e.offsetY));
  });
  canvas.addEventListener("wheel", (e) => {
    if (!data) return;
    e.preventDefault();
    if (e.shiftKey) { view.r0 += e.deltaY / 40; draw(); return; }
    const f = Math.exp(e.deltaY * .0015), t = time(e.offsetX);
    view.t0 = t - (t - view.t0) * f;
    view.t1 = t + (view.t1 - t) * f;
    draw();
  }, { passive: false });
  mini.addEventListener("pointerdown", miniTo);
  mini.addEventListener("pointermove", (e) => { if (e.buttons & 1) miniTo(e); });
  function miniTo(e) {
    if (!data) return;
    const span = view.t1 - view.t0, W = mini.clientWidth;
    const t = data.start_ms + (e.offsetX - LEFT) / (W - LEFT) * (data.end_ms - data.start_ms);
    view.t0 = t - span / 2;
    view.t1 = t + span / 2;
    draw();
  }
  canvas.addEventListener("keydown", (e) => {
    if (!data) return;
    const span = view.t1 - view.t0, mid = (view.t0 + view.t1) / 2;
    const zoom = (f) => { view.t0 = mid - span * f / 2; view.t1 = mid + span * f / 2; };
    switch (e.key) {
      case "ArrowLeft": view.t0 -= span / 8; view.t1 -= span / 8; break;
      case "ArrowRight": view.t0 += span / 8; view.t1 += span / 8; break;
      case "ArrowUp": view.r0 -= 2; break;
      case "ArrowDown": view.r0 += 2; break;
      case "+": case "=": zoom(.6); break;
      case "-": zoom(1.6); break;
      case "0": view = { t0: data.start_ms, t1: data.end_ms, r0: 0 }; break;
      case "n": case "p": step(e.key === "n" ? 1 : -1); break;
      default: return;
    }
    e.preventDefault();
    draw();
  });
  // step chooses the next or the last request of the same stream.
  function step(dir) {
    const q = data.req;
    if (chosen < 0) { choose(order.find((i) => q.queued[i] >= view.t0) ?? -1); return; }
    const k = order.indexOf(chosen);
    for (let j = k + dir; j >= 0 && j < order.length; j += dir) {
      if (q.row[order[j]] === q.row[chosen]) { choose(order[j]); break; }
    }
    const span = view.t1 - view.t0;
    if (q.queued[chosen] < view.t0 || q.end[chosen] > view.t1) { view.t0 = q.queued[chosen] - span / 4; view.t1 = view.t0 + span; }
  }
  function choose(i) {
    chosen = i;
    draw();
    if (i < 0) { detail.hidden = true; return; }
    fetch(root.getAttribute("data-src").replace(/timeline$/, "requests/" + data.req.seq[i])).then((r) => r.json()).then((r) => {
      detail.hidden = false;
      detail.textContent = JSON.stringify(r, null, 1);
    }).catch((e) => { detail.hidden = false; detail.textContent = String(e); });
  }
})();
