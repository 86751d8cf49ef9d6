// The chart of a memory track: bytes over time on each device, a bar for each block of memory.
//
// Ctrl or Cmd with the wheel zooms, dragging or Shift with the wheel moves, a click selects a block; every
// one of these has a key. What is selected is the trait `selected`, the id of a block.

import { onTop } from "./on_top.js";
import { Chart } from "./lifetimes_chart.js";

/** @param {{ model: import("./on_top.js").Model, el: HTMLElement }} context */
function render({ model, el }) {
  const chart = new Chart(model, el);
  return () => chart.end();
}

export default onTop(render);
