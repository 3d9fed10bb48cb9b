package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
)

// Package is what Install installs.
type Package struct {
	Name   string // names the package in messages and in annals_step
	Schema string // the schema that is its own
	Steps  fs.FS  // the steps, in folder sql; see the package documentation
}

// step is one file of a package's steps.
type step struct {
	Version int
	Name    string // 001_tables
	SQL     string
	Tag     string // dollar quote around SQL
}

var stepFile = regexp.MustCompile(`^(\d{3})_[a-z0-9_]+\.sql$`)

// steps reads a package's steps. Other files beside them, which don't begin with
// a digit, are not steps.
func (p Package) steps() ([]step, error) {
	files, err := fs.Glob(p.Steps, "sql/[0-9]*")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("package %s has no steps: put them into sql/001_name.sql and so on", p.Name)
	}
	var steps []step
	for i, file := range files { // sorted by name
		match := stepFile.FindStringSubmatch(path.Base(file))
		if match == nil {
			return nil, fmt.Errorf("package %s: %s is not named like sql/001_name.sql", p.Name, file)
		}
		if version, _ := strconv.Atoi(match[1]); version != i+1 {
			return nil, fmt.Errorf("package %s: step %s stands where number %03d belongs", p.Name, file, i+1)
		}
		text, err := fs.ReadFile(p.Steps, file)
		if err != nil {
			return nil, err
		}
		s := step{
			Version: i + 1,
			Name:    strings.TrimSuffix(path.Base(file), ".sql"),
			SQL:     string(text),
			Tag:     fmt.Sprintf("$step_%03d$", i+1),
		}
		for _, tag := range []string{s.Tag, installTag} {
			if strings.Contains(s.SQL, tag) {
				return nil, fmt.Errorf("package %s: step %s contains %s, which is quoted with", p.Name, s.Name, tag)
			}
		}
		steps = append(steps, s)
	}
	return steps, nil
}

//go:embed sql/*.sql
var scripts embed.FS

const installTag = "$annals_install$"

var scriptTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"literal": literal,
	"ident":   func(name ...string) string { return pgx.Identifier(name).Sanitize() },
}).ParseFS(scripts, "sql/install.sql", "sql/uninstall.sql", "sql/pin.sql"))

// script renders one of the templates.
func (p Package) script(name string, steps []step) (string, error) {
	var text strings.Builder
	err := scriptTemplates.ExecuteTemplate(&text, name, struct {
		Package
		Steps   []step
		Version int
	}{p, steps, len(steps)})
	return text.String(), err
}

// literal quotes a string that contains no backslash the way every setting of
// standard_conforming_strings understands, and any other as an escape string.
func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
