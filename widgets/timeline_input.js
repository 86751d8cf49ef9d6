// Mouse, wheel and keys of the timeline.

/** @typedef {import("./timeline_view.js").TimelineView} TimelineView */
/** @typedef {import("./timeline_view.js").Spot} Spot */

/**
 * @param {TimelineView} view
 * @returns {() => void} stops listening
 */
export function listen(view) {
  const ends = [pointer(view, view.parts.over, false), pointer(view, view.parts.ruler, true), wheel(view), keys(view), tools(view)];
  return () => ends.forEach((end) => end());
}

/**
 * @param {HTMLElement} element
 * @param {Record<string, (event: any) => void>} listeners
 */
function on(element, listeners) {
  const all = Object.entries(listeners);
  for (const [name, listener] of all) element.addEventListener(name, listener, { passive: false });
  return () => {
    for (const [name, listener] of all) element.removeEventListener(name, listener);
  };
}

/**
 * Drag pans or selects; moving over a request shows what is known of it; a click keeps that.
 * @param {TimelineView} view
 * @param {HTMLElement} element
 * @param {boolean} ruler where dragging always selects
 */
function pointer(view, element, ruler) {
  /** @type {{ x: number, time: number, moved: boolean, selects: boolean } | null} */
  let drag = null;
  const where = (/** @type {PointerEvent | MouseEvent} */ event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  return on(element, {
    pointerdown: (/** @type {PointerEvent} */ event) => {
      if (event.button !== 0) return;
      const [x] = where(event);
      drag = { x, time: view.time(x), moved: false, selects: ruler || event.shiftKey };
      element.setPointerCapture(event.pointerId);
    },
    pointermove: (/** @type {PointerEvent} */ event) => {
      const [x, y] = where(event);
      if (drag) {
        if (!drag.moved && Math.abs(x - drag.x) < 3) return;
        drag.moved = true;
        view.hovered = null;
        view.hideTip();
        element.classList.add(drag.selects ? "bls-tl-selecting" : "bls-tl-dragging");
        if (drag.selects) view.select({ begin: drag.time, end: view.time(x) }, false);
        else {
          view.pan(drag.x - x);
          drag.x = x;
        }
        return;
      }
      if (ruler) return;
      const spot = view.at(x, y);
      view.hovered = spot;
      if (spot) view.showTip(spot, x, y);
      else if (view.focus && document.activeElement === view.parts.over) view.showTip(view.focus);
      else view.hideTip();
      view.drawOver();
    },
    pointerup: (/** @type {PointerEvent} */ event) => {
      const was = drag;
      drag = null;
      element.classList.remove("bls-tl-dragging", "bls-tl-selecting");
      if (!was) return;
      const [x, y] = where(event);
      if (was.moved) {
        if (was.selects) view.select({ begin: was.time, end: view.time(x) });
        return;
      }
      if (ruler) {
        view.select(null);
        return;
      }
      const spot = view.at(x, y);
      if (spot?.more) view.zoom(0.2, x);
      else view.setFocus(spot);
    },
    pointercancel: () => {
      drag = null;
    },
    pointerleave: () => {
      if (ruler || drag) return;
      view.hovered = null;
      view.hideTip();
      view.drawOver();
    },
    dblclick: (/** @type {MouseEvent} */ event) => {
      const [x, y] = where(event);
      const spot = ruler ? null : view.at(x, y);
      if (spot) zoomTo(view, spot);
      else view.fit();
    },
  });
}

/**
 * @param {TimelineView} view
 * @param {Spot} spot
 */
function zoomTo(view, spot) {
  const [begin, end] = view.extent(spot);
  const room = (end - begin) * 0.15;
  view.show(begin - room, end + room);
}

/**
 * Ctrl, or two fingers pinching, zooms; Shift or sideways pans; anything else scrolls the page.
 * @param {TimelineView} view
 */
function wheel(view) {
  let timer = 0;
  const stop = on(view.parts.frame, {
    wheel: (/** @type {WheelEvent} */ event) => {
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const x = event.clientX - view.parts.over.getBoundingClientRect().left;
        view.zoom(1.0018 ** Math.max(-400, Math.min(400, event.deltaY * unit)), Math.max(0, Math.min(x, view.width)));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        view.pan((event.deltaX || event.deltaY) * unit);
      } else {
        view.parts.hint.textContent = navigator.platform.startsWith("Mac") ? "⌘ + wheel zooms" : "Ctrl + wheel zooms";
        view.parts.hint.classList.add("bls-tl-on");
        clearTimeout(timer);
        timer = window.setTimeout(() => view.parts.hint.classList.remove("bls-tl-on"), 1200);
        return;
      }
      view.parts.hint.classList.remove("bls-tl-on");
      view.hideTip();
    },
  });
  const scrolled = on(view.parts.scroll, { scroll: () => view.draw() });
  return () => {
    clearTimeout(timer);
    stop();
    scrolled();
  };
}

