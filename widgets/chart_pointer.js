// What the pointer does on a chart: moves and zooms the axis, selects ranges, finds what it is at.

/** @typedef {import("./chart.js").Chart<any>} AnyChart */

/**
 * Drag moves the axis, or selects a range on the head or with Shift where ranges can be; a click chooses.
 * @param {AnyChart} chart @param {HTMLElement} element
 */
export function listen(chart, element) {
  /** @type {{ x: number, time: number, moved: boolean, selects: boolean } | null} */
  let drag = null;
  const where = (/** @type {MouseEvent} */ event) => {
    const box = chart.base.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const quiet = () => {
    chart.hovered = null;
    chart.hover(NaN, NaN);
    chart.drawOver();
  };
  const listeners = {
    pointerdown: (/** @type {PointerEvent} */ event) => {
      const [x] = where(event);
      const selects = chart.toRange !== null && (element === chart.head || event.shiftKey);
      if (event.button === 0) drag = { x, time: chart.time(x), moved: false, selects };
    },
    pointermove: (/** @type {PointerEvent} */ event) => {
      const [x, y] = where(event);
      if (!drag) {
        chart.hovered = chart.at(x, y);
        chart.hover(x, y);
        chart.drawOver();
      } else if (drag.moved || Math.abs(x - drag.x) >= 3) {
        if (!drag.moved) {
          element.setPointerCapture(event.pointerId);
          chart.frame.classList.add(drag.selects ? "bls-chart-selecting" : "bls-chart-dragging");
          quiet();
        }
        drag.moved = true;
        if (drag.selects) chart.toRange?.({ begin: drag.time, end: chart.time(x) }, false);
        else chart.pan(drag.x - x);
        if (!drag.selects) drag.x = x;
      }
    },
    pointerup: (/** @type {PointerEvent} */ event) => {
      const was = drag;
      drag = null;
      chart.frame.classList.remove("bls-chart-dragging", "bls-chart-selecting");
      const [x, y] = where(event);
      if (!was) return;
      if (was.moved && was.selects) chart.toRange?.({ begin: was.time, end: chart.time(x) });
      else if (!was.moved) chart.click(chart.at(x, y), x, y);
    },
    pointercancel: () => {
      drag = null;
    },
    pointerleave: () => {
      if (!drag) quiet();
    },
    dblclick: (/** @type {MouseEvent} */ event) => {
      const [x, y] = where(event);
      const spot = chart.at(x, y);
      if (spot) chart.zoomTo(spot);
      else if (y < 0 || x >= chart.left) chart.fit();
    },
  };
  for (const [name, listener] of Object.entries(listeners)) {
    element.addEventListener(name, /** @type {EventListener} */ (listener));
  }
}

/** Ctrl, or two fingers pinching, zooms; Shift or sideways moves; anything else scrolls. @param {AnyChart} chart @param {WheelEvent} event */
export function wheel(chart, event) {
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  if (event.ctrlKey || event.metaKey) {
    const x = event.clientX - chart.base.getBoundingClientRect().left;
    chart.zoom(
      1.0018 ** Math.max(-400, Math.min(400, event.deltaY * unit)),
      Math.max(chart.left, Math.min(x, chart.left + chart.width)),
    );
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    if (chart.to - chart.from >= chart.whole) return;
    chart.pan((event.deltaX || event.deltaY) * unit);
  } else {
    chart.hint.textContent = navigator.platform.startsWith("Mac") ? "⌘ + wheel zooms" : "Ctrl + wheel zooms";
    chart.hint.classList.add("bls-chart-on");
    clearTimeout(chart.timer);
    chart.timer = window.setTimeout(() => chart.hint.classList.remove("bls-chart-on"), 1200);
    return;
  }
  event.preventDefault();
  chart.hint.classList.remove("bls-chart-on");
  chart.hideTip();
}
