// The blobs of a bundle as values: tiles, details, and what is known of each row.  Nothing waits: undefined while a
// value is on its way, null where it is neither in the file nor to be asked for.

import { Row } from "./codes.js";
import { Detail, unhalved } from "./detail.js";
import { Shelf } from "./shelf.js";
import { decimal } from "./text.js";

export class Library {
  constructor(source, bundle, arrived, detailed) {
    Object.assign(this, { source, bundle, classes: bundle.codes.classes, rows: new Map() });
    this.bytes = new Shelf(600, arrived);
    this.tiles = new Shelf(400, arrived);
    this.details = new Shelf(8, detailed);
  }

  get waiting() {
    return [this.bytes, this.tiles, this.details].some((shelf) => shelf.pending.size > 0);
  }

  // When something that is on its way is there.
  arrival() {
    const pending = [this.bytes, this.tiles, this.details].flatMap((shelf) => [...shelf.pending.values()]);
    return pending.length > 0 ? Promise.race(pending) : Promise.resolve();
  }

  blob(id) {
    return id ? this.bytes.take(id, () => this.source.blob(id)) : null;
  }

  detail(site) {
    if (!site.detail) return null;
    const { blob } = site.detail;
    const fetch = async () => {
      const raw = await this.source.blob(blob);
      return raw === null ? null : new Detail(raw, site.detail);
    };
    return this.details.take(blob, fetch);
  }

  // The exact weights of a query: the server's, or computed again from queries and keys, where no choice follows.
  exact(run, site, head, r) {
    const key = `${run.id}/${site.name}/${head}/${r}`;
    if (this.rows.has(key)) return this.rows.get(key);
    const weights = this.source.live ? this.served(run, site, head, r) : this.computed(site, head, r);
    if (!weights) return weights;
    if (this.rows.size > 256) this.rows.clear();
    this.rows.set(key, new Row(weights));
    return this.rows.get(key);
  }

  served({ id, sites }, site, head, r) {
    const raw = this.blob(`${id}.r${sites.indexOf(site)}.${r}`);
    const wide = site.shape[1];
    return raw ? new Float32Array(raw.buffer, raw.byteOffset).slice(head * wide, (head + 1) * wide) : raw;
  }

  computed(site, head, r) {
    const detail = site.hard ? null : this.detail(site);
    if (!detail) return detail;
    const { weights, bias } = detail.scored(head, r);
    return weights.map((w, key) => (bias?.[key] === -Infinity ? Number.NaN : w));
  }

  entropy(site, head, r) {
    const raw = this.blob(site.entropy);
    if (!raw) return raw;
    const [count, at] = [raw.length / 2, head * site.shape[0] + r];
    return unhalved(raw[at] + 256 * raw[count + at]);
  }

  strongest(site, head, r) {
    const raw = this.blob(site.strongest);
    if (!raw) return raw;
    const [count, at] = [raw.length / 7, head * site.shape[0] + r];
    const byte = (plane) => raw[plane * count + at];
    const key = byte(0) + 256 * (byte(1) + 256 * (byte(2) + 256 * byte(3)));
    const weight = (byte(5) + 256 * byte(6)) / 10 ** byte(4);
    return { key, weight, text: decimal(weight, byte(4)) };
  }
}
