// What is said about blocks: in the tooltip, in the panel of a block, to a screen reader.

import { duration, make, size } from "./common.js";

/**
 * @typedef {import("./lifetimes.js").Columns} Columns
 * @typedef {{ title: string, end: number, words: string[], models: string[], inks: Ink[], alarm: Ink,
 *   lanes: { label: string, line: string, owners: string[], deep: number, rank: number, size: string, peak: string }[],
 *   devices: { label: string, name: string, total: number, used: number }[] }} Info
 * @typedef {{ light: string, dark: string, hatch: string }} Ink
 */

/** @param {Columns} c @param {Info} info @param {number} life */
export function holdersOf(c, info, life) {
  const found = [];
  for (let i = c.holder_at[life]; i < c.holder_at[life + 1]; i += 1) {
    found.push({ who: info.words[c.holder_[i]], remedy: info.words[c.remedy_[i]] });
  }
  return found;
}

/** @param {Columns} c @param {Info} info @param {number} life */
function lived(c, info, life) {
  if (c.died[life] < 0) return `still alive, ${duration(info.end - c.born[life])} old at the end`;
  return `lived ${duration(c.died[life] - c.born[life])}`;
}

/**
 * A few lines about a block.
 * @param {Columns} c @param {Info} info @param {number} life
 */
export function shortly(c, info, life) {
  const name = `${info.words[c.name_[life]]}  ${size(c.bytes[life])} on ${info.devices[c.device[life]].label}`;
  const held = holdersOf(c, info, life).map((holder) => holder.who);
  return [
    name,
    info.words[c.what_[life]],
    `made by ${info.words[c.maker_[life]]}`,
    ...[[info.words[c.line_[life]], info.words[c.source_[life]]].filter(Boolean).join("  ")].filter(Boolean),
    lived(c, info, life),
    ...(c.died[life] < 0 ? [held.length ? `held by ${held.join(", ")}` : "no holder was found"] : []),
  ];
}

/**
 * The panel of one block: where it was, what it is a copy of, who holds it.
 * @param {Columns} c @param {Info} info @param {number} life
 * @param {(life: number) => void} go selects another block
 */
export function describe(c, info, life, go) {
  const { words, devices } = info;
  const stops = [step(c.born[life], beginning(c, info, life, go))];
  for (let i = c.stay_at[life]; i < c.stay_at[life + 1]; i += 1) {
    stops.push(step(c.stay_ns[i], [words[c.stay_[i]]]));
  }
  for (let other = 0; other < c.id.length; other += 1) {
    if (c.source[other] !== life) continue;
    const to = c.how[other] === 2 ? `transferred to ${devices[c.device[other]].label}: ` : "copied: ";
    stops.push(step(c.born[other], [to, link(c, info, other, go)]));
  }
  stops.sort((a, b) => Number(a.dataset.ns) - Number(b.dataset.ns));
  if (c.died[life] >= 0) stops.push(step(c.died[life], [`freed, after ${duration(c.died[life] - c.born[life])}`]));
  return [
    make("div", { class: "bls-life-name" },
      make("b", {}, words[c.name_[life]]),
      ` ${words[c.what_[life]]} · ${size(c.bytes[life])} · ${devices[c.device[life]].label}`),
    make("ol", {}, ...stops),
    ...(c.died[life] < 0 ? [heldBy(c, info, life)] : []),
  ];
}

/** @param {Columns} c @param {Info} info @param {number} life @param {(life: number) => void} go */
function beginning(c, info, life, go) {
  const maker = `made by ${info.words[c.maker_[life]]}`;
  const line = info.words[c.line_[life]];
  const at = line ? [` in ${line} `, make("code", { class: "bls-life-source" }, info.words[c.source_[life]])] : [];
  if (c.source[life] < 0) return [maker, ...at];
  const took = c.transfer[life] > 0 ? ` in ${duration(c.transfer[life])}` : "";
  const how = c.how[life] === 2 ? `, transferred${took} from ` : `, copied${took} from `;
  return [maker, how, link(c, info, c.source[life], go), ...at];
}

/** @param {number} ns @param {(string | Node)[]} what */
function step(ns, what) {
  return make("li", { "data-ns": ns }, make("span", { class: "bls-life-time bls-chart-dim" }, duration(ns)), make("span", {}, ...what));
}

/** @param {Columns} c @param {Info} info @param {number} life @param {(life: number) => void} go */
function link(c, info, life, go) {
  const text = `${info.words[c.name_[life]]} on ${info.devices[c.device[life]].label}`;
  return make("button", { class: "bls-life-link", onclick: () => go(life) }, text);
}

/** @param {Columns} c @param {Info} info @param {number} life */
function heldBy(c, info, life) {
  const holders = holdersOf(c, info, life);
  const said = holders.map(({ who, remedy }) =>
    make("li", {}, make("code", {}, who), remedy && " · to release: ", remedy && make("code", {}, remedy)));
  return make("div", { class: `bls-life-held${c.left[life] ? " bls-life-left" : ""}` },
    "Still alive, held by", said.length ? make("ul", {}, ...said) : " an unknown owner");
}
