// A field for a password. What is typed stays in the field; it is handed over once, and is gone from the page then.
export default {
  template: `
    <q-input v-model="typed" type="password" :label="label" outlined dense autocomplete="new-password" spellcheck="false"
             data-1p-ignore data-lpignore="true" @keydown.enter="$emit('enter')" />`,
  props: { label: String },
  data() { return { typed: "" }; },
  unmounted() { this.typed = ""; },
  methods: {
    take() { const typed = this.typed; this.typed = ""; return typed; },
    clear() { this.typed = ""; },
  },
};
