// What each device had at its peak: models, their functions and the lines, each as wide as its bytes.

import { make } from "./common.js";

/**
 * @typedef {{ depth: number, left: number, width: number, model: number, label: string, size: string, source: string, about: string }} Box
 * @typedef {{ title: string, boxes: Box[] }} Flame
 * @typedef {import("./lifetimes.js").LifetimesChart} LifetimesChart
 */

const PERCENT = (/** @type {number} */ share) => `${(share * 100).toFixed(3)}%`;

/** All peaks, which fold away; nothing where no line is known. @param {LifetimesChart} chart @param {(text: string) => void} search */
export function flameView(chart, search) {
  const { flames } = chart.info;
  if (!flames.length) return null;
  return make("details", { class: "bls-life-flames", open: true },
    make("summary", {}, "the peak by line of code (width: bytes); click a box to find its blocks"),
    ...flames.map(({ title, boxes }) => make("div", {},
      make("b", {}, title),
      ...[0, 1, 2].map((depth) => make("div", { class: "bls-life-flame" },
        ...boxes.filter((box) => box.depth === depth).map((box) => boxView(chart, box, search)))))));
}

/** @param {LifetimesChart} chart @param {Box} box @param {(text: string) => void} search */
function boxView(chart, { depth, left, width, model, label, size, source, about }, search) {
  const fill = make("i", { class: `bls-life-flame-${depth}` });
  chart.chips.push([fill, chart.info.inks[model]]);
  const what = depth === 1 ? label.replace("()", "") : label;
  const button = make("button", { type: "button", title: [label, source, about].filter(Boolean).join("\n"), onclick: () => search(what) },
    fill, make("span", {}, label), make("span", { class: "bls-chart-dim" }, ` ${size} `), source && make("code", {}, source));
  [button.style.left, button.style.width] = [PERCENT(left), PERCENT(width)];
  return button;
}
