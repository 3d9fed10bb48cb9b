package history

import (
	"encoding"
	"encoding/hex"
	"fmt"
	"time"
)

// Key identifies a row: the values of the columns of the key by which its table is tracked, in that order, as texts.
type Key []string

// KeyOf returns the key with these values, as [Text] writes them.
func KeyOf(values ...any) Key {
	k := make(Key, len(values))
	for i, v := range values {
		k[i] = Text(v)
	}
	return k
}

// Text writes a Go value as a text that PostgreSQL reads as the same value: texts, numbers, times, bytes, and whatever can marshal itself
// as text.
func Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return `\x` + hex.EncodeToString(v)
	case time.Time:
		return v.Format("2006-01-02T15:04:05.999999999Z07:00")
	case encoding.TextMarshaler:
		if text, err := v.MarshalText(); err == nil {
			return string(text)
		}
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}
