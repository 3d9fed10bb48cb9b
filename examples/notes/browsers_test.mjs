// Two browsers, as far as the page's client can tell: they write at the same time, and one is offline for a while. Prints what each has in the end.
import { pathToFileURL } from "node:url"

const [library, client, url] = process.argv.slice(2)
const A = await import(pathToFileURL(library).href)
const { open } = await import(pathToFileURL(client).href)

const sleep = ms => new Promise(done => setTimeout(done, ms))
const heads = n => A.getHeads(n.doc).sort().join()

async function until(what, holds) {
  for (let i = 0; i < 600; i++) {
    if (holds()) return
    await sleep(50)
  }
  throw new Error("timed out: " + what)
}

const notes = [open(A, url, () => {}), open(A, url, () => {})]
await until("both have the note", () => notes.every(n => n.doc.text))
for (let i = 0; i < 20; i++) {
  notes.forEach((n, k) => n.change(d => A.splice(d, ["text"], k ? d.text.length : 0, 0, "ab"[k])))
  await sleep(5)
}
await until("both have the same", () => heads(notes[0]) === heads(notes[1]) && notes[0].doc.text.length === 51)
notes[1].offline()
notes[0].change(d => A.splice(d, ["text"], 0, 0, "here "))
notes[1].change(d => A.updateText(d, ["title"], "Offline"))
await sleep(100)
if (heads(notes[0]) === heads(notes[1])) throw new Error("offline is no different")
notes[1].online()
await until("both have the same again", () => heads(notes[0]) === heads(notes[1]))
console.log(JSON.stringify(notes.map(n => ({ heads: A.getHeads(n.doc).sort(), doc: n.doc }))))
process.exit(0)
