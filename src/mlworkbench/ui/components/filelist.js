// List of files and folders. Names are text nodes.
export default {
  template: `
    <ul class="mlw-run-browse-files">
      <li v-for="(row, at) in rows" :key="at" class="mlw-run-browse-file" :class="{'mlw-active': at === chosen}">
        <button type="button" class="mlw-run-browse-name" :aria-current="at === chosen ? 'true' : undefined" @click="$emit('choose', at)">
          <q-icon :name="row.icon" aria-hidden="true" /><div class="mlw-said">{{ row.name }}</div>
          <div v-for="word in row.words" :key="word" class="mlw-run-word">{{ word }}</div>
        </button><div class="mlw-faint mlw-run-browse-size">{{ row.note }}</div>
      </li>
    </ul>`,
  props: { rows: Array, chosen: Number },
  emits: ["choose"],
};
