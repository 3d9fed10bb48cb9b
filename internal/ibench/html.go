package ibench

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed report.html.tmpl
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// WriteHTML writes the report as one HTML file that needs no other.
func (r *Result) WriteHTML(w io.Writer) error {
	type htmlCell struct{ Text, Mark string }
	type htmlTable struct {
		Title, Text string
		Words       int
		Head        []string
		Rows        [][]htmlCell
	}
	page := struct {
		Command string
		Facts   []string
		Tables  []htmlTable
		Plots   []plot
		Legend  []legend
	}{Command: r.Command, Facts: r.facts(), Plots: r.plots(), Legend: r.legend()}
	for _, t := range r.tables() {
		h := htmlTable{Title: t.title, Text: t.text, Head: t.head, Words: max(t.words, 1)}
		for _, row := range t.rows {
			var cells []htmlCell
			for _, c := range row {
				cells = append(cells, htmlCell{c.text, c.mark})
			}
			h.Rows = append(h.Rows, cells)
		}
		page.Tables = append(page.Tables, h)
	}
	return reportTemplate.Execute(w, page)
}
