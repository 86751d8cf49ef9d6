// Draws the chart of lifetimes on canvases: bytes over time on each device, the time axis, a bar for each block.

import { duration, size, tickLabels, ticks } from "./common.js";
import { lastBefore } from "./lifetimes_rows.js";

/**
 * @typedef {import("./lifetimes_rows.js").Row} Row
 * @typedef {{ width: number, left: number, right: number, from: number, to: number, end: number }} Scale
 * @typedef {{ text: string, dim: string, line: string, paper: string, band: string, alarm: string, brand: string,
 *   dark: boolean, font: string }} Theme
 */

export const ROW = 18;
export const HEAD = 24;
export const PANEL = 74;
export const AXIS = 24;
const BAR = 13;

/** @param {Scale} scale @param {number} ns */
export function xOf(scale, ns) {
  return scale.left + ((ns - scale.from) / (scale.to - scale.from)) * (scale.width - scale.left - scale.right);
}

/** @param {Scale} scale @param {number} x */
export function nsOf(scale, x) {
  return scale.from + ((x - scale.left) / (scale.width - scale.left - scale.right)) * (scale.to - scale.from);
}

/**
 * Make a canvas as sharp as the screen, empty, and in CSS pixels.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
 */
export function fresh(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/**
 * A fill with the hatch of a device, so that devices differ without colour too.
 * @param {CanvasRenderingContext2D} context @param {{ light: string, dark: string, hatch: string }} ink
 * @param {boolean} dark
 */
export function fillOf(context, ink, dark) {
  const colour = dark ? ink.dark : ink.light;
  if (!ink.hatch) return colour;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = dark ? "rgba(0,0,0,.3)" : "rgba(255,255,255,.5)";
  pen.lineWidth = 1.2;
  pen.beginPath();
  const rising = "/x".includes(ink.hatch);
  const falling = "\\x".includes(ink.hatch);
  for (const shift of [-8, 0, 8]) {
    if (rising) pen.moveTo(shift - 1, 9), pen.lineTo(shift + 9, -1);
    if (falling) pen.moveTo(shift - 1, -1), pen.lineTo(shift + 9, 9);
  }
  if (ink.hatch === "-") pen.moveTo(0, 4), pen.lineTo(8, 4);
  pen.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}

/**
 * @param {CanvasRenderingContext2D} context @param {string} text @param {number} x @param {number} y
 * @param {{ colour: string, font: string, align?: CanvasTextAlign, most?: number }} look
 */
export function write(context, text, x, y, look) {
  context.font = look.font;
  context.fillStyle = look.colour;
  context.textAlign = look.align ?? "left";
  context.textBaseline = "middle";
  context.fillText(fit(context, text, look.most ?? Infinity), x, y);
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} most */
function fit(context, text, most) {
  if (context.measureText(text).width <= most) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= most) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}

/**
 * Fill below the steps [ns, bytes, left]: of what falls on one pixel, the highest.
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {number[][]} steps
 * @param {number} column 1 or 2 @param {number} base @param {number} height @param {number} most
 */
export function area(context, scale, steps, column, base, height, most) {
  const stop = scale.width - scale.right;
  let at = Math.max(0, lastBefore(steps.length, (i) => steps[i][0], scale.from));
  let high = steps[at][column];
  context.beginPath();
  context.moveTo(scale.left, base);
  for (let x = scale.left; x <= stop; x += 1) {
    const until = nsOf(scale, x + 1);
    while (at + 1 < steps.length && steps[at + 1][0] < until) high = Math.max(high, steps[(at += 1)][column]);
    const y = base - (high / (most || 1)) * height;
    context.lineTo(x, y);
    context.lineTo(Math.min(x + 1, stop), y);
    high = steps[at][column];
  }
  context.lineTo(stop, base);
  context.closePath();
}

/**
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {number} height @param {Theme} theme
 */
export function grid(context, scale, height, theme) {
  context.fillStyle = theme.line;
  for (const ns of timesOf(scale)) context.fillRect(Math.round(xOf(scale, ns)), 0, 1, height);
}

/** @param {Scale} scale */
function timesOf(scale) {
  return ticks(scale.from, scale.to, Math.max(2, (scale.width - scale.left - scale.right) / 110));
}

