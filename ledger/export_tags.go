package ledger

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
)

// exportTag is a named text on an exported transaction.
type exportTag struct{ key, value string }

// Keys that mean something to a format, or that the export itself sets, stay inside the JSON.
var (
	tagKey      = regexp.MustCompile(`^[a-z][a-zA-Z0-9_-]+$`)
	reservedKey = map[string]bool{"created_at": true, "event_at": true, "metadata": true, "date": true, "date2": true, "type": true, "filename": true, "lineno": true}
)

// tagsOf makes tags of metadata: one for each key of an object that can be a tag's key in both formats, sorted, and one named metadata
// for whatever else there is, as JSON.
func tagsOf(metadata json.RawMessage) (tags []exportTag) {
	if len(metadata) == 0 {
		return nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(metadata, &object) != nil || object == nil {
		return []exportTag{{"metadata", string(metadata)}}
	}
	rest := map[string]json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		var text string
		switch value := object[key]; {
		case !tagKey.MatchString(key) || reservedKey[key]:
			rest[key] = value
		case value[0] == '"' && json.Unmarshal(value, &text) == nil:
			tags = append(tags, exportTag{key, text})
		default:
			tags = append(tags, exportTag{key, string(value)})
		}
	}
	if len(rest) > 0 {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if encoder.Encode(rest) == nil { // parts of what was just decoded
			tags = append(tags, exportTag{"metadata", string(bytes.TrimSpace(text.Bytes()))})
		}
	}
	return tags
}
