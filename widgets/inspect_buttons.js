// A button under every response and model, while the kernel lives: it opens an inspector below it. There is one of
// this a session; display/inspection/buttons.py says which places are its own.

import { make } from "./common.js";

/** @typedef {import("./on_top.js").Model & { send(content: any): void }} Model */

/** @param {{ model: Model }} context */
function initialize({ model }) {
  const key = CSS.escape(model.get("key"));
  /** @type {Map<Element, { button: HTMLElement, said: HTMLElement, place: HTMLElement | null }>} */
  const known = new Map();
  let asked = 0;
  let alive = true; // the kernel

  /** @param {Element} at @param {boolean} open @param {string} words */
  function show(at, open, words = "") {
    const entry = known.get(at);
    if (!entry) return;
    entry.said.textContent = words;
    entry.place?.remove();
    entry.place = null;
    if (open) {
      const id = at.getAttribute("data-bls-inspect") ?? "";
      const wait = make("span", { class: "bls-inspect bls-inspect-wait" }, "waiting for the kernel …");
      entry.place = make("div", { "data-bls-place": id }, wait); // the inspector covers it, once it is there
      at.append(entry.place);
      model.send({ id });
    }
    entry.button.setAttribute("aria-expanded", String(open));
  }

  function clear() {
    for (const at of known.keys()) at.replaceChildren();
    known.clear();
  }

  function look() {
    asked = 0;
    if (!alive) return;
    for (const at of [...known.keys()]) if (!at.isConnected) known.delete(at);
    for (const at of document.querySelectorAll(`[data-bls-inspect^="${key}-"]`)) {
      if (known.has(at)) continue;
      const button = make("button", {
        title: "Look into it: pictures, figures, slices", "aria-expanded": "false", onclick: () => show(at, !known.get(at)?.place),
      }, "inspect");
      const said = make("span", { class: "bls-inspect-said", role: "status" });
      known.set(at, { button, said, place: null });
      at.replaceChildren(make("div", { class: "bls-inspect bls-inspect-open" }, button, " ", said));
    }
  }

  const told = (/** @type {{ id: string, said: string }} */ message) => {
    for (const at of known.keys()) {
      if (at.getAttribute("data-bls-inspect") === message.id) show(at, false, message.said);
    }
  };
  const observer = new MutationObserver(() => {
    asked ||= requestAnimationFrame(look);
  });
  observer.observe(document.body, { childList: true, subtree: true });
  model.on("msg:custom", /** @type {any} */ (told));
  model.on("comm_live_update", () => { // the kernel has gone, or come back
    alive = !alive;
    if (alive) look();
    else clear();
  });
  look();
  return () => {
    observer.disconnect();
    cancelAnimationFrame(asked);
    clear();
  };
}

export default { initialize };
