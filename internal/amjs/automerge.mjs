// Answers lines of JSON on standard input with lines of JSON on standard output, by means of the npm package @automerge/automerge.
import readline from "node:readline"
import { pathToFileURL } from "node:url"

const A = await import(pathToFileURL(process.argv[2]).href)

// A small random generator, so that a seed gives the same document every time.
function random(seed) {
  let s = seed >>> 0
  return n => {
    s = (s + 0x6d2b79f5) >>> 0
    let t = Math.imul(s ^ (s >>> 15), 1 | s)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % n
  }
}

function value(r) {
  const some = [() => r(1000), () => -r(1000), () => r(100) / 7, () => "s" + r(9) + "é😀", () => true, () => false, () => null, () => new Date(r(1e9) * 1000),
    () => new Uint8Array([r(256), r(256)]), () => new A.Counter(r(10)), () => new A.ImmutableString("i" + r(9)), () => ({ k: r(9), list: [r(9)] }), () => [r(9), "x", {}],
    () => Infinity, () => 2 ** 53 - 1]
  return some[r(some.length)]()
}

function edit(r, d) {
  const key = "abcdé"[r(5)]
  switch (r(14)) {
    case 0: case 1: d.map[key] = value(r); break
    case 2: delete d.map[key]; break
    case 3: d.map.deep[key] = value(r); break
    case 4: d.n.increment(r(10) - 5); break
    case 5: d.list.splice(r(d.list.length + 1), 0, value(r)); break
    case 6: if (d.list.length) d.list.splice(r(d.list.length), 1); break
    case 7: if (d.list.length) d.list[r(d.list.length)] = value(r); break
    case 8: if (d.rich.length > 1) {
      const from = r(d.rich.length - 1)
      A.mark(d, ["rich"], { start: from, end: from + 1 + r(d.rich.length - from), expand: ["both", "none", "before", "after"][r(4)] }, ["bold", "link"][r(2)], [true, "x", null][r(3)])
      break
    }
    case 9: if (d.rich.length > 1) {
      const from = r(d.rich.length - 1)
      A.unmark(d, ["rich"], { start: from, end: from + 1 + r(d.rich.length - from), expand: "none" }, "bold")
      break
    }
    case 10: A.splitBlock(d, ["rich"], r(d.rich.length + 1), { type: "paragraph", parents: [], attrs: { level: r(4) } }); break
    default: {
      const from = r(d.rich.length + 1)
      A.splice(d, ["rich"], from, r(Math.min(3, d.rich.length - from) + 1), ["", "x", "hello", "é", "zo"][r(5)])
    }
  }
}

const hex = n => n.toString(16).padStart(32, "0")
const base64 = b => Buffer.from(b).toString("base64")

function make({ seed, actors, steps }) {
  const r = random(seed)
  let first = A.from({ rich: "some text", n: new A.Counter(1), list: [1, "two", null], map: { deep: {} } }, { actor: hex(r(1 << 30)) })
  const docs = [first]
  while (docs.length < actors) docs.push(A.clone(first, { actor: hex(r(1 << 30)) }))
  for (let i = 0; i < steps; i++) {
    const at = r(docs.length)
    if (r(5) === 0) {
      const other = r(docs.length)
      if (other !== at) docs[at] = A.merge(docs[at], docs[other])
    } else if (r(12) === 0) {
      docs[at] = A.emptyChange(docs[at], { message: "nothing", time: r(1e9) })
    } else {
      const n = 1 + r(4)
      docs[at] = A.change(docs[at], r(3) ? { time: r(1e9) } : { message: "m" + r(5), time: -r(1e9) }, d => { for (let k = 0; k < n; k++) edit(r, d) })
    }
  }
  let all = docs[0]
  for (const d of docs.slice(1)) all = A.merge(all, d)
  return { save: base64(A.save(all)), changes: A.getAllChanges(all).map(base64), heads: A.getHeads(all).sort(), json: show(all) }
}

function sorted(v) {
  if (v instanceof Date) return { $date: v.getTime() }
  if (v instanceof Uint8Array) return { $bytes: base64(v) }
  if (v instanceof A.Counter) return { $counter: v.value }
  if (v instanceof A.ImmutableString) return String(v)
  if (typeof v === "bigint") return { $bigint: String(v) }
  if (typeof v === "number" && !Number.isFinite(v)) return { $float: String(v) }
  if (Array.isArray(v)) return v.map(sorted)
  if (v && typeof v === "object") return Object.fromEntries(Object.keys(v).sort().map(k => [k, sorted(v[k])]))
  return v
}

function show(d) {
  const spans = typeof d.rich === "string" ? A.spans(d, ["rich"]) : null
  return JSON.stringify([sorted(d), sorted(spans)])
}

// Every place in a document that has several values: its path and the values by operation.
function conflicts(v, path, out) {
  if (typeof v !== "object" || v === null || v instanceof Date || v instanceof Uint8Array || v instanceof A.Counter || v instanceof A.ImmutableString) return out
  for (const k of Array.isArray(v) ? v.keys() : Object.keys(v).sort()) {
    const values = A.getConflicts(v, k)
    if (values) out.push({ path: [...path, k], values: sorted(values) })
    conflicts(v[k], [...path, k], out)
  }
  return out
}

function view(d, heads) {
  if (heads.length) d = A.view(d, heads)
  let spans = null
  try {
    if (typeof d.rich === "string") spans = sorted(A.spans(d, ["rich"]))
  } catch {
    // In views, JavaScript looks for the text where it is now.
  }
  return { json: sorted(d), spans, conflicts: conflicts(d, [], []) }
}

function load({ chunks, views }) {
  let d = A.load(Buffer.from(chunks[0], "base64"))
  for (const c of chunks.slice(1)) d = A.loadIncremental(d, Buffer.from(c, "base64"))
  return { heads: A.getHeads(d).sort(), json: show(d), views: views?.map(heads => view(d, heads)) }
}

// Peers of the sync protocol, each with its document.
const peers = new Map()

function peer(ask) {
  if (ask.begin) peers.set(ask.peer, { doc: ask.begin.length ? A.loadIncremental(A.init(), Buffer.concat(ask.begin.map(c => Buffer.from(c, "base64")))) : A.init(), state: A.initSyncState({ readOnly: ask.readOnly }) })
  const p = peers.get(ask.peer)
  if (ask.restart) p.state = ask.restart === "saved" ? A.decodeSyncState(A.encodeSyncState(p.state)) : A.initSyncState()
  if (ask.lose) p.doc = A.init()
  if (ask.edit) p.doc = A.change(p.doc, { time: ask.edit }, d => {
    d["k" + ask.edit % 7] = "v" + ask.edit
    d.words ??= []
    d.words.push("w" + ask.edit)
  })
  if (ask.receive) [p.doc, p.state] = A.receiveSyncMessage(p.doc, p.state, Buffer.from(ask.receive, "base64"))
  let message = null
  if (ask.generate) [p.state, message] = A.generateSyncMessage(p.doc, p.state)
  const answer = { message: message && base64(message), heads: A.getHeads(p.doc).sort() }
  if (ask.show) answer.json = show(p.doc)
  if (ask.save) answer.save = base64(A.save(p.doc))
  return answer
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  let answer
  try {
    const ask = JSON.parse(line)
    answer = ask.peer ? peer(ask) : ask.chunks ? load(ask) : make(ask)
  } catch (e) {
    answer = { error: String(e) }
  }
  process.stdout.write(JSON.stringify(answer) + "\n")
}
