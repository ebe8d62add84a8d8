// Lines of a unified diff. Text nodes only.
const KINDS = { "+": "mlw-diffline-new", "-": "mlw-diffline-old", "@": "mlw-diffline-place" };

export default {
  template: `<div class="mlw-difflines mlw-mono" tabindex="0" role="region" :aria-label="label"><div v-for="(line, at) in lines" :key="at" :class="kind(line)">{{ line || " " }}</div><div v-if="more" class="mlw-diffline-place">and {{ more }} more lines</div></div>`,
  props: { label: String, lines: Array, more: Number },
  methods: {
    kind(line) { return line.startsWith("+++") || line.startsWith("---") ? "mlw-diffline-file" : KINDS[line[0]] || ""; },
  },
};