/**
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {number} top @param {Theme} theme
 */
export function axis(context, scale, top, theme) {
  const times = timesOf(scale);
  // Zoomed far in, all labels would look alike: then they count from the left edge.
  const near = scale.to - scale.from < scale.to / 5000;
  const labels = near ? tickLabels(times.map((ns) => ns - times[0])).map((text) => `+${text}`) : tickLabels(times);
  times.forEach((ns, i) => {
    const align = xOf(scale, ns) > scale.width - scale.right - 20 ? "right" : "center";
    write(context, labels[i], xOf(scale, ns), top + AXIS / 2, { colour: theme.dim, font: theme.font, align });
  });
  if (near) {
    const look = { colour: theme.dim, font: theme.font, align: /** @type {CanvasTextAlign} */ ("right") };
    write(context, `from ${duration(times[0])}`, scale.left - 10, top + AXIS / 2, look);
  }
}

/**
 * @typedef {{ device: { label: string, total: number, used: number, light: string, dark: string, hatch: string },
 *   steps: number[][], peak: number, peakAt: number, left: number, peakText: string }} Panel
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {Panel} panel @param {number} top
 * @param {Theme} theme
 */
export function drawPanel(context, scale, panel, top, theme) {
  const [base, height] = [top + PANEL - 8, PANEL - 32];
  const { device } = panel;
  const room = Math.max(device.total - device.used, 0); // what was in use before is in no block
  const near = room > 0 && room < panel.peak * 1.8;
  const most = near ? Math.max(panel.peak, room) : panel.peak;
  context.globalAlpha = 0.55;
  context.fillStyle = fillOf(context, device, theme.dark);
  area(context, scale, panel.steps, 1, base, height, most);
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = theme.dark ? device.dark : device.light;
  context.lineWidth = 1;
  context.stroke();
  if (panel.left) {
    context.fillStyle = theme.alarm;
    area(context, scale, panel.steps, 2, base, height, most);
    context.fill();
  }
  if (near) {
    const y = base - (room / most) * height;
    context.fillStyle = theme.text;
    for (let x = scale.left; x < scale.width - scale.right; x += 8) context.fillRect(x, Math.round(y), 5, 1);
  }
  const bold = `600 ${theme.font}`;
  const right = { colour: theme.text, font: theme.font, align: /** @type {CanvasTextAlign} */ ("right"), most: scale.left - 14 };
  write(context, device.label, scale.left - 10, top + 14, { ...right, font: bold });
  write(context, `peak ${size(panel.peak)}`, scale.left - 10, top + 34, right);
  const before = device.used ? `, ${size(device.used)} before` : "";
  if (device.total) {
    write(context, `${near ? "- - " : ""}of ${size(device.total)}${before}`, scale.left - 10, top + 52, { ...right, colour: theme.dim });
  }
  if (panel.left) {
    const y = Math.max(top + 14, base - (panel.left / most) * height);
    write(context, size(panel.left), scale.width - scale.right + 8, y - 7, { colour: theme.alarm, font: bold, most: scale.right - 10 });
    write(context, "left behind", scale.width - scale.right + 8, y + 8, { colour: theme.alarm, font: bold, most: scale.right - 10 });
  }
  peak(context, scale, panel, base - (panel.peak / most) * height, theme);
}

/**
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {Panel} panel @param {number} y
 * @param {Theme} theme
 */
function peak(context, scale, panel, y, theme) {
  if (!panel.peak || panel.peakAt < scale.from || panel.peakAt > scale.to) return;
  const x = xOf(scale, panel.peakAt);
  context.fillStyle = theme.text;
  context.beginPath();
  context.moveTo(x - 4, y - 6);
  context.lineTo(x + 4, y - 6);
  context.lineTo(x, y);
  context.fill();
  context.font = theme.font;
  const room = scale.width - scale.left - scale.right;
  const wide = Math.min(context.measureText(panel.peakText).width, room);
  const start = Math.min(Math.max(x - wide / 2, scale.left + 2), scale.width - scale.right - wide);
  write(context, panel.peakText, start, y - 15, { colour: theme.text, font: theme.font, most: room });
}

