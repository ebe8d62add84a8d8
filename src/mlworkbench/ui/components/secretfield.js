// Password field. The text stays in the field, is sent once, and is then removed from the page.
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
