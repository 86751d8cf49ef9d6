// Does for displays what JupyterLab does: names the theme, and runs the widgets on their pictures.

const blsWidgets = {};

(() => {
  const own = document.currentScript.src;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function nameTheme() {
    const { theme } = document.body.dataset;
    const isDark = theme === "dark" || (theme !== "light" && dark.matches);
    document.body.dataset.jpThemeLight = String(!isDark);
  }

  /** The state of a widget, as anywidget's model has it; nobody else changes it. */
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

  /** What the theme leaves out: names of the two sidebars, and a way for keys to scroll what is wide. */
  function complete() {
    document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
    document.querySelector(".toc-drawer")?.setAttribute("aria-label", "This page");
    for (const wide of document.querySelectorAll("pre, .table-wrapper, .bls-scroll")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    nameTheme();
    complete();
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
