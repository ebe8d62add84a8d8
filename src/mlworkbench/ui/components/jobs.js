// Escape key for the jobs pane, unless an element above it handles the key.
export default {
  template: `<span hidden></span>`,
  emits: ["escape"],
  mounted() {
    this.pressed = (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
      if (document.querySelector(".q-dialog, .q-menu")) return;
      if (event.target.closest?.(".cm-editor, .mlw-terminal")) return; // they handle Escape themselves
      this.$emit("escape");
    };
    window.addEventListener("keydown", this.pressed);
  },
  unmounted() { window.removeEventListener("keydown", this.pressed); },
};
