/* The page's behaviour: language, colours, filters, figures, evidence of a number. No network, no dependency but Vega. */
(function () {
  "use strict";
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, from) => Array.from((from || document).querySelectorAll(selector));

  /* Settings survive a reload where the browser lets a local file store something. */
  const store = {
    get(key) { try { return localStorage.getItem("adrbench." + key); } catch (error) { return null; } },
    set(key, value) { try { localStorage.setItem("adrbench." + key, value); } catch (error) { /* not stored */ } },
  };
  const asked = new URLSearchParams(location.search);

  /* ---- language ---- */
  function setLanguage(language) {
    root.dataset.lang = language;
    root.lang = language === "zh" ? "zh-CN" : "en";
    document.title = data.texts["page.title"][language];
    for (const name of ["aria-label", "placeholder"]) {
      for (const element of all("[data-" + name + "-" + language + "]")) {
        element.setAttribute(name, element.getAttribute("data-" + name + "-" + language));
      }
    }
    for (const element of all("[data-text-" + language + "]")) {
      element.textContent = element.getAttribute("data-text-" + language);
    }
    for (const button of all("[data-set-lang]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setLang === language));
    }
    store.set("lang", language);
    countClaims();
    redraw();
  }

  /* ---- colours ---- */
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  function mode() {
    const theme = root.dataset.theme;
    return theme === "auto" ? (systemDark.matches ? "dark" : "light") : theme;
  }
  function setTheme(theme) {
    root.dataset.theme = theme;
    for (const button of all("[data-set-theme]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setTheme === theme));
    }
    store.set("theme", theme);
    redraw();
  }

  /* ---- filters by arm and tier ---- */
  const boxes = { arm: all("[data-filter=arm] input"), tier: all("[data-filter=tier] input") };
  function selected(name) { return new Set(boxes[name].filter((box) => box.checked).map((box) => box.value)); }
  function applyFilter() {
    const known = { arm: new Set(boxes.arm.map((box) => box.value)), tier: new Set(boxes.tier.map((box) => box.value)) };
    const kept = { arm: selected("arm"), tier: selected("tier") };
    const hides = (name, value) => value && known[name].has(value) && !kept[name].has(value);
    for (const element of all("main [data-arm], main [data-tier]")) {
      element.hidden = hides("arm", element.dataset.arm) || hides("tier", element.dataset.tier) || false;
    }
    redraw();
  }

  /* ---- figures: drawn when they come into view, drawn again when anything changes ---- */
  const figures = new Map(data.figures.map((figure) => [figure.name, figure]));
  const drawn = new Map();
  const NARROW = 480;
  const SVG_ROWS = 1500;

  function rowsOf(figure) {
    const kept = { arm: selected("arm"), tier: selected("tier") };
    const total = { arm: boxes.arm.length, tier: boxes.tier.length };
    return figure.rows.filter((row) =>
      ["arm", "tier"].every((name) => !row[name] || kept[name].size === total[name] || kept[name].has(row[name])));
  }

  /* Charts stacked in one specification cannot follow their container: give each the width that is left beside its labels. */
  function fitted(spec, rows, width) {
    const copy = JSON.parse(JSON.stringify(spec));
    if (copy.vconcat) {
      const labels = rows.map((row) => String(row.label || row.kernel || ""));
      const longest = labels.reduce((most, label) => Math.max(most, label.length), 0);
      const room = Math.min(width < NARROW ? 130 : 260, 7 * longest + 24);
      copy.vconcat = copy.vconcat.filter((part) => holds(part, rows));
      copy.vconcat.forEach((part) => { part.width = Math.max(120, width - room - 24); });
    }
    return copy;
  }
  /* Whether a part of a stacked figure still has rows after filtering. */
  function holds(part, rows) {
    const layers = part.layer || [part];
    const filter = [].concat(part.transform || [], ...layers.map((layer) => layer.transform || []))
      .map((step) => step.filter).find((entry) => entry && entry.field);
    return !filter || rows.some((row) => row[filter.field] === filter.equal);
  }

  async function draw(element) {
    const figure = figures.get(element.dataset.figure);
    const rows = rowsOf(figure);
    const before = drawn.get(element);
    const ticket = {};
    drawn.set(element, ticket);
    if (before && before.view) { before.view.finalize(); }
    if (!rows.length) {
      element.textContent = data.texts["filter.empty"][root.dataset.lang];
      return;
    }
    const width = element.clientWidth;
    const spec = fitted(figure.specs[root.dataset.lang], rows, width);
    spec.datasets = Object.assign({}, spec.datasets, { rows: rows });
    const config = JSON.parse(JSON.stringify(data.config[mode()]));
    config.background = "transparent";
    config.axis.labelLimit = width < NARROW ? 110 : 240;
    config.legend.columns = width < NARROW ? 2 : 4;
    const options = { actions: false, ast: true, renderer: rows.length > SVG_ROWS ? "canvas" : "svg", config: config };
    const result = await window.vegaEmbed(element, spec, options);
    if (drawn.get(element) !== ticket) { result.finalize(); return; }
    ticket.view = result;
    element.dataset.drawn = root.dataset.lang + " " + mode() + " " + rows.length;
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "400px" });
  let waiting = 0;
  function redraw() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => { for (const element of drawn.keys()) { draw(element); } });
  }

  /* ---- claims ---- */
  const form = document.querySelector(".claimfilter");
  const claims = all(".claims tbody tr").map((row) => ({ row: row, text: row.textContent.toLowerCase() }));
  let shown = claims.length;
  function countClaims() {
    const output = document.getElementById("claims-shown");
    if (output) {
      output.textContent = data.texts["claims.shown"][root.dataset.lang].replace("{shown}", shown).replace("{total}", claims.length);
    }
  }
  function filterClaims() {
    const wanted = {};
    for (const control of all("[data-claim]", form)) { wanted[control.dataset.claim] = control.value; }
    const needles = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    shown = 0;
    for (const claim of claims) {
      const fits = ["document", "kind", "verdict"].every((key) => !wanted[key] || claim.row.dataset[key] === wanted[key])
        && needles.every((needle) => claim.text.includes(needle));
      claim.row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    countClaims();
  }

  /* ---- evidence of a number ---- */
  const drawer = document.getElementById("drawer");
  function cell(parent, child) {
    const element = document.createElement("td");
    element.append(child);
    parent.append(element);
  }
  function openDrawer(link) {
    const body = document.getElementById("drawer-rows");
    body.replaceChildren();
    document.getElementById("drawer-number").textContent = link.textContent;
    for (const [file, key, value] of data.sources[Number(link.dataset.e)]) {
      const row = document.createElement("tr");
      const path = data.files[file];
      if (path.startsWith("(")) {
        cell(row, data.texts["drawer.config"][root.dataset.lang] + " " + path);
      } else {
        const anchor = document.createElement("a");
        anchor.href = root.dataset.root + "/" + path;
        anchor.textContent = path;
        cell(row, anchor);
      }
      const code = document.createElement("code");
      code.textContent = key;
      cell(row, code);
      cell(row, value);
      body.append(row);
    }
    drawer.showModal();
  }

  /* ---- wiring ---- */
  document.addEventListener("click", (event) => {
    const target = event.target.closest("a.num, [data-set-lang], [data-set-theme], [data-filter-all]");
    if (!target) { return; }
    if (target.matches("a.num")) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) { return; }
      event.preventDefault();
      openDrawer(target);
    } else if (target.dataset.setLang) {
      setLanguage(target.dataset.setLang);
    } else if (target.dataset.setTheme) {
      setTheme(target.dataset.setTheme);
    } else {
      for (const box of boxes.arm.concat(boxes.tier)) { box.checked = true; }
      applyFilter();
    }
  });
  for (const box of boxes.arm.concat(boxes.tier)) { box.addEventListener("change", applyFilter); }
  for (const swatch of all("[data-arm-index]")) { swatch.style.background = "var(--a" + (Number(swatch.dataset.armIndex) % 10) + ")"; }
  if (form) {
    form.addEventListener("input", filterClaims);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(filterClaims));
  }
  document.getElementById("drawer-close").addEventListener("click", () => drawer.close());
  drawer.addEventListener("click", (event) => { if (event.target === drawer) { drawer.close(); } });
  systemDark.addEventListener("change", redraw);
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 150); });
  if (innerWidth <= 640) { document.querySelector(".filters").open = false; }

  const language = asked.get("lang") || store.get("lang") || (navigator.language.startsWith("zh") ? "zh" : "en");
  const theme = asked.get("theme") || store.get("theme") || "auto";
  setTheme(["auto", "light", "dark"].includes(theme) ? theme : "auto");
  setLanguage(language === "zh" ? "zh" : "en");
  for (const element of all("[data-figure]")) { watcher.observe(element); }
})();
