// Paints the chart of lifetimes: bytes over time on each device, and a bar for each block.

import { triangle } from "./axis.js";
import { above, size } from "./common.js";

/** @typedef {import("./axis.js").Pen} Pen */
/** @typedef {import("./lifetimes.js").LifetimesChart} LifetimesChart */
/** @typedef {import("./lifetimes.js").LifeRow} LifeRow */

export const [PANEL, AXIS, HEAD, ROW, BAR] = [74, 24, 24, 18, 13]; // px

/** The bytes on each device, and the axis. @param {LifetimesChart} chart @param {Pen} pen */
export function paintHead(chart, pen) {
  const bottom = chart.headHeight - AXIS;
  chart.grid(pen, 0, bottom);
  chart.panels.forEach((panel, k) => paintPanel(chart, pen, panel, k * PANEL));
  pen.fillStyle = chart.theme.line;
  pen.fillRect(chart.left, bottom, chart.width, 1);
  chart.axis(pen, bottom + AXIS / 2);
  pen.fillStyle = chart.theme.dim;
  if (chart.cursor !== undefined) pen.fillRect(chart.cursor, 0, 1, bottom);
}

/** The fill of a model: with lines where models share a colour. @param {LifetimesChart} chart @param {number} number */
function fillOf(chart, number) {
  const { dark } = chart.theme;
  const { hatch } = chart.info.inks[number];
  const ink = chart.ink(chart.info.inks[number]);
  return hatch ? chart.hatch(hatch[0], dark ? "rgba(0, 0, 0, 0.3)" : "rgba(255, 255, 255, 0.5)", ink) : ink;
}

/** @param {LifetimesChart} chart @param {Pen} pen @param {import("./lifetimes.js").Panel} panel @param {number} top */
function paintPanel(chart, pen, { number, models, steps, peak, peakAt, text }, top) {
  const { theme, info, left, width } = chart;
  const device = info.devices[number];
  const alarm = chart.ink(info.alarm);
  const [base, height] = [top + PANEL - 8, PANEL - 32];
  const room = Math.max(device.total - device.used, 0); // what was in use before is in no block
  const near = room > 0 && room < peak * 1.8;
  const unit = -height / (near ? Math.max(peak, room) : peak || 1);
  for (let k = models.length - 1; k >= 0; k -= 1) { // each covers those below it
    for (const [alpha, fill] of /** @type {const} */ ([[1, theme.paper], [0.75, fillOf(chart, models[k])]])) {
      [pen.globalAlpha, pen.fillStyle] = [alpha, fill];
      chart.area(pen, { at: steps.at, level: steps.tops[k] }, base, unit);
    }
  }
  pen.globalAlpha = 1;
  const stays = steps.left[steps.left.length - 1];
  const bold = `600 ${theme.font}`;
  if (stays) {
    pen.fillStyle = alarm;
    chart.area(pen, { at: steps.at, level: steps.left }, base, unit);
    const y = Math.max(top + 14, base + stays * unit);
    const look = { colour: alarm, font: bold, most: chart.canvasWidth - left - width - 10 };
    chart.write(pen, size(stays), left + width + 8, y - 7, look);
    chart.write(pen, "left behind", left + width + 8, y + 8, look);
  }
  pen.fillStyle = theme.fg;
  for (let x = left; near && x < left + width; x += 8) pen.fillRect(x, Math.round(base + room * unit), 5, 1);
  const right = { colour: theme.fg, align: /** @type {CanvasTextAlign} */ ("right"), most: left - 14 };
  const before = device.used ? `, ${size(device.used)} before` : "";
  chart.write(pen, device.label, left - 10, top + 14, { ...right, font: bold });
  chart.write(pen, `peak ${size(peak)}`, left - 10, top + 34, right);
  if (device.total) chart.write(pen, `${near ? "- - " : ""}of ${size(device.total)}${before}`, left - 10, top + 52, { ...right, colour: theme.dim });
  if (!peak || peakAt < chart.from || peakAt > chart.to) return;
  const [x, y] = [chart.x(peakAt), base + peak * unit];
  pen.fillStyle = theme.fg;
  triangle(pen, x, y, -6);
  pen.font = theme.font;
  const wide = Math.min(pen.measureText(text).width, width);
  chart.write(pen, text, Math.min(Math.max(x - wide / 2, left + 2), left + width - wide), y - 15, { colour: theme.fg, most: width });
}

