"use strict";
// The page of a server: a model is picked, given a text or a file, and its answer is shown as it comes.
const $ = (id) => document.getElementById(id);
const names = JSON.parse($("models").textContent);
let about = null; // the model: {name, task, does, reads, continues, chat, together}
let messages = []; // of a chat
let last = null; // the request that can be explored: {text, file}
let running = null; // the AbortController of the request that is being answered

function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

async function failure(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

async function pick(name) {
  about = null;
  messages = [];
  last = null;
  $("look").hidden = true;
  $("send").disabled = true;
  $("about").textContent = "loading …";
  try {
    const response = await fetch(`/api/models/${encodeURIComponent(name)}`);
    if (!response.ok) throw new Error(await failure(response));
    const found = await response.json();
    if ($("model").value !== name) return; // another was picked meanwhile
    about = found;
  } catch (error) {
    $("about").textContent = error.message;
    return;
  }
  $("about").textContent = about.chat ? "chats" : about.does;
  const files = about.reads === "images" || about.reads === "sounds";
  $("drop").hidden = !files;
  dropNothing();
  $("text").hidden = files && !about.together && !about.chat;
  $("text").placeholder = about.together ? "candidate texts, one on each line" : about.chat ? "a message" : `${about.reads}, for a model that ${about.does}`;
  $("options").hidden = !about.writes;
  $("send").disabled = false;
}

function dropNothing() {
  $("dropped").textContent = `drop one of your ${about.reads} here, or choose a file`;
  $("file").value = "";
}

function dataUri(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function sampling() {
  const seed = $("seed").value;
  return {
    temperature: Number($("temperature").value),
    max_tokens: Number($("tokens").value),
    ...(seed === "" ? {} : { seed: Number(seed) }),
  };
}

function begin(text, file) {
  const article = element("article");
  const asked = element("div", "asked", text);
  if (file) {
    asked.append(file.name);
    if (file.type.startsWith("image/")) {
      const image = element("img");
      image.alt = file.name;
      image.src = URL.createObjectURL(file);
      asked.append(image);
    }
  }
  const answer = element("div", "answer");
  answer.dataset.testid = "answer";
  article.append(asked, answer);
  $("talk").append(article);
  article.scrollIntoView({ block: "end" });
  return answer;
}

// ---- texts, token by token

function showToken(answer, text, logprob, top) {
  const probability = Math.exp(logprob);
  const token = element("span", "token", text);
  token.tabIndex = 0;
  token.style.setProperty("--doubt", String(1 - probability));
  const told = [`${JSON.stringify(text)} ${percent(probability)}`, ...top.map(([other, p]) => `${JSON.stringify(other)} ${percent(Math.exp(p))}`)];
  token.title = told.join("\n");
  token.addEventListener("click", () => showNote(answer, `${told[0]}; likeliest: ${told.slice(1).join(", ")}`));
  token.addEventListener("keydown", (event) => {
    if (event.key === "Enter") token.click();
  });
  answer.append(token);
}

const percent = (p) => `${(100 * p).toFixed(1)} %`;

function showNote(answer, text) {
  const article = answer.parentElement;
  const note = article.querySelector(".note") ?? element("div", "note");
  note.textContent = text;
  article.append(note);
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const whole = held.split("\n\n");
    held = whole.pop();
    for (const one of whole) {
      const data = one.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

async function write(text, file, answer, signal) {
  const chat = about.chat;
  const words = text.trim() ? [{ type: "text", text }] : [];
  const content = file ? [{ type: "image_url", image_url: { url: await dataUri(file) } }, ...words] : text;
  if (chat) messages.push({ role: "user", content });
  const how = { model: about.name, stream: true, ...sampling() };
  const body = chat ? { ...how, messages, logprobs: true, top_logprobs: 3 } : { ...how, prompt: text, logprobs: 3 };
  const path = chat ? "/v1/chat/completions" : "/v1/completions";
  const said = [];
  let taken = false;
  try {
    const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
    if (!response.ok) throw new Error(await failure(response));
    taken = true;
    showNote(answer, "the darker a token, the less likely it was; press one to see its probability");
    for await (const event of events(response)) {
      const choice = event.choices[0];
      if (!choice) continue;
      const piece = chat ? choice.delta.content ?? "" : choice.text;
      said.push(piece);
      const scored = chat ? choice.logprobs?.content?.at(-1) : choice.logprobs;
      if (piece && scored) {
        const logprob = chat ? scored.logprob : scored.token_logprobs.at(-1);
        const top = chat ? scored.top_logprobs.map((one) => [one.token, one.logprob]) : Object.entries(scored.top_logprobs.at(-1) ?? {});
        showToken(answer, piece, logprob, top);
      } else if (piece) {
        answer.append(piece);
      }
      if (choice.finish_reason === "length") showNote(answer, "ended by the number of tokens; raise it under Options");
    }
  } finally {
    if (chat && taken) messages.push({ role: "assistant", content: said.join("") });
    else if (chat) messages.pop(); // what was refused is not said
  }
}

// ---- predictions of every other task

async function predict(text, file, answer, signal) {
  let request;
  if (file) {
    const form = new FormData();
    form.append("model", about.name);
    form.append("file", file);
    if (about.together) for (const line of text.split("\n").filter((one) => one.trim())) form.append("input", line);
    request = { method: "POST", body: form, signal };
  } else {
    request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ model: about.name, input: text }), signal };
  }
  const response = await fetch("/api/predict", request);
  if (!response.ok) throw new Error(await failure(response));
  for (const one of (await response.json()).predictions) show(one, answer);
}

function show(found, answer) {
  const { output, probabilities, masks } = found;
  if (typeof output === "string") answer.append(element("div", "", output));
  else if (Array.isArray(output) && output.every((one) => Array.isArray(one) && typeof one[0] === "string")) answer.append(words(output));
  else if (Array.isArray(output)) answer.append(numbers(output));
  if (probabilities) answer.append(bars(Object.entries(probabilities)));
  for (const mask of masks ?? []) answer.append(bars(mask.map((one) => [one.token, one.probability])));
  if (output === undefined && !probabilities && !masks) answer.append(element("pre", "", JSON.stringify(found, null, 1)));
  for (const said of [found.cut, found.stopped_at && `ended by ${found.stopped_at}`]) if (said) showNote(answer, said);
}

function bars(pairs) {
  const made = element("div", "bars");
  for (const [label, p] of pairs.sort((a, b) => b[1] - a[1]).slice(0, 10)) {
    const bar = element("div", "bar");
    bar.style.width = `${100 * p}%`;
    made.append(element("span", "", label), bar, element("span", "", percent(p)));
  }
  return made;
}

function words(pairs) {
  const made = element("div", "words");
  for (const [word, tag] of pairs) {
    const one = element("span", "", word);
    one.append(element("small", "", String(tag)));
    made.append(one);
  }
  return made;
}

function numbers(rows) {
  const table = element("table");
  for (const row of rows) {
    const line = element("tr");
    for (const value of Array.isArray(row) ? row : [row]) line.append(element("td", "", typeof value === "number" ? value.toPrecision(5) : JSON.stringify(value)));
    table.append(line);
  }
  return table;
}

// ---- the form

async function ask() {
  const text = $("text").hidden ? "" : $("text").value;
  const file = $("drop").hidden ? null : $("file").files[0] ?? null;
  if (running || !about || (!text.trim() && !file)) return;
  const answer = begin(text, file);
  running = new AbortController();
  $("send").disabled = true;
  $("stop").hidden = false;
  $("look").hidden = true;
  try {
    if (about.continues) await write(text, file, answer, running.signal);
    else await predict(text, file, answer, running.signal);
    last = { text, file };
    $("look").hidden = !file && !$("drop").hidden; // a message without its image is nothing to explore
    if (about.chat) {
      $("text").value = "";
      if (file) dropNothing(); // the conversation goes on about it
    }
  } catch (error) {
    if (error.name === "AbortError") showNote(answer, "stopped");
    else answer.append(element("div", "error", error.message));
  } finally {
    running = null;
    $("send").disabled = false;
    $("stop").hidden = true;
    answer.dataset.done = "yes";
  }
}

function look() {
  // a form of its own, so that the explorer opens as a page of its own
  const form = element("form");
  form.method = "post";
  form.action = "/look";
  form.target = "_blank";
  form.enctype = "multipart/form-data";
  form.hidden = true;
  const add = (name, kind) => {
    const field = element("input");
    field.type = kind;
    field.name = name;
    form.append(field);
    return field;
  };
  add("model", "hidden").value = about.name;
  if (last.file) {
    const files = new DataTransfer();
    files.items.add(last.file);
    add("file", "file").files = files.files;
  } else {
    add("input", "hidden").value = last.text;
  }
  document.body.append(form);
  form.submit();
  form.remove();
}

for (const name of names) {
  const option = element("option", "", name);
  option.value = name;
  $("model").append(option);
}
$("model").addEventListener("change", () => pick($("model").value));
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !about?.together) {
    event.preventDefault();
    ask();
  }
});
$("stop").addEventListener("click", () => running?.abort());
$("look").addEventListener("click", look);
$("clear").addEventListener("click", () => {
  messages = [];
  $("talk").replaceChildren();
});
$("file").addEventListener("change", () => {
  $("dropped").textContent = $("file").files[0]?.name ?? "";
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) {
      $("file").files = event.dataTransfer.files;
      $("file").dispatchEvent(new Event("change"));
    }
  });
}
if (names.length) pick(names[0]);
else $("about").textContent = "there are no models";
