package ibench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// sample is a result with odd names and with all that can be missing.
func sample() *Result {
	nothing := Estimate{unknown, unknown, unknown}
	measure := func(ratio, low, high Figure) Measure {
		return Measure{
			Rate: Estimate{1234, 1200, 1300}, Ratio: Estimate{ratio, low, high}, CPU: 12.5, CPURatio: nothing, WALRatio: nothing, WAL: unknown, Images: unknown,
			ClientCPU: 1, Switches: unknown, HOT: unknown, LagBytes: unknown, LagSeconds: unknown, AutovacuumS: unknown, Achieved: 0.5, Failed: true,
			Latency: map[Operation]Latency{Insert: {10, 1000, 2000, 3000, 4000}},
			Points:  []Point{{At: 0, Rate: 1000, P99: 1500, Vacuums: 1}, {At: 1, Rate: unknown, P99: unknown}, {At: 2, Rate: 1200, P99: 1700, Checkpoint: 1}},
		}
	}
	return &Result{
		Command: "go run ./examples/ibench -dsn <'&>",
		Servers: []Facts{{Server: "a", Version: "PostgreSQL <15>", Build: []string{"CFLAGS = -O2"}, Settings: []string{"fsync = off"}}},
		Sides:   []Side{{Name: "plain"}, {Name: "<b>"}, {Name: "same"}, {Name: "quick"}},
		Steps: []StepResult{{"l.i0", "rows/s", []Measure{measure(1, 1, 1), measure(0.7, 0.6, 0.8), measure(0.99, 0.9, 1.1), measure(1.5, 1.4, 1.6)}},
			{"qr100", "queries/s", []Measure{measure(1, 1, 1), measure(unknown, unknown, unknown), measure(0.97, 0.96, 0.98), measure(1, 1, 1)}}},
		Ends: []End{{[]Space{{"table", 1e6}}}, {[]Space{{"table", 2e6}, {"history", 3e6}}}, {}, {}},
	}
}

func TestWriteHTML(t *testing.T) {
	var page bytes.Buffer
	if err := sample().WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, bad := range []string{"http:", "https:", "src=", "href=", "<b>", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"&lt;b&gt;", `class="worse">0.70`, `class="better">1.50`, "no difference shown", "SLA failed", "<polyline", "<path"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// Every drawing is well formed.
	for part := range strings.SplitSeq(text, "<svg") {
		drawing, _, found := strings.Cut(part, "</svg>")
		if !found {
			continue
		}
		d := xml.NewDecoder(strings.NewReader("<svg" + drawing + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWriteMarkdown(t *testing.T) {
	var text bytes.Buffer
	if err := sample().WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| l.i0 | 1 | **0.70 (0.60 to 0.80)** | 0.99 (0.90 to 1.10) no difference shown | **1.50 (1.40 to 1.60)** |", "| history | - | 3.00 | - | - |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, &text)
		}
	}
	// Rows of a table have as many cells as its head.
	cells := 0
	for line := range strings.Lines(text.String()) {
		n := strings.Count(line, "|")
		if n > 0 && cells > 0 && n != cells {
			t.Errorf("%d bars, not %d: %s", n, cells, line)
		}
		cells = n
	}
}

func TestJSON(t *testing.T) {
	var text bytes.Buffer
	if err := sample().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	r, err := ReadJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	if r.Steps[0].Measures[1].Ratio.Median != 0.7 || r.Steps[1].Measures[1].Ratio.Median.Known() {
		t.Errorf("%+v", r.Steps)
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[Figure]string{0: "0", 0.1234: "0.123", 5.678: "5.68", 56.78: "56.8", 567.8: "568", 5678: "5678", 56789: "56,789", 1234567: "1,234,567", unknown: "-"} {
		if got := number(f); got != want {
			t.Errorf("%g is %q, not %q", f, got, want)
		}
	}
}
