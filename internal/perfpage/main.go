// Command perfpage writes internal/perfpage/performance.md out of what benchmarks printed:
//
//	go test -run '^$' -bench . ./ledger ./volvra ./internal/history ./gnomon ./automerge > bench.txt
//	go run ./examples/ibench -quick -o insert
//	go run ./internal/perfpage -insert insert/result.json bench.txt > internal/perfpage/performance.md
//
// A figure that the page names and no benchmark printed is an error.
package main

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/annals-db/annals/internal/ibench"
)

func main() {
	insert := flag.String("insert", "", "result.json of examples/ibench")
	flag.Parse()
	if err := run(*insert, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "perfpage:", err)
		os.Exit(1)
	}
}

//go:embed performance.md.tmpl
var pageText string

func run(insert string, files []string, out io.Writer) error {
	p := page{figures: map[string]map[string]float64{}}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = p.read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	f, err := os.Open(insert)
	if err != nil {
		return fmt.Errorf("-insert: %w", err)
	}
	defer f.Close()
	if p.insert, err = ibench.ReadJSON(f); err != nil {
		return fmt.Errorf("%s: %w", insert, err)
	}
	return p.write(pageText, out)
}

// page is what the figures are taken from.
type page struct {
	figures map[string]map[string]float64 // by benchmark and unit; a benchmark is its package's last name and its own
	insert  *ibench.Result
}

var processors = regexp.MustCompile(`-\d+$`)

// read takes in what go test printed.
func (p page) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	pkg := ""
	for lines.Scan() {
		line := lines.Text()
		if path, found := strings.CutPrefix(line, "pkg: "); found {
			pkg = path[strings.LastIndexByte(path, '/')+1:]
			continue
		}
		if strings.HasPrefix(line, "FAIL") {
			return fmt.Errorf("%s: a benchmark failed", line)
		}
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "Benchmark") || len(fields) < 4 {
			continue
		}
		name := pkg + "." + processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		p.figures[name] = map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			p.figures[name][fields[i+1]] = value
		}
	}
	return lines.Err()
}

func (p page) write(text string, out io.Writer) error {
	t, err := template.New("page").Option("missingkey=error").Funcs(template.FuncMap{"fig": p.figure, "insert": p.ratio, "insertCommand": func() string { return p.insert.Command }}).Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(out, nil)
}

// figure is what a benchmark printed, with its interval where it has one.
func (p page) figure(benchmark, unit string) (string, error) {
	value, found := p.figures[benchmark][unit]
	if !found {
		return "", fmt.Errorf("no benchmark %s printed %s", benchmark, unit)
	}
	text := short(value)
	low, hasLow := p.figures[benchmark][unit+"-lo"]
	high, hasHigh := p.figures[benchmark][unit+"-hi"]
	if hasLow && hasHigh {
		text += fmt.Sprintf(" (%s to %s)", short(low), short(high))
	}
	return text, nil
}

// ratio is a variant's throughput in a step of the Insert Benchmark over that of plain tables.
func (p page) ratio(step, variant string) (string, error) {
	for _, st := range p.insert.Steps {
		for i, side := range p.insert.Sides {
			if st.Name != step || side.Variant != variant {
				continue
			}
			r := st.Measures[i].Ratio
			if r.NoDifference() {
				return fmt.Sprintf("no difference shown (%.2f to %.2f)", r.Low, r.High), nil
			}
			return fmt.Sprintf("%.2f (%.2f to %.2f)", r.Median, r.Low, r.High), nil
		}
	}
	return "", fmt.Errorf("the Insert Benchmark has no step %s of %s", step, variant)
}

// short shows three digits.
func short(value float64) string {
	if value >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}
