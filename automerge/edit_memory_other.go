//go:build cgo && !linux

package automerge

// nativeBytes is not measured here: what a document takes is estimated from its save.
func nativeBytes() int64 { return 0 }
