// Grid of runs with visible rows only. Names of runs are rendered as text nodes, never as markup.
import * as AgGrid from "nicegui-aggrid";

const BLOCK = 100;
const SIGNS = {
  Completed: ["check_circle", "good"], Failed: ["error", "bad"], Canceled: ["cancel", "idle"], Running: ["play_circle", "busy"],
  Submitting: ["hourglass_top", "busy"], Preparing: ["build_circle", "busy"], Queued: ["schedule", "idle"],
};
const STEPS = [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [30 * 86400, "day", 86400]];
const RELATIVE = new Intl.RelativeTimeFormat("en", { style: "short" });
const DATE = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const WHOLE = new Intl.DateTimeFormat("en", { dateStyle: "full", timeStyle: "long" });

function ago(moment) {
  const past = Math.max(0, Date.now() / 1000 - moment);
  if (past < 5) return "just now";
  for (const [below, unit, length] of STEPS) if (past < below) return RELATIVE.format(-Math.floor(past / length), unit);
  return DATE.format(moment * 1000);
}

function two(whole, large, word, small, other) {
  const rest = Math.floor((whole % large) / small);
  return `${Math.floor(whole / large)} ${word}` + (rest ? ` ${rest} ${other}` : "");
}

function span(seconds) {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(whole, 60, "min", 1, "s");
  return whole < 86400 ? two(whole, 3600, "h", 60, "min") : two(whole, 86400, "d", 3600, "h");
}

