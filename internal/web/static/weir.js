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
  let pinned = null;

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
    if (lit && lit !== id) { if (lit !== pinned) light(lit, false); lit = null; }
    if (!id) return hide();
    lit = id;
    light(id, true);
    show(el.getAttribute("data-tip") || tipOf(id), e.clientX, e.clientY);
  });
  document.addEventListener("pointerleave", () => { if (lit && lit !== pinned) light(lit, false); lit = null; hide(); });
  document.addEventListener("focusin", (e) => {
    const el = hitOf(e.target);
    if (!el) return;
    const id = el.getAttribute("data-id");
    if (lit && lit !== id && lit !== pinned) light(lit, false);
    lit = id;
    light(id, true);
    const r = el.getBoundingClientRect();
    show(el.getAttribute("data-tip") || tipOf(id), r.right, r.top);
  });
  document.addEventListener("focusout", () => { if (lit && lit !== pinned) light(lit, false); lit = null; hide(); });
  document.addEventListener("click", (e) => {
    if (e.target.closest("a, summary, button, input, select")) return;
    const el = hitOf(e.target);
    pin(el ? el.getAttribute("data-id") : null);
  });
  function pin(id) {
    if (pinned) {
      light(pinned, false);
      for (const el of byId.get(pinned)) el.classList.remove("pinned");
    }
    pinned = pinned === id ? null : id;
    if (pinned) {
      light(pinned, true);
      for (const el of byId.get(pinned)) el.classList.add("pinned");
    }
  }
  document.addEventListener("keydown", (e) => {
    if (e.target.closest("input, select, textarea") || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") { pin(null); hide(); return; }
    const el = hitOf(document.activeElement);
    if (!el) return;
    if (e.key === "Enter") {
      const a = el.querySelector("a[href]");
      if (a) a.click(); else pin(el.getAttribute("data-id"));
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
