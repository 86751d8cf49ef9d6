// Lets a widget take the place of its picture: a cell's output holds the picture, which any viewer of the
// notebook can show, and while a kernel is there the widget covers it. See bls_notebook/display/widgets.py.

/** @typedef {{ get(name: string): any, set(name: string, value: any): void, save_changes(): void,
 *   on(name: string, callback: () => void): void, off(name: string, callback: () => void): void }} Model */
/** @typedef {(context: { model: Model, el: HTMLElement }) => (() => void) | void} Render */

/**
 * Make a widget out of its drawing: on top of every picture that waits for it, and as a view of its own. A view that
 * replaces a whole display contains its HTML, with the picture.
 * @param {Render} render
 */
export function onTop(render) {
  return {
    render: (/** @type {{ model: Model, el: HTMLElement }} */ { model, el }) => {
      const report = model.get("report");
      if (!report) return render({ model, el });
      el.innerHTML = report;
    },
    initialize: (/** @type {{ model: Model }} */ { model }) => cover(model, render),
  };
}

/**
 * @param {Model} model
 * @param {Render} render
 */
function cover(model, render) {
  /** @type {Map<HTMLElement, { ends: (() => void) | void, picture: Node[] }>} */
  const covered = new Map();
  const selector = `[data-bls-place="${CSS.escape(model.get("place"))}"]`;
  let asked = 0;

  /** @param {HTMLElement} place */
  function uncover(place) {
    const was = covered.get(place);
    covered.delete(place);
    was?.ends?.();
    place.replaceChildren(...(was?.picture ?? []));
  }

  function look() {
    asked = 0;
    for (const place of [...covered.keys()]) {
      if (!place.isConnected) uncover(place); // a cell that was run again, or scrolled out of the page
    }
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(selector))) {
      if (covered.has(place)) continue;
      const picture = [...place.childNodes];
      const el = document.createElement("div");
      place.replaceChildren(el);
      covered.set(place, { ends: render({ model, el }), picture });
    }
  }

  const observer = new MutationObserver(() => {
    asked ||= requestAnimationFrame(look);
  });
  if (model.get("place")) {
    observer.observe(document.body, { childList: true, subtree: true });
    look();
  }
  return () => {
    observer.disconnect();
    cancelAnimationFrame(asked);
    for (const place of [...covered.keys()]) uncover(place);
  };
}