/**
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {Row} row @param {number} top
 * @param {Record<string, any>} c @param {any} fill @param {Theme} theme @param {(life: number) => boolean} lit
 */
export function drawBars(context, scale, row, top, c, fill, theme, lit) {
  const [y, right] = [top + (ROW - BAR) / 2, scale.width - scale.right];
  const { lives } = row;
  let drawn = -1; // the pixel up to which this row is full
  for (let i = Math.max(0, lastBefore(lives.length, (k) => c.born[lives[k]], scale.from)); i < lives.length; i += 1) {
    const life = lives[i];
    if (c.born[life] > scale.to) break;
    const open = c.died[life] < 0;
    const x = Math.max(xOf(scale, c.born[life]), scale.left);
    const stop = Math.min(open ? right : Math.max(xOf(scale, c.died[life]), x + 2), right);
    if (stop < scale.left || stop <= x || (stop <= drawn && !lit(life))) continue;
    drawn = stop;
    context.globalAlpha = lit(life) ? 1 : 0.28;
    context.fillStyle = fill;
    context.fillRect(x, y, stop - x, BAR);
    if (open) {
      context.beginPath();
      context.moveTo(right, y);
      context.lineTo(right + 6, y + BAR / 2);
      context.lineTo(right, y + BAR);
      context.fill();
    }
    if (stop - x > 9) stays(context, scale, life, y, stop, c, theme);
    context.globalAlpha = 1;
  }
}

/**
 * @param {CanvasRenderingContext2D} context @param {Scale} scale @param {number} life @param {number} y
 * @param {number} stop @param {Record<string, any>} c @param {Theme} theme
 */
function stays(context, scale, life, y, stop, c, theme) {
  let before = -10;
  for (let i = c.stay_at[life]; i < c.stay_at[life + 1]; i += 1) {
    const x = Math.round(xOf(scale, c.stay_ns[i]));
    if (x < scale.left || x > stop || x - before < 3) continue;
    before = x;
    context.fillStyle = theme.paper;
    context.fillRect(x - 1, y - 1, 3, BAR + 2);
    context.fillStyle = theme.text;
    context.fillRect(x, y - 1, 1, BAR + 2);
    if (c.words[c.stay_owner_[i]] === c.models[c.model[life]]) continue; // its own: the heading says so
    const next = i + 1 < c.stay_at[life + 1] ? xOf(scale, c.stay_ns[i + 1]) : stop;
    const text = `→ ${c.words[c.stay_owner_[i]]}`;
    context.font = theme.font;
    const wide = context.measureText(text).width;
    if (Math.min(next, stop) - x < wide + 10) continue;
    context.fillStyle = theme.paper;
    context.fillRect(x + 3, y + 0.5, wide + 4, BAR - 1);
    write(context, text, x + 5, y + BAR / 2 + 0.5, { colour: theme.text, font: theme.font });
  }
}

/**
 * An arrow from a block to its copy.
 * @param {CanvasRenderingContext2D} context @param {number} x0 @param {number} y0 @param {number} x1
 * @param {number} y1 @param {boolean} transfer @param {string} colour
 */
export function arrow(context, x0, y0, x1, y1, transfer, colour) {
  const down = y1 > y0;
  const [from, to] = down ? [y0 + BAR / 2, y1 - BAR / 2] : [y0 - BAR / 2, y1 + BAR / 2];
  const angle = Math.atan2(to - from, x1 - x0);
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.2;
  context.setLineDash(transfer ? [] : [2, 2]);
  context.beginPath();
  context.moveTo(x0, from);
  context.lineTo(x1 - 5 * Math.cos(angle), to - 5 * Math.sin(angle));
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x1, to);
  context.lineTo(x1 - 7 * Math.cos(angle - 0.4), to - 7 * Math.sin(angle - 0.4));
  context.lineTo(x1 - 7 * Math.cos(angle + 0.4), to - 7 * Math.sin(angle + 0.4));
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {number} x0 @param {number} x1 @param {number} top @param {string} colour */
export function outline(context, x0, x1, top, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect(x0 - 1, top + (ROW - BAR) / 2 - 1, Math.max(x1 - x0, 2) + 2, BAR + 2);
}
