// Tree of elements that the server has chosen from a short list. No text is ever parsed as HTML.
import { h } from "vue";
const TAGS = new Set(("p h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td hr br a img span").split(" "));
const ATTRIBUTES = new Set(["href", "target", "rel", "src", "alt"]);

function made(node) {
  if (typeof node === "string") return node;
  const [tag, attributes, children] = node;
  if (!TAGS.has(tag)) return children.map(made);
  const kept = Object.fromEntries(Object.entries(attributes).filter(([name]) => ATTRIBUTES.has(name)));
  for (const name of ["href", "src"]) if (name in kept) kept[name] = window.mlwAddress(kept[name]);
  if (tag === "img") kept.loading = "lazy";
  if (tag === "pre") kept.tabindex = 0; // allows scrolling by keyboard
  return h(tag, kept, children.map(made));
}

export default {
  props: { tree: Array },
  render() { return h("div", { class: "mlw-readme" }, (this.tree || []).map(made)); },
};
