// Takes a guess, and then unfolds what stands below it.

import { make } from "./common.js";
import { onTop } from "./on_top.js";

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

  function asked() {
    const choices = /** @type {string[]} */ (model.get("choices"));
    if (choices.length) return choices.map((choice) => make("button", { onclick: () => take(choice) }, choice));
    const input = /** @type {HTMLInputElement} */ (
      make("input", { type: "text", maxlength: 200, "aria-label": "Your guess", "data-lm-suppress-shortcuts": "true" })
    );
    const taken = () => input.value.trim() && take(input.value.trim());
    input.addEventListener("keydown", (event) => event.key === "Enter" && taken());
    return [input, make("button", { onclick: taken }, "Guess")];
  }

  function draw() {
    const guess = model.get("guess");
    const hadFocus = root.contains(document.activeElement);
    if (guess) root.replaceChildren("Your guess: ", make("b", {}, guess));
    else root.replaceChildren(make("b", {}, "Your guess?"), ...asked());
    if (!fold) return;
    fold.hidden = !guess;
    if (guess) fold.open = true;
    if (guess && hadFocus) fold.querySelector("summary")?.focus();
  }

  model.on("change:guess", draw);
  draw();
  return () => {
    model.off("change:guess", draw);
    if (fold) fold.hidden = false;
  };
}

export default onTop(render);
