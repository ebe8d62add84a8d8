// Terminal: the server sends bytes as base64 and waits until they are shown; typed text is sent back.
import { Terminal, FitAddon } from "nicegui-xterm";
import { loadResource } from "../../static/utils/resources.js";

const LIGHT = {
  background: "#ffffff", foreground: "#1c2430", cursor: "#1c2430", cursorAccent: "#ffffff", selectionBackground: "#bcd4f5",
  black: "#1c2430", red: "#b3261e", green: "#1b7a43", yellow: "#8a5a00", blue: "#2457a7", magenta: "#8a3fae", cyan: "#0b6e7a", white: "#566173",
  brightBlack: "#566173", brightRed: "#b3261e", brightGreen: "#1b7a43", brightYellow: "#8a5a00", brightBlue: "#2457a7", brightMagenta: "#8a3fae", brightCyan: "#0b6e7a", brightWhite: "#1c2430",
};
const DARK = { background: "#14181f", foreground: "#e6eaf0", cursor: "#e6eaf0", cursorAccent: "#14181f", selectionBackground: "#35507d" };

export default {
  template: `<div class="mlw-terminal"></div>`,
  props: { label: String, resourcePath: String },
  mounted() {
    this.terminal = new Terminal({ fontSize: 13, scrollback: 5000, screenReaderMode: false, cursorBlink: true, fontFamily: 'ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace', theme: this.colours() });
    this.terminal.loadAddon((this.fitting = new FitAddon()));
    this.terminal.open(this.$el);
    this.terminal.textarea?.setAttribute("aria-label", `${this.label}; press Shift+Escape to leave`);
    this.terminal.attachCustomKeyEventHandler(event => { // programs in the terminal need the Tab key
      if (event.key !== "Escape" || !event.shiftKey) return true;
      if (event.type === "keydown") document.querySelector(".mlw-rail a")?.focus();
      return false;
    });
    this.terminal.onData(text => { if (!this.replaying) this.$emit("typed", text); });
    this.terminal.onResize(size => this.$emit("size", { columns: size.cols, rows: size.rows }));
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.$el);
    this.onTheme = () => { this.terminal.options.theme = this.colours(); };
    window.addEventListener("mlw-theme", this.onTheme);
    this.$nextTick().then(() => loadResource(window.path_prefix + `${this.resourcePath}/xterm.css`)).then(() => {
      this.fit();
      this.terminal.focus();
      this.$emit("ready", { columns: this.terminal.cols, rows: this.terminal.rows });
    });
  },
  unmounted() { this.observer.disconnect(); window.removeEventListener("mlw-theme", this.onTheme); this.terminal.dispose(); },
  methods: {
    colours() { return Quasar.Dark.isActive ? DARK : LIGHT; },
    fit() { if (this.$el.clientWidth > 40 && this.$el.clientHeight > 40) this.fitting.fit(); },
    show(data, from, again) { // `again`: shown before; the terminal must not respond to old queries of programs twice
      const all = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
      const bytes = all.subarray(Math.max(0, (this.shown ?? 0) - from)); // after a suspension some bytes are sent twice
      this.shown = Math.max(this.shown ?? 0, from + all.length);
      this.replaying = again;
      return new Promise(done => this.terminal.write(bytes, () => { this.replaying = false; done(bytes.length); }));
    },
    text() { // for screen readers, which cannot read a canvas
      const buffer = this.terminal.buffer.active, lines = [];
      for (let at = 0; at < buffer.length; at++) lines.push(buffer.getLine(at)?.translateToString(true) ?? "");
      return lines.join("\n").trimEnd();
    },
  },
};