function element(tag, classes, text) {
  const made = document.createElement(tag);
  made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

function address(run) { return window.mlwAddress(`/runs/${encodeURIComponent(run.id)}`); }

function family(run) { // link to the runs of a sweep, or to nested runs
  const link = element("a", "mlw-grid-link mlw-grid-mark", `${run.children.toLocaleString("en")} ${run.children === 1 ? "run" : "runs"}`);
  link.href = `${window.location.pathname}?parent=${encodeURIComponent(run.id)}`;
  link.tabIndex = -1;
  return link;
}

const SHOWN = {
  run(data) {
    const link = element("a", "mlw-grid-link mlw-mono", data.id);
    link.href = address(data);
    link.tabIndex = -1; // reached with the arrow keys; Enter follows it
    const more = [data.children ? family(data) : "", data.archived ? element("span", "mlw-grid-mark", "archived") : ""].filter(Boolean);
    if (!more.length) return link;
    const both = element("span", "mlw-grid-both mlw-grid-run");
    both.append(link, ...more);
    return both;
  },
  status(data) {
    const [icon, kind] = SIGNS[data.status] || ["help", "idle"];
    const row = element("span", `mlw-status mlw-${kind}`);
    const sign = element("i", "q-icon notranslate material-icons", icon);
    sign.setAttribute("aria-hidden", "true");
    row.append(sign, element("span", "", data.outcome));
    return row;
  },
  tags(data) {
    const row = element("span", "mlw-grid-both");
    for (const tag of data.tags) row.append(element("span", "mlw-grid-mark", tag));
    return row;
  },
};

const WORDS = {
  time: (value) => (value ? ago(value) : ""),
  span: (value, data) => {
    if (value !== null && value !== undefined) return span(value);
    return data.started && !data.final ? span(Math.max(0, Date.now() / 1000 - data.started)) : "";
  },
  value: (value) => {
    if (typeof value !== "number") return value ?? "";
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
  },
  text: (value) => value ?? "",
  number: (value) => (value ? String(value) : ""),
};

function definition(column, sort) {
  const { key, kind } = column, values = kind === "value";
  const words = WORDS[kind] || WORDS.text;
  return {
    colId: key, headerName: column.label, headerTooltip: column.label, width: column.width, minWidth: 70, sortable: column.sortable,
    sort: sort === key ? "asc" : sort === "-" + key ? "desc" : null,
    pinned: kind === "run" ? "left" : null, lockPinned: true, suppressMovable: true,
    headerClass: values || kind === "span" || kind === "number" ? "ag-right-aligned-header" : "",
    cellClass: values || kind === "span" || kind === "number" ? "mlw-grid-number" : "",
    valueGetter: (cell) => (cell.data ? (values ? cell.data.values[key] : cell.data[key]) : undefined),
    valueFormatter: (cell) => (cell.data ? String(words(cell.value, cell.data)) : ""),
    cellRenderer: SHOWN[kind] ? (cell) => (cell.data ? SHOWN[kind](cell.data) : "") : undefined,
    equals: () => false, // values derived from other fields change, too
    tooltipValueGetter: (cell) => {
      if (!cell.data) return null;
      if (kind === "time") return cell.value ? WHOLE.format(cell.value * 1000) : null;
      return kind === "status" ? cell.data.outcome : kind === "run" ? cell.data.id : SHOWN[kind] ? null : cell.valueFormatted;
    },
  };
}

function picked({ id, status, final, archived, sweep, children }) { return { id, status, final, archived, sweep, children }; }

function keptColumns(place) {
  try {
    const kept = JSON.parse(localStorage.getItem(place));
    return Array.isArray(kept) ? kept.filter((one) => typeof one === "string").slice(0, 40) : [];
  } catch { return []; }
}

export default {
  template: `<div></div>`,
  props: { url: String, columns: Array, sort: String, label: String, place: String },
  mounted() {
    AgGrid.ModuleRegistry.registerModules([AgGrid.AllCommunityModule]);
    const colours = {
      backgroundColor: "var(--mlw-paper)", foregroundColor: "var(--mlw-ink)", borderColor: "var(--mlw-line)", headerBackgroundColor: "var(--mlw-soft)",
      accentColor: "var(--mlw-busy)", browserColorScheme: "inherit",
    };
    const look = { fontFamily: "inherit", fontSize: 13, rowHeight: 32, headerHeight: 34, spacing: 6, headerFontWeight: 600, wrapperBorderRadius: 6 };
    this.order = this.sort;
    this.chosen = new Map(); // includes runs whose rows are not loaded
    this.kept = new URLSearchParams(window.location.search).has("column") ? [] : keptColumns(this.place);
    this.api = AgGrid.createGrid(this.$el, {
      theme: AgGrid.themeQuartz.withPart(AgGrid.colorSchemeVariable).withParams(look).withParams(colours, "light").withParams(colours, "dark"),
      columnDefs: this.columns.map((column) => definition(column, this.sort)),
      rowModelType: "infinite", cacheBlockSize: BLOCK, maxBlocksInCache: 6, maxConcurrentDatasourceRequests: 2, blockLoadDebounceMillis: 60,
      getRowId: (row) => row.data.id,
      rowSelection: { mode: "multiRow", checkboxes: true, headerCheckbox: false, enableClickSelection: false },
      selectionColumnDef: { pinned: "left", width: 44, headerName: "" },
      datasource: { getRows: (wanted) => this.ask(wanted) },
      tooltipShowDelay: 600, suppressCellFocus: false, enableCellTextSelection: false, animateRows: false,
      defaultColDef: { resizable: true },
      onSortChanged: () => this.turned(),
      onRowSelected: (row) => this.mark(row.node),
      onSelectionChanged: (change) => { if (change.source !== "api") this.tell(); },
      onCellKeyDown: (cell) => { if (cell.event.key === "Enter" && cell.data) window.location.href = address(cell.data); },
      onRowDoubleClicked: (row) => { if (row.data) window.location.href = address(row.data); },
    });
    this.api.setGridAriaProperty("label", this.label);
    const wear = () => this.$el.setAttribute("data-ag-theme-mode", document.body.classList.contains("body--dark") ? "dark" : "light");
    this.observer = new MutationObserver(wear);
    this.observer.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    wear();
  },
  unmounted() { this.observer.disconnect(); this.api.destroy(); },
  watch: {
    url() { this.chooseNone(); this.api.purgeInfiniteCache(); this.api.ensureIndexVisible(0); },
    columns(now, before) {
      if (JSON.stringify(now) === JSON.stringify(before)) return;
      this.api.setGridOption("columnDefs", now.map((column) => definition(column, this.order)));
      this.api.purgeInfiniteCache();
    },
  },
  methods: {
    async ask(wanted) {
      const more = new URLSearchParams({ offset: wanted.startRow, limit: wanted.endRow - wanted.startRow });
      for (const { colId, sort } of wanted.sortModel.slice(0, 1)) {
        more.set("sort", colId);
        more.set("descending", sort === "desc");
      }
      for (const column of this.columns) if (column.kind === "value") more.append("column", column.key);
      try {
        const answer = await fetch(`${window.mlwAddress(this.url)}${this.url.includes("?") ? "&" : "?"}${more}`, { headers: { accept: "application/json" } });
        const told = await answer.json();
        if (!answer.ok) throw new Error(told.error || `the server responded with status ${answer.status}`);
        wanted.successCallback(told.rows, told.total);
        this.wear(told.rows);
        if (this.kept.length) this.$emit("kept", this.kept.splice(0));
        this.$emit("counted", told.total);
      } catch (error) {
        if (this.api.isDestroyed()) return;
        wanted.failCallback();
        this.$emit("trouble", String(error.message || error));
      }
    },
    turned() {
      const [by] = this.api.getColumnState().filter((column) => column.sort);
      this.order = by ? (by.sort === "desc" ? "-" : "") + by.colId : "";
      this.$emit("sorted", this.order);
    },
    refresh() { if (document.visibilityState === "visible") this.api.refreshInfiniteCache(); },
    chooseNone() { this.chosen.clear(); this.api.deselectAll(); this.tell(); },
    choose(rows) {
      this.chosen = new Map(rows.map((row) => [row.id, row]));
      this.api.forEachNode((node) => node.data && node.setSelected(this.chosen.has(node.id), false, "api"));
      this.tell();
    },
    mark(node) {
      if (!node.data) return;
      if (node.isSelected()) this.chosen.set(node.data.id, picked(node.data));
      else this.chosen.delete(node.data.id);
    },
    wear(rows) { // update the selection of rows that were loaded or changed later
      for (const row of rows.filter((one) => this.chosen.has(one.id))) {
        this.chosen.set(row.id, picked(row));
        const node = this.api.getRowNode(row.id);
        if (node && !node.isSelected()) node.setSelected(true, false, "api");
      }
    },
    tell() { this.$emit("chosen", [...this.chosen.values()]); },
    keep(names) {
      if (names.length) localStorage.setItem(this.place, JSON.stringify(names));
      else localStorage.removeItem(this.place);
    },
  },
};
