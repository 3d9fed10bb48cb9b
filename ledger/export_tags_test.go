package ledger

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestTagsOfMetadata(t *testing.T) {
	for metadata, want := range map[string][]exportTag{
		"":                                 nil,
		"{}":                               nil,
		"null":                             {{"metadata", "null"}},
		"[1, 2]":                           {{"metadata", "[1, 2]"}},
		`"text"`:                           {{"metadata", `"text"`}},
		`{"b": "text", "a": 12.50}`:        {{"metadata", `{"a":12.50,"b":"text"}`}}, // too short for beancount
		`{"ab": 12.50, "cd": "t\"\u00e9"}`: {{"ab", "12.50"}, {"cd", `t"é`}},
		`{"ok": {"x": [1]}, "no no": "<&>", "date": "2020", "Up": null}`: {{"ok", `{"x": [1]}`}, {"metadata", `{"Up":null,"date":"2020","no no":"<&>"}`}},
	} {
		if got := tagsOf(json.RawMessage(metadata)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s became %v, not %v", metadata, got, want)
		}
	}
}

func TestHLedgerValueStaysWhole(t *testing.T) {
	for value, want := range map[string]string{"plain text": "plain text", "a, b": "a%2C b", "50%": "50%25", " x ": "%20x%20", "a\nb\u00a0c": "a%0Ab%C2%A0c", "": ""} {
		if got := hledgerValue(value); got != want {
			t.Errorf("%q became %q, not %q", value, got, want)
		}
	}
}

func TestBeancountTextIsQuoted(t *testing.T) {
	if got, want := beancountText("a \"b\" \\ \n\t\x01 é"), `"a \"b\" \\ \n\t  é"`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