/** The rows between two heights. @param {LifetimesChart} chart @param {Pen} pen @param {number} from @param {number} to */
export function paintRows(chart, pen, from, to) {
  const { theme, left, width } = chart;
  chart.groups.forEach(({ text, top, height }, k) => {
    if (top > to || top + height < from) return;
    pen.fillStyle = "rgba(128, 128, 128, 0.08)";
    if (k % 2 === 0) pen.fillRect(0, top, chart.canvasWidth, height);
    chart.write(pen, text, left - 10, top + 14, { colour: theme.fg, font: `600 ${theme.font}`, align: "right", most: left - 14 });
  });
  const related = chart.related();
  for (const row of chart.rows) {
    if (row.top + ROW < from || row.top > to) continue;
    pen.save();
    pen.beginPath();
    pen.rect(left, row.top - 1, width + 8, ROW + 2);
    pen.clip();
    pen.fillStyle = fillOf(chart, row.lane.model);
    if (row.steps) {
      pen.globalAlpha = related ? 0.4 : 1;
      chart.area(pen, { at: row.steps.at, level: row.heights }, row.top + (ROW + BAR) / 2, -BAR);
    } else paintBars(chart, pen, row, (life) => !related || related.has(life));
    pen.restore();
    paintLabel(chart, pen, row);
  }
  paintLinks(chart, pen, from, to, related);
}

/** @param {LifetimesChart} chart @param {Pen} pen @param {LifeRow} row @param {(life: number) => boolean} lit */
function paintBars(chart, pen, row, lit) {
  const { c, left, width } = chart;
  const [base, right] = [row.top + (ROW + BAR) / 2, left + width];
  const fill = pen.fillStyle;
  let drawn = -1; // the pixel up to which this row is full
  for (let k = above(row.end, chart.from); k < row.of.length && row.begin[k] <= chart.to; k += 1) {
    const life = row.of[k];
    const x = Math.max(chart.x(row.begin[k]), left);
    const stop = Math.min(Math.max(chart.x(row.end[k]), x + 2), right);
    if (stop <= x || (stop <= drawn && !lit(life))) continue;
    drawn = stop;
    pen.globalAlpha = lit(life) ? 1 : 0.28;
    pen.fillStyle = fill;
    const high = BAR * chart.tall(c.bytes[life]);
    const y = base - high;
    pen.fillRect(x, y, stop - x, high);
    if (c.died[life] < 0) { // the open end points out of the chart
      pen.beginPath();
      pen.moveTo(right, y);
      pen.lineTo(right + 6, y + high / 2);
      pen.lineTo(right, base);
      pen.fill();
    }
    if (stop - x > 9) paintStays(chart, pen, life, base - BAR, stop);
    pen.globalAlpha = 1;
  }
}

/** When somebody else got a block, and who where there is room. @param {LifetimesChart} chart @param {Pen} pen @param {number} life @param {number} y @param {number} stop */
function paintStays(chart, pen, life, y, stop) {
  const { c, info, theme } = chart;
  let before = -10;
  for (let k = c.stay_at[life]; k < c.stay_at[life + 1]; k += 1) {
    const x = Math.round(chart.x(c.stay_ns[k]));
    if (x < chart.left || x > stop || x - before < 3) continue;
    before = x;
    pen.fillStyle = theme.paper;
    pen.fillRect(x - 1, y - 1, 3, BAR + 2);
    pen.fillStyle = theme.fg;
    pen.fillRect(x, y - 1, 1, BAR + 2);
    const owner = info.words[c.stay_owner_[k]];
    if (owner === info.models[c.model[life]]) continue; // its own: the heading says so
    const next = k + 1 < c.stay_at[life + 1] ? chart.x(c.stay_ns[k + 1]) : stop;
    pen.font = theme.font;
    const wide = pen.measureText(`→ ${owner}`).width;
    if (Math.min(next, stop) - x < wide + 10) continue;
    pen.fillStyle = theme.paper;
    pen.fillRect(x + 3, y + 0.5, wide + 4, BAR - 1);
    chart.write(pen, `→ ${owner}`, x + 5, y + BAR / 2 + 0.5, { colour: theme.fg });
  }
}

