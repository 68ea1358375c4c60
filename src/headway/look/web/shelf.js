// A cache of values that load asynchronously.  Drawing never waits: it uses what is there and runs again on arrival.

export class Shelf {
  constructor(most, arrived) {
    this.most = most;
    this.arrived = arrived;
    this.values = new Map(); // what was used last stands last
    this.pending = new Map();
  }

  // The value if it is there (null: it does not exist); undefined while it is on its way.
  take(key, fetch) {
    if (!this.values.has(key)) {
      this.wait(key, fetch);
      return undefined;
    }
    const value = this.values.get(key);
    this.values.delete(key);
    this.values.set(key, value);
    return value;
  }

  // The value, waited for.
  wait(key, fetch) {
    if (this.values.has(key)) return Promise.resolve(this.values.get(key));
    if (!this.pending.has(key)) this.pending.set(key, this.bring(key, fetch));
    return this.pending.get(key);
  }

  put(key, value) {
    this.values.set(key, value);
    while (this.values.size > this.most) this.values.delete(this.values.keys().next().value);
    return value;
  }

  async bring(key, fetch) {
    let value = null;
    try {
      value = await fetch();
    } catch (error) {
      console.warn(`${key}: ${error.message}`);
    }
    this.pending.delete(key);
    this.put(key, value);
    this.arrived();
    return value;
  }
}
