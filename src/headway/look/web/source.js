// Where bytes come from: the file itself, or the server that wrote the page.  The page does not know which.
//
// blob(id) → Promise<Uint8Array | null>           null: not in this file
// edit(run, changes, other) → Promise<outcome | null>   run, and another one to patch from, of the bundle; a server's
//                                                 outcome has the edited `run`: {id, sites}
// attend(input) → Promise<bundle | null>          input: {text, against, prefix}, {name, data} or {id, step, rank}

export const ABSENT = "not in this file; headway look … --live has it";

export function openSource(bundle) {
  return bundle.live ? new LiveSource() : new EmbeddedSource();
}

class EmbeddedSource {
  constructor() {
    this.live = false;
    this.nodes = new Map();
    for (const node of document.querySelectorAll("script[data-blob]")) this.nodes.set(node.dataset.blob, node);
  }

  async blob(id) {
    const node = this.nodes.get(id);
    return node === undefined ? null : unzipped(unfolded(node.textContent.trim()));
  }

  async edit(run, changes) {
    const [change] = changes; // of heads only
    const effects = run.effects ?? [];
    const same = (e) => e.site === change.site && e.head === change.head && e.how === change.how;
    return changes.length === 1 ? (effects.find(same)?.outcome ?? null) : null;
  }

  async attend() {
    return null;
  }
}

class LiveSource {
  constructor() {
    this.live = true;
  }

  async blob(id) {
    const answer = await fetch(`/blob?id=${encodeURIComponent(id)}`);
    return answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null;
  }

  edit(run, changes, other) {
    return posted("/edit", { id: run.id, changes, maps: true, ...(other ? { from: other.id } : {}) });
  }

  attend(input) {
    return posted("/attend", input);
  }
}

async function posted(path, body) {
  const head = { "Content-Type": "application/json" };
  const answer = await fetch(path, { method: "POST", headers: head, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error([told.error, told.do].filter(Boolean).join(" — "));
  return told;
}

function unfolded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}

async function unzipped(bytes) {
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  const failed = () => {}; // whoever reads is told
  writer.write(bytes).catch(failed);
  writer.close().catch(failed);
  return new Uint8Array(await new Response(readable).arrayBuffer());
}