/** What stands left of a row, and right of it who holds what is left. @param {LifetimesChart} chart @param {Pen} pen @param {LifeRow} row */
function paintLabel(chart, pen, { lane, lives, owners, begins, steps, top }) {
  const { c, info, theme, left, width } = chart;
  const middle = top + ROW / 2;
  if (begins) {
    const bytes = steps ? lane.peak : lane.size;
    const many = steps || lane.open ? ` ×${lane.lives.length.toLocaleString("en")}` : "";
    const device = chart.panels.length > 1 ? ` ${info.devices[lane.device].name}` : "";
    const text = `${steps ? "▸ " : lane.open ? "▾ " : ""}${lane.label}${device}${many}`;
    chart.write(pen, bytes, left - 10, middle, { colour: theme.dim, align: "right" });
    const taken = pen.measureText(bytes).width + 18;
    chart.write(pen, text, left - taken, middle, { colour: theme.fg, align: "right", most: left - 6 - taken });
    const line = left - taken - pen.measureText(text).width - 24; // px that are left for it
    if (lane.line && lane.line !== lane.label) chart.write(pen, lane.line, 10, middle, { colour: theme.dim, most: line, least: 4 });
  }
  const colour = lives.some((life) => c.left[life]) ? chart.ink(info.alarm) : theme.dim;
  chart.write(pen, owners, left + width + 12, middle, { colour, most: chart.canvasWidth - left - width - 14 });
}

/** Arrows from blocks to their copies. @param {LifetimesChart} chart @param {Pen} pen @param {number} from @param {number} to @param {Set<number>} [related] */
function paintLinks(chart, pen, from, to, related) {
  const { c, placed } = chart;
  const wanted = [...placed].flatMap(([life, row]) => {
    const source = placed.get(c.source[life]);
    if (!source || (related && !(related.has(life) && related.has(c.source[life])))) return [];
    const seen = Math.max(row.top, source.top) + ROW >= from && Math.min(row.top, source.top) <= to;
    return seen && c.born[life] >= chart.from && c.born[life] <= chart.to ? [{ life, y0: source.top + ROW / 2, y1: row.top + ROW / 2 }] : [];
  });
  if (wanted.length > 150) return; // a thicket says nothing; selecting a block shows its own
  pen.strokeStyle = pen.fillStyle = chart.theme.fg;
  pen.lineWidth = 1.2;
  for (const { life, y0, y1 } of wanted) {
    const start = Math.max(c.born[c.source[life]], c.born[life] - c.transfer[life], chart.from);
    const [x0, x1] = [chart.x(start), chart.x(c.born[life])];
    const half = y1 > y0 ? BAR / 2 : -BAR / 2;
    const angle = Math.atan2(y1 - y0 - 2 * half, x1 - x0);
    pen.setLineDash(c.how[life] === 2 ? [] : [2, 2]); // of a transfer the line is whole
    pen.beginPath();
    pen.moveTo(x0, y0 + half);
    pen.lineTo(x1 - 5 * Math.cos(angle), y1 - half - 5 * Math.sin(angle));
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x1, y1 - half);
    for (const turn of [-0.4, 0.4]) pen.lineTo(x1 - 7 * Math.cos(angle + turn), y1 - half - 7 * Math.sin(angle + turn));
    pen.fill();
  }
  pen.setLineDash([]);
}
