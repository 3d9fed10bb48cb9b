package main

import (
	"os"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/ibench"
)

const printed = `goos: linux
pkg: github.com/annals-db/annals/gnomon
BenchmarkPointRead/main-2         	       1	    1.004 ratio	    0.9812 ratio-lo	    1.02 ratio-hi	   12345 reads/s
BenchmarkDiff/changed=1000-2      	       1	         7.25 ms
PASS
`

func TestPage(t *testing.T) {
	p := page{figures: map[string]map[string]float64{}, insert: &ibench.Result{
		Command: "go run ./examples/ibench",
		Sides:   []ibench.Side{{Variant: "plain"}, {Variant: "gnomon"}},
		Steps: []ibench.StepResult{{Name: "l.i0", Measures: []ibench.Measure{{}, {Ratio: ibench.Estimate{Median: 0.5, Low: 0.4, High: 0.6}}}},
			{Name: "qr100", Measures: []ibench.Measure{{}, {Ratio: ibench.Estimate{Median: 1, Low: 0.9, High: 1.1}}}}},
	}}
	if err := p.read(strings.NewReader(printed)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := p.write(`{{fig "gnomon.PointRead/main" "ratio"}}; {{fig "gnomon.PointRead/main" "reads/s"}}; {{fig "gnomon.Diff/changed=1000" "ms"}}; {{insert "l.i0" "gnomon"}}; {{insert "qr100" "gnomon"}}`, &out)
	if want := "1 (0.981 to 1.02); 12345; 7.25; 0.50 (0.40 to 0.60); no difference shown (0.90 to 1.10)"; err != nil || out.String() != want {
		t.Errorf("%s, %v", out.String(), err)
	}
	for _, missing := range []string{`{{fig "gnomon.PointRead/main" "ms"}}`, `{{fig "gnomon.Nothing" "ms"}}`, `{{insert "l.i0" "volvra"}}`} {
		if err := p.write(missing, &out); err == nil {
			t.Errorf("%s is no error", missing)
		}
	}
	if err := p.read(strings.NewReader("FAIL\tgithub.com/annals-db/annals/gnomon\n")); err == nil {
		t.Error("a failed benchmark is no error")
	}
}

// The page is one that this template made.
func TestPageIsOfTheTemplate(t *testing.T) {
	content, err := os.ReadFile("performance.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(content)
	for part := range strings.SplitSeq(pageText, "{{") {
		_, literal, found := strings.Cut(part, "}}")
		if !found {
			literal = part
		}
		before, after, found := strings.Cut(rest, literal)
		if !found {
			t.Fatalf("internal/perfpage/performance.md was not made of this template; it lacks, in its place: %q", literal)
		}
		_, rest = before, after
	}
}
