// Replaces JupyterLab for displays: names the theme, runs widgets on their pictures, and zooms the other pictures.

const blsWidgets = {};

(() => {
  const own = document.currentScript.src;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function nameTheme() {
    const { theme } = document.body.dataset;
    const isDark = theme === "dark" || (theme !== "light" && dark.matches);
    document.body.dataset.jpThemeLight = String(!isDark);
  }

  /** The state of a widget, with the methods of anywidget's model. */
  class Model {
    constructor(state) {
      this.state = state;
    }
    get(name) {
      return this.state[name];
    }
    set(name, value) {
      this.state[name] = value;
    }
    save_changes() {}
    on() {}
    off() {}
  }

  /** Bytes come as base64 text. */
  function revive(key, value) {
    if (typeof value?.base64 !== "string") return value;
    return new DataView(Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0)).buffer);
  }

  const loaded = {};

  function load(name) {
    loaded[name] ??= new Promise((resolve, reject) => {
      const style = document.createElement("link");
      Object.assign(style, { rel: "stylesheet", href: new URL(`widgets/${name}.css`, own).href });
      const script = document.createElement("script");
      Object.assign(script, { src: new URL(`widgets/${name}.js`, own).href, onload: resolve, onerror: reject });
      document.head.append(style, script);
    });
    return loaded[name];
  }

  /** Complete the theme: name the two sidebars, and let keys scroll wide elements. */
  function complete() {
    document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
    document.querySelector(".toc-drawer")?.setAttribute("aria-label", "This page");
    for (const wide of document.querySelectorAll("pre, .table-wrapper, .bls-scroll")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    }
  }

  /**
   * Let a picture in a notebook's output zoom, which has no data for a widget. Its times are percentages of the width, so
   * a wider picture has a longer time axis, and text of the same size.
   */
  function zoomable(figure) {
    const view = document.createElement("div");
    Object.assign(view, { className: "bls-zoom", tabIndex: 0, title: "Ctrl + wheel, or the keys + - 0, zoom" });
    view.setAttribute("role", "group");
    view.setAttribute("aria-label", "Picture that the keys + - 0 zoom");
    figure.replaceWith(view);
    view.append(figure);
    let factor = 1;

    function zoom(by, x = view.clientWidth / 2) {
      const place = (view.scrollLeft + x) / figure.clientWidth;
      factor = Math.max(1, Math.min(factor * by, 16));
      figure.style.maxWidth = `${1240 * factor}px`;
      figure.style.width = `${100 * factor}%`;
      view.scrollLeft = place * figure.clientWidth - x;
    }

    view.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(1.0018 ** -event.deltaY, event.clientX - view.getBoundingClientRect().left);
    }, { passive: false });
    view.addEventListener("keydown", ({ key }) => {
      const by = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 1 / 16 }[key];
      if (by) zoom(by);
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    nameTheme();
    complete();
    document.querySelectorAll(".cell_output .bls-figure").forEach(zoomable);
    document.addEventListener("toggle", complete, true);
    addEventListener("resize", complete);
    new MutationObserver(nameTheme).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
    dark.addEventListener("change", nameTheme);
    for (const block of document.querySelectorAll("script[data-bls-widget]")) {
      const name = block.dataset.blsWidget;
      const model = new Model(JSON.parse(block.textContent, revive));
      load(name).then(() => blsWidgets[name].initialize({ model }));
    }
  });
})();
