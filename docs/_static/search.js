// The page of the search: gives Pagefind the files of its index, and shows its results.

(async () => {
  const base = "https://manual.invalid/";
  const [input] = document.querySelectorAll(".manual-search input");
  const status = document.getElementById("search-status");
  const list = document.getElementById("search-results");
  const kinds = {
    tutorials: "Tutorial", guides: "How-to guide", reference: "Reference", explanation: "Explanation",
    evidence: "Evidence",
  };

  const { fetch } = window;
  window.fetch = (address, ...rest) => {
    const name = String(address).startsWith(base) && String(address).slice(base.length).replace(/\?.*/, "");
    return fetch(name ? `data:application/octet-stream;base64,${manualIndex[name]}` : address, ...rest);
  };
  const pagefind = await import(`data:text/javascript;base64,${manualIndex["pagefind.js"]}`);
  await pagefind.options({ basePath: base, baseUrl: "/", noWorker: true });

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  function link({ url, title }) {
    return element("a", { href: url.replace(/^\//, ""), textContent: title });
  }

  /** The text of an excerpt is escaped, with `<mark>` as only markup. It may begin with words of the heading. */
  function excerpt({ excerpt, title, meta }) {
    const shown = element("p", { className: "search-excerpt", innerHTML: excerpt });
    const text = shown.textContent;
    const words = (title ?? meta.title).split(" ");
    const ends = words.map((_, i) => words.slice(i).join(" ")).filter((end) => text.startsWith(end));
    let rest = ends.length ? text.slice(ends[0].length).match(/^[.\s]*/)[0].length + ends[0].length : 0;
    for (const walker = document.createTreeWalker(shown, NodeFilter.SHOW_TEXT); rest && walker.nextNode();) {
      const cut = Math.min(rest, walker.currentNode.length);
      walker.currentNode.deleteData(0, cut);
      rest -= cut;
    }
    return shown;
  }

  /** A page with the excerpts of its introduction and of three sections, those with the most matches. */
  function item(page) {
    const found = [...page.sub_results].sort((a, b) => b.locations.length - a.locations.length).slice(0, 3);
    const parts = page.sub_results.filter((part) => found.includes(part));
    const [intro] = parts.filter(({ anchor }) => !anchor || anchor.element === "h1");
    const sections = parts.filter((part) => part !== intro);
    const kind = kinds[page.url.replace(/^\//, "").split("/")[0]];
    const result = element("li", {}, link({ url: page.url, title: page.meta.title }));
    if (kind) result.append(element("span", { className: "search-kind", textContent: kind }));
    if (intro || !sections.length) result.append(excerpt(intro ?? page));
    if (sections.length) {
      result.append(element("ul", {}, ...sections.map((part) => element("li", {}, link(part), excerpt(part)))));
    }
    return result;
  }

  /** Whether a heading of a page has all words. */
  function isNamed(page, words) {
    const wanted = words.toLowerCase().split(/\s+/);
    const titles = page.sub_results.map(({ title }) => title.toLowerCase());
    return titles.some((title) => wanted.every((word) => title.includes(word)));
  }

  let last = 0;

  async function show() {
    const words = input.value.trim();
    const mine = ++last;
    const found = words ? await pagefind.search(words) : { results: [] };
    const pages = await Promise.all(found.results.slice(0, 30).map((result) => result.data()));
    if (mine !== last) return; // the input has changed meanwhile
    pages.sort((a, b) => isNamed(b, words) - isNamed(a, words));
    const { length } = found.results;
    const none = words && "No page has all these words.";
    status.textContent = length ? `${length} page${length > 1 ? "s" : ""}` : none;
    list.replaceChildren(...pages.map(item));
    history.replaceState({}, "", words ? `?${new URLSearchParams({ q: words })}` : location.pathname);
    localStorage.setItem("sphinx_highlight_terms", words); // the page that opens next marks them
    document.body.dataset.searched = words;
  }

  input.value = new URLSearchParams(location.search).get("q") ?? "";
  input.addEventListener("input", show);
  input.form.addEventListener("submit", (event) => event.preventDefault());
  if (!input.value) input.focus();
  await show();
})();
