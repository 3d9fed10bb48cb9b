package schema

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// NewerError says that the database has a newer version of a package than this
// program knows. Nothing was changed.
type NewerError struct {
	Package   string
	Installed int // version in the database
	Known     int // version of this program
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s is installed as version %d, and this program knows only version %d: use a program that knows the installed version", e.Package, e.Installed, e.Known)
}

// ForeignSchemaError says that a package's schema exists and was not installed by
// the package. Nothing was changed.
type ForeignSchemaError struct {
	Package string
	Schema  string
}

func (e *ForeignSchemaError) Error() string {
	return fmt.Sprintf("schema %s was not installed by %s and belongs to somebody else: rename it if %s is to use that name", pgx.Identifier{e.Schema}.Sanitize(), e.Package, e.Package)
}

// StepError says which step of a package failed. Nothing was changed. It wraps
// the server's error.
type StepError struct {
	Package string
	Step    string // name of its file without .sql
	Err     error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("installing %s, step %s: %v", e.Package, e.Step, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }
