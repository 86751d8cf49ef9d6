// Takes a guess, marks the right choice, unfolds the output below, and moves the focus to the next cell, so that
// Shift+Enter continues.

import { make } from "./common.js";
import { onTop } from "./on_top.js";

/**
 * Select the next cell of JupyterLab or Notebook; return false in another frontend, or in the last cell.
 * @param {Element} el
 */
function focusNextCell(el) {
  let next = el.closest(".jp-Cell")?.nextElementSibling;
  while (next && !next.classList.contains("jp-Cell")) next = next.nextElementSibling;
  if (!(next instanceof HTMLElement)) return false;
  if (!next.hasAttribute("tabindex")) next.setAttribute("tabindex", "-1");
  next.focus({ preventScroll: true });
  return true;
}

/** @type {import("./on_top.js").Render} */
function render({ model, el }) {
  const root = make("div", { class: "bls-guess-ask", role: "group", "aria-label": "Your guess" });
  el.append(root);
  // The fold stands below the place that this covers.
  const fold = /** @type {HTMLDetailsElement | null} */ (el.closest(".bls-out")?.querySelector(":scope > details"));

  /** @param {string} guess */
  function take(guess) {
    model.set("guess", guess);
    model.save_changes();
  }

  /** @param {string} choice */
  function button(choice) {
    const guess = model.get("guess");
    if (!guess) return make("button", { onclick: () => take(choice) }, choice);
    const right = choice === model.get("right");
    const made = choice === guess;
    const label = `${choice}${made ? ", your guess" : ""}${right ? ", right" : ""}`;
    const kind = `${made ? "bls-guess-made" : ""} ${right ? "bls-guess-right" : ""}`.trim();
    return make("button", { disabled: "", class: kind, "aria-label": label }, `${right ? "✓ " : ""}${choice}`);
  }

  function asked() {
    const choices = /** @type {string[]} */ (model.get("choices"));
    if (choices.length) return choices.map(button);
    if (model.get("guess")) return [make("b", {}, model.get("guess"))];
    const input = /** @type {HTMLInputElement} */ (
      make("input", { type: "text", maxlength: 200, "aria-label": "Your guess", "data-lm-suppress-shortcuts": "true" })
    );
    const taken = () => input.value.trim() && take(input.value.trim());
    input.addEventListener("keydown", (event) => event.key === "Enter" && taken());
    return [input, make("button", { onclick: taken }, "Guess")];
  }

  function draw() {
    const guess = model.get("guess");
    let hadFocus = root.contains(document.activeElement);
    root.replaceChildren(make("b", {}, guess ? "Your guess:" : "Your guess?"), ...asked());
    if (guess && hadFocus && focusNextCell(el)) hadFocus = false;
    if (!fold) return;
    fold.hidden = !guess;
    if (guess) fold.open = true;
    if (guess && hadFocus) fold.querySelector("summary")?.focus();
  }

  model.on("change:guess", draw);
  model.on("change:right", draw);
  draw();
  return () => {
    model.off("change:guess", draw);
    model.off("change:right", draw);
    if (fold) fold.hidden = false;
  };
}

export default onTop(render);