/** @param {TimelineView} view */
function keys(view) {
  /** @type {Record<string, (event: KeyboardEvent) => void>} */
  const does = {
    ArrowRight: (event) => (event.shiftKey ? view.pan(view.width / 8) : walk(view, 1)),
    ArrowLeft: (event) => (event.shiftKey ? view.pan(-view.width / 8) : walk(view, -1)),
    ArrowDown: () => climb(view, 1),
    ArrowUp: () => climb(view, -1),
    Home: () => view.show(0, view.to - view.from),
    End: () => view.show(view.whole - (view.to - view.from), view.whole),
    "+": () => view.zoom(0.7, middle(view)),
    "=": () => view.zoom(0.7, middle(view)),
    "-": () => view.zoom(1 / 0.7, middle(view)),
    0: () => view.fit(),
    Enter: () => view.focus && zoomTo(view, view.focus),
    p: () => {
      const parent = view.focus ? view.sessions[view.focus.panel].c.parent[view.focus.i] : -1;
      if (view.focus && parent >= 0) view.setFocus({ panel: view.focus.panel, i: parent, lane: view.sessions[view.focus.panel].c.lane[parent] });
      else view.say("The notebook sent it");
    },
    c: () => view.light(!view.lit),
    "/": () => view.parts.query.focus(),
    n: () => view.nextFound(1),
    N: () => view.nextFound(-1),
    "[": () => bound(view, "begin"),
    "]": () => bound(view, "end"),
    "?": () => view.parts.helpButton.click(),
    Escape: () => {
      if (view.focus) view.setFocus(null);
      else if (view.selection) view.select(null);
      else if (view.parts.query.value || view.model) clear(view);
      else if (view.lit) view.light(false);
    },
  };
  return on(view.parts.over, {
    keydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = does[event.key];
      if (!act) return;
      event.preventDefault();
      event.stopPropagation(); // the notebook has keys of its own
      act(event);
    },
    blur: () => view.hideTip(),
  });
}

/** @param {TimelineView} view */
function middle(view) {
  if (!view.focus) return view.width / 2;
  const [begin, end] = view.extent(view.focus);
  return Math.max(0, Math.min(view.width, view.painter.x((begin + end) / 2)));
}

/** @param {TimelineView} view */
function clear(view) {
  view.parts.query.value = "";
  view.find("");
}

/**
 * @param {TimelineView} view
 * @param {"begin" | "end"} which
 */
function bound(view, which) {
  if (!view.focus) return;
  const { c } = view.sessions[view.focus.panel];
  const time = which === "begin" ? c.sent[view.focus.i] : c.ended[view.focus.i];
  const other = view.selection ?? { begin: c.sent[view.focus.i], end: c.ended[view.focus.i] };
  view.select({ ...other, [which]: time });
}

/**
 * Every row of every lane, from top to bottom.
 * @param {TimelineView} view
 */
function rows(view) {
  return view.places.panels.flatMap((panel) =>
    panel.lanes.flatMap((place) => panel.session.blocks[place.index].map((row) => ({ panel: panel.number, lane: place.index, row }))),
  ).filter(({ row }) => row.n);
}

/**
 * The row and the place in it where the focus is.
 * @param {TimelineView} view
 * @param {ReturnType<typeof rows>} all
 */
function here(view, all) {
  const { focus } = view;
  if (!focus) return null;
  const lead = view.sessions[focus.panel].first[focus.i];
  for (let at = 0; at < all.length; at += 1) {
    if (all[at].panel !== focus.panel || all[at].lane !== focus.lane) continue;
    const k = all[at].row.span.indexOf(lead);
    if (k >= 0) return { at, k };
  }
  return null;
}

/**
 * Go to the next request of the row, through those of a batch one by one.
 * @param {TimelineView} view
 * @param {number} step
 */
function walk(view, step) {
  const all = rows(view);
  const now = here(view, all);
  if (!now || !view.focus) {
    if (all.length) view.setFocus({ panel: all[0].panel, lane: all[0].lane, i: all[0].row.span[0] });
    return;
  }
  const { panel, lane, row } = all[now.at];
  const session = view.sessions[panel];
  const members = session.batches.get(row.span[now.k]) ?? [row.span[now.k]];
  const member = members.indexOf(view.focus.i) + step;
  if (member >= 0 && member < members.length) {
    view.setFocus({ panel, lane, i: members[member] });
    return;
  }
  const k = now.k + step;
  if (k < 0 || k >= row.n) {
    view.say(step > 0 ? "The last of this lane" : "The first of this lane");
    return;
  }
  const next = session.batches.get(row.span[k]) ?? [row.span[k]];
  view.setFocus({ panel, lane, i: step > 0 ? next[0] : next[next.length - 1] });
}

/**
 * Go to the row above or below, to the request that is nearest in time.
 * @param {TimelineView} view
 * @param {number} step
 */
function climb(view, step) {
  const all = rows(view);
  const now = here(view, all);
  if (!now || !view.focus) {
    walk(view, 1);
    return;
  }
  const next = all[now.at + step];
  if (!next) return;
  const [begin, end] = view.extent(view.focus);
  const time = (Math.max(begin, view.from) + Math.min(end, view.to)) / 2;
  let best = 0;
  const away = (/** @type {number} */ k) => Math.max(0, next.row.begin[k] - time, time - next.row.end[k]);
  for (let k = 1; k < next.row.n; k += 1) if (away(k) < away(best)) best = k;
  view.setFocus({ panel: next.panel, lane: next.lane, i: next.row.span[best] });
}

/** @param {TimelineView} view */
function tools(view) {
  const ends = [
    on(view.parts.query, {
      input: () => view.find(view.parts.query.value),
      keydown: (/** @type {KeyboardEvent} */ event) => {
        event.stopPropagation();
        if (event.key === "Enter") view.nextFound(event.shiftKey ? -1 : 1);
        if (event.key === "Escape") {
          clear(view);
          view.parts.over.focus();
        }
      },
    }),
    on(view.parts.pathButton, { click: () => view.light(!view.lit) }),
    on(view.parts.fitButton, { click: () => view.fit() }),
    on(view.parts.helpButton, {
      click: () => {
        view.parts.helpButton.setAttribute("aria-pressed", String(view.parts.helpButton.getAttribute("aria-pressed") !== "true"));
        view.fillCards();
      },
    }),
  ];
  return () => ends.forEach((end) => end());
}
