// Text table. Text nodes only.
export default {
  template: `
    <div :class="bare ? 'mlw-run-table-box' : 'mlw-sheet'" tabindex="0" role="region" :aria-label="label">
      <table :class="bare ? 'mlw-run-table' : ''">
        <thead><tr><th v-for="(one, at) in head" :key="at" scope="col"><a v-if="one[1]" :href="address(one[1])">{{ one[0] }}</a><span v-else>{{ one[0] }}</span></th></tr></thead>
        <tbody>
          <tr v-for="(row, at) in rows" :key="at">
            <template v-for="(cell, place) in row" :key="place">
              <th v-if="place === 0 && !bare" scope="row"><a v-if="links[at]" :href="address(links[at])">{{ cell }}</a><span v-else>{{ cell }}</span></th>
              <td v-else :class="{'mlw-sheet-none': cell === ''}">{{ cell === "" && !bare ? "–" : cell }}</td>
            </template>
          </tr>
        </tbody>
      </table>
    </div>`,
  props: { label: String, head: Array, rows: Array, links: Array, bare: Boolean },
  methods: { address: (path) => window.mlwAddress(path) },
};
