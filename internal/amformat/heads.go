package amformat

// DocumentHeads reads no more of a document chunk than its heads: neither its checksum nor its content is judged. It is for telling early that there is
// nothing new in it.
func DocumentHeads(chunk []byte) ([]Hash, error) {
	frame, err := firstChunk(chunk)
	if err != nil {
		return nil, err
	}
	if frame.Kind != KindDocument {
		return nil, malformed("a %s chunk where a document is expected", frame.Kind)
	}
	p := &parser{b: frame.Bytes[frame.body:]}
	for range p.count("actors", 1) {
		p.sized("actors")
		if p.err != nil {
			break
		}
	}
	heads := p.hashes("heads")
	return heads, p.err
}
