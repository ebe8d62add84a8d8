// Spans of a trace. Each is a button that shows its inputs and outputs. Their text is untrusted.
import { h } from "vue";

export default {
  props: { label: String, spans: Array },
  data: () => ({ open: new Set() }),
  methods: {
    toggle(index) {
      const open = new Set(this.open);
      open.delete(index) || open.add(index);
      this.open = open;
    },
    head(span, index) {
      const word = (text, kind = "") => text ? h("span", { class: `mlw-run-word ${kind}` }, text) : null;
      const bar = h("span", { class: "mlw-span-bar", style: { marginLeft: `${span.left}%`, width: `${span.width}%` } });
      return h("button", {
        type: "button", class: "mlw-span-head", "aria-expanded": String(this.open.has(index)), onClick: () => this.toggle(index),
      }, [
        h("span", { class: "mlw-span-name", style: { paddingLeft: `${Math.min(span.depth, 12) * 16}px` } }, [
          h("span", { class: "mlw-span-mark", "aria-hidden": "true" }, this.open.has(index) ? "▾" : "▸"), span.name, word(span.type), word(span.problem, "mlw-bad"),
        ]),
        h("span", { class: "mlw-span-time", "aria-hidden": "true" }, bar),
        h("span", { class: "mlw-span-count" }, [span.duration, span.tokens].filter(Boolean).join(", ")),
      ]);
    },
    values(span) {
      const rows = span.values.length ? span.values : [["", "No inputs or outputs were recorded."]];
      return h("div", { class: "mlw-span-values" }, rows.map(([title, text]) => [
        title ? h("div", { class: "mlw-faint" }, title) : null,
        h("pre", { class: "mlw-run-text mlw-span-text", tabindex: 0 }, text),
      ]));
    },
  },
  render() {
    const item = (span, index) => h("li", { key: index }, [this.head(span, index), this.open.has(index) ? this.values(span) : null]);
    return h("ul", { class: "mlw-spans", "aria-label": this.label }, (this.spans || []).map(item));
  },
};
