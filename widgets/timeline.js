// The timeline of a profile: who ran when, who waited for whom. Python's side is display/timeline/widget.py.

import { columns, make } from "./common.js";
import { onTop } from "./on_top.js";
import { readSession } from "./timeline_data.js";
import { listen } from "./timeline_input.js";
import { TimelineView } from "./timeline_view.js";

/** @typedef {import("./on_top.js").Model} Model */

/** @param {{ model: Model, el: HTMLElement }} context */
function render({ model, el }) {
  const sessions = model.get("sessions").map(readSession);
  const root = make("div", { class: "bls-timeline" });
  root.style.setProperty("--t-labels", `${labelWidth(sessions)}px`);
  el.append(root);

  let wanted = false;
  const view = new TimelineView(root, sessions, {
    selected: (selection) => {
      model.set("selection", selection);
      model.save_changes();
    },
    focused: (focus) => {
      model.set("focus", focus);
      model.save_changes();
    },
    pathWanted: () => {
      // Worked out in Python when it is asked for the first time.
      if (model.get("paths").length) return true;
      wanted = true;
      model.set("wants_paths", true);
      model.save_changes();
      return false;
    },
  }, model.get("titled"));
  const pathsCame = () => {
    const paths = model.get("paths").map((/** @type {any} */ raw) => ({ ...columns(raw.data, raw.columns), phases: raw.phases }));
    if (!paths.length) return;
    view.setPaths(paths);
    if (wanted || model.get("lit")) view.light(true);
    wanted = false;
  };
  model.on("change:paths", pathsCame);
  pathsCame();
  const silence = listen(view);
  return () => {
    model.off("change:paths", pathsCame);
    silence();
    view.close();
  };
}

/**
 * The room for the names of lanes, in px: as much as they need, within limits.
 * @param {import("./timeline_data.js").Session[]} sessions
 */
function labelWidth(sessions) {
  const characters = sessions.flatMap(({ raw }) =>
    raw.lanes.map((lane) => (lane.model < 0 ? lane.name : raw.models[lane.model].name).length + lane.label.length));
  return Math.round(Math.min(250, Math.max(168, 84 + 6.8 * Math.max(0, ...characters))));
}

export default onTop(render);
