package ibench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// WriteMarkdown writes the report as Markdown.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Insert Benchmark\n\n")
	if r.Command != "" {
		fmt.Fprintf(&b, "`%s`\n\n", r.Command)
	}
	for _, line := range r.facts() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "\n## %s\n\n", t.title)
		if t.text != "" {
			b.WriteString(t.text + "\n\n")
		}
		row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
		row(t.head)
		rule := slices.Repeat([]string{"---"}, len(t.head))
		for i := max(t.words, 1); i < len(rule); i++ {
			rule[i] = "---:"
		}
		row(rule)
		for _, cells := range t.rows {
			var texts []string
			for _, c := range cells {
				text := c.text
				if c.mark != "" {
					text = "**" + text + "**"
				}
				texts = append(texts, text)
			}
			row(texts)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// facts are what the figures depend on, in sentences.
func (r *Result) facts() []string {
	lines := []string{
		fmt.Sprintf("%s, in %v. Seed %d, %d client(s) a side, %d CPUs. Load average %s.", r.Began.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second), r.Seed, r.Clients, r.CPUs, or(r.Load, "unknown")),
		fmt.Sprintf("By client %d rows are loaded, %d go through in l.i1 and %d in l.i2. Steps have %d slices, with queries of %v.", r.Size.Load, r.Size.Churn, r.Size.SmallRows, r.Size.Slices, r.Size.Serve),
	}
	for _, f := range r.Servers {
		lines = append(lines, fmt.Sprintf("%s: %s; data checksums %s; built with %s. Settings: %s.", f.Server, f.Version, map[bool]string{true: "on", false: "off"}[f.Checksums], f.built(), or(strings.Join(f.Settings, ", "), "all defaults")))
	}
	return append(lines, r.Notes...)
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
