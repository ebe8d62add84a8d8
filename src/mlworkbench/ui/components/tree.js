// Folders and files of a project; requests only expanded folders. Names are text nodes.
const PAUSE = 2000; // milliseconds between checks for changes
const ICONS = { folder: "folder", file: "description", link: "link", special: "block" };

export default {
  template: `
    <div class="mlw-tree">
      <q-input v-model="wanted" dense outlined clearable placeholder="Search files" aria-label="Search files" debounce="200"
               @update:model-value="search"><template #prepend><q-icon name="search" size="18px" /></template></q-input>
      <div v-if="trouble" class="mlw-bad mlw-tree-note" role="alert">{{ trouble }}</div>
      <div class="mlw-tree-box" role="tree" aria-label="Files" ref="box" @keydown="pressed">
        <div v-for="row in rows" :key="row.path" role="treeitem" class="mlw-tree-row" :ref="el => keep(row.path, el)"
             :class="{'mlw-tree-here': row.path === current, 'mlw-tree-marked': row.path === marked}"
             :style="{paddingLeft: 6 + row.depth * 14 + 'px'}" :tabindex="row.path === focus ? 0 : -1"
             :aria-level="row.depth + 1" :aria-selected="row.path === marked ? 'true' : 'false'"
             :aria-expanded="row.kind === 'folder' && !found ? (opened.has(row.path) ? 'true' : 'false') : undefined"
             :title="row.path" @click="clicked(row)">
          <q-icon :name="row.kind === 'folder' && !found ? (opened.has(row.path) ? 'expand_more' : 'chevron_right') : ''"
                  size="16px" aria-hidden="true" class="mlw-tree-turn" />
          <q-icon :name="icon(row)" size="16px" aria-hidden="true" class="mlw-tree-icon" />
          <span class="mlw-tree-name">{{ found ? row.path : row.name }}</span>
          <span v-if="unsaved.includes(row.path)" class="mlw-tree-dot"><span aria-hidden="true">●</span><span class="mlw-hidden">unsaved</span></span>
        </div>
      </div>
      <div v-if="!rows.length && loaded" class="mlw-faint mlw-tree-note">{{ found ? "No matching files." : "The folder is empty." }}</div>
      <div v-if="more" class="mlw-faint mlw-tree-note">{{ more }} more entries not shown.</div>
    </div>`,
  props: { base: String, current: String, unsaved: Array },
  data() {
    return { folders: {}, opened: new Set([""]), found: null, wanted: "", marked: this.current || "", focusPath: "", trouble: "", loaded: false };
  },
  computed: {
    rows() {
      if (this.found) return this.found.map(one => ({ ...one, depth: 0 }));
      const rows = [];
      const add = (folder, depth) => {
        for (const one of this.folders[folder]?.entries ?? []) {
          rows.push({ ...one, depth });
          if (one.kind === "folder" && this.opened.has(one.path)) add(one.path, depth + 1);
        }
      };
      add("", 0);
      return rows;
    },
    focus() {
      const paths = this.rows.map(row => row.path);
      return [this.focusPath, this.marked, this.current].find(path => paths.includes(path)) ?? paths[0];
    },
    more() { return Object.values(this.folders).reduce((sum, one) => sum + (one.more || 0), 0); },
  },
  created() { this.boxes = {}; },
  mounted() {
    this.reveal(this.current || "");
    this.ticking = setInterval(() => document.hidden || this.look(), PAUSE);
  },
  unmounted() { clearInterval(this.ticking); },
  methods: {
    icon(row) {
      if (row.kind === "folder") return this.opened.has(row.path) && !this.found ? "folder_open" : "folder";
      return ICONS[row.kind] ?? "description";
    },
    keep(path, element) { if (element) this.boxes[path] = element; else delete this.boxes[path]; },
    async ask(path, how) {
      const answer = await fetch(window.mlwAddress(this.base + path), how);
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.error || `the server responded with status ${answer.status}`);
      return told;
    },
    async look() { // one request for all expanded folders
      const folders = [...this.opened].slice(0, 200);
      try {
        const how = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ folders }) };
        const told = await this.ask("/files/listings", how);
        for (const one of told) {
          if (one.gone) { if (one.folder) { this.opened.delete(one.folder); delete this.folders[one.folder]; } continue; }
          if (JSON.stringify(this.folders[one.folder]) !== JSON.stringify(one)) this.folders[one.folder] = one;
        }
        this.loaded = true;
        this.trouble = "";
      } catch (error) { this.trouble = error instanceof TypeError ? "The server does not respond." : String(error.message); }
    },
    async refresh() { await this.look(); if (this.found) await this.search(); },
    async search() {
      const text = (this.wanted || "").trim();
      if (!text) { this.found = null; return; }
      try { this.found = await this.ask("/files/search?" + new URLSearchParams({ text })); } catch (error) { this.trouble = String(error.message); }
    },
    async reveal(path) {
      const parts = path.split("/").slice(0, -1);
      parts.forEach((_, at) => this.opened.add(parts.slice(0, at + 1).join("/")));
      this.marked = path;
      await this.look();
      await this.$nextTick();
      this.boxes[path]?.scrollIntoView({ block: "nearest" });
    },
    async clicked(row) {
      this.focusPath = this.marked = row.path;
      this.$emit("select", { path: row.path, kind: row.kind });
      if (row.kind === "folder") return this.found ? this.into(row) : this.turn(row);
      this.$emit("open", row.path);
    },
    into(row) { this.wanted = ""; this.found = null; this.opened.add(row.path); this.reveal(row.path); },
    async turn(row) {
      if (this.opened.has(row.path)) { this.opened.delete(row.path); return; }
      this.opened.add(row.path);
      await this.look();
    },
    async pressed(event) {
      const at = this.rows.findIndex(row => row.path === this.focus), row = this.rows[at];
      if (!row) return;
      const isOpen = row.kind === "folder" && this.opened.has(row.path) && !this.found;
      const above = row.path.split("/").slice(0, -1).join("/");
      let to = null;
      if (event.key === "ArrowDown") to = this.rows[at + 1]?.path;
      else if (event.key === "ArrowUp") to = this.rows[at - 1]?.path;
      else if (event.key === "Home") to = this.rows[0].path;
      else if (event.key === "End") to = this.rows[this.rows.length - 1].path;
      else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return this.clicked(row); }
      else if (event.key === "ArrowRight" && row.kind === "folder") { if (isOpen) to = this.rows[at + 1]?.path; else await this.turn(row); }
      else if (event.key === "ArrowLeft") { if (isOpen) this.opened.delete(row.path); else if (above) to = above; }
      else return;
      event.preventDefault();
      if (to) { this.focusPath = to; await this.$nextTick(); this.boxes[to]?.focus(); }
    },
  },
};
