// Hovering, pinning and keys. The page is whole without this script.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const byId = new Map();
  for (const el of document.querySelectorAll("[data-id]")) {
    const id = el.getAttribute("data-id");
    if (!id) continue;
    if (!byId.has(id)) byId.set(id, []);
    byId.get(id).push(el);
    // The tip below takes the place of the browser's own; the words stay for screen readers.
    const title = el.querySelector(":scope > title");
    if (title) {
      el.setAttribute("aria-label", title.textContent);
      title.remove();
    }
  }
  const pinned = []; // ids, in the order in which they were pinned
  const isPinned = (id) => pinned.includes(id);

  function light(id, on) {
    for (const el of byId.get(id) || []) el.classList.toggle("lit", on);
  }
  function tipOf(id) {
    for (const el of byId.get(id) || []) {
      const t = el.getAttribute("data-tip");
      if (t) return t;
    }
    return "";
  }
  function show(text, x, y) {
    if (!text) return hide();
    tip.replaceChildren();
    const [first, ...rest] = text.split("\n");
    const b = document.createElement("b");
    b.textContent = first;
    tip.append(b, rest.length ? "\n" + rest.join("\n") : "");
    tip.hidden = false;
    const r = tip.getBoundingClientRect();
    let left = x + 16, top = y + 14;
    if (left + r.width > innerWidth - 8) left = x - r.width - 16;
    if (top + r.height > innerHeight - 8) top = y - r.height - 14;
    // A style set through the object model is no inline style to the content policy.
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }
  function hide() { tip.hidden = true; }

  function hitOf(target) { return target instanceof Element ? target.closest("[data-id]") : null; }

  let lit = null;
  document.addEventListener("pointermove", (e) => {
    const el = hitOf(e.target);
    const id = el && el.getAttribute("data-id");
    if (lit && lit !== id) { if (!isPinned(lit)) light(lit, false); lit = null; }
    if (!id) return hide();
    lit = id;
    light(id, true);
    show(el.getAttribute("data-tip") || tipOf(id), e.clientX, e.clientY);
  });
  document.addEventListener("pointerleave", () => { if (lit && !isPinned(lit)) light(lit, false); lit = null; hide(); });
  document.addEventListener("focusin", (e) => {
    const el = hitOf(e.target);
    if (!el) return;
    const id = el.getAttribute("data-id");
    if (lit && lit !== id && !isPinned(lit)) light(lit, false);
    lit = id;
    light(id, true);
    const r = el.getBoundingClientRect();
    show(el.getAttribute("data-tip") || tipOf(id), r.right, r.top);
  });
  document.addEventListener("focusout", () => { if (lit && !isPinned(lit)) light(lit, false); lit = null; hide(); });
  document.addEventListener("click", (e) => {
    if (e.target.closest("summary, button, input, select, dialog, #basket")) return;
    const el = hitOf(e.target);
    const a = e.target.closest("a");
    if (a && !(e.shiftKey && el)) return;
    if (a) e.preventDefault(); // Shift adds to the comparison instead of opening a window
    pin(el ? el.getAttribute("data-id") : null, e.shiftKey);
  });
  function mark(id, on) {
    light(id, on);
    for (const el of byId.get(id) || []) el.classList.toggle("pinned", on);
  }
  function pin(id, more) {
    const had = id && isPinned(id);
    if (!more || !id) for (const p of pinned.splice(0)) mark(p, false);
    if (had && more) { pinned.splice(pinned.indexOf(id), 1); mark(id, false); }
    if (id && !had) { pinned.push(id); mark(id, true); }
    basket();
  }
  const bar = document.getElementById("basket");
  function basket() {
    bar.hidden = pinned.length < 2;
    if (bar.hidden) return;
    const label = (id) => { const r = document.querySelector(`tr[data-id="${id}"]`); return r ? r.getAttribute("data-find") : id; };
    bar.replaceChildren(`A: ${label(pinned[0])} · B: ${pinned.slice(1).map(label).join(" and ")} `);
    if (document.body.hasAttribute("data-served")) {
      const a = document.createElement("a");
      a.href = "/compare?a=" + pinned[0] + pinned.slice(1).map((p) => "&b=" + p).join("");
      a.textContent = "Compare";
      bar.append(a);
    }
  }

  // Finding dims what does not match and says how much does.
  const find = document.getElementById("find"), found = document.getElementById("found");
  function search() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0, all = 0;
    for (const row of document.querySelectorAll("tr[data-find]")) {
      const have = row.getAttribute("data-find").toLowerCase().split(/[\s,]+/);
      const ok = words.every((w) => have.some((h) => /^\d+$/.test(w) ? h === w : h.includes(w)));
      all++;
      if (ok) n++;
      for (const el of byId.get(row.getAttribute("data-id"))) el.classList.toggle("miss", !ok);
    }
    found.textContent = words.length ? `${n} of ${all} runs` : "";
  }
  if (find) find.addEventListener("input", search);

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") {
      pin(null);
      hide();
      if (find) { find.value = ""; search(); find.blur(); }
      return;
    }
    if (e.target.closest("input, select, textarea")) return;
    if (e.key === "/" && find) { find.focus(); e.preventDefault(); return; }
    if (e.key === "?") { document.getElementById("keys").showModal(); return; }
    const el = hitOf(document.activeElement);
    if (!el) return;
    if (e.key === "Enter") {
      const a = el.querySelector("a[href]");
      if (a && !e.shiftKey) a.click(); else pin(el.getAttribute("data-id"), e.shiftKey);
    }
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      let next = el;
      do {
        next = e.key === "ArrowDown" ? next.nextElementSibling : next.previousElementSibling;
      } while (next && !next.hasAttribute("data-id"));
      if (next) { next.focus(); e.preventDefault(); }
    }
  });
})();
// A changed choice is a new address, and so a new picture from the server.
for (const select of document.querySelectorAll("form.bar select")) {
  select.addEventListener("change", () => select.form.submit());
}
for (const button of document.querySelectorAll("form.bar button")) button.hidden = true;
