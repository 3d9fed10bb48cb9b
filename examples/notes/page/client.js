// Keeps a document of Automerge (the library A) in step with a server: each message of the WebSocket is one of the sync protocol. The document can be
// changed at any time; while there is no connection, changes wait in it.
export function open(A, url, changed) {
  let doc = A.init(), state = A.initSyncState(), socket = null, closed = false

  function send() {
    if (socket?.readyState !== WebSocket.OPEN) return
    const [next, message] = A.generateSyncMessage(doc, state)
    state = next
    if (message) socket.send(message)
  }

  function connect() {
    if (closed || socket) return
    state = A.decodeSyncState(A.encodeSyncState(state)) // what was under way is lost
    const s = socket = new WebSocket(url)
    s.binaryType = "arraybuffer"
    s.onopen = () => { changed(doc, true); send() }
    s.onmessage = event => {
      if (s !== socket) return
      ;[doc, state] = A.receiveSyncMessage(doc, state, new Uint8Array(event.data))
      changed(doc, true)
      send()
    }
    s.onclose = () => {
      if (s !== socket) return
      socket = null
      changed(doc, false)
      setTimeout(connect, 500)
    }
  }

  connect()
  return {
    get doc() { return doc },
    change(f) { doc = A.change(doc, { time: Math.floor(Date.now() / 1000) }, f); send() },
    online: connect,
    offline() { const s = socket; socket = null; s?.close(); changed(doc, false) },
    close() { closed = true; socket?.close() },
  }
}
