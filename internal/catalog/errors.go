package catalog

import (
	"errors"
	"fmt"
)

// ErrNoTable says that nothing in the database has the name of the table.
var ErrNoTable = errors.New("there is no such table")

// ErrNoSchema says that there is no schema of that name.
var ErrNoSchema = errors.New("there is no such schema")

// What the server says of a text that is no name.
const (
	codeInvalidName   = "42602"
	codeSyntaxError   = "42601"
	codeOtherDatabase = "0A000"
)

// NotTableError says that a name is not that of a table or view.
type NotTableError struct {
	Name string // as it was asked for
	Kind string // what has that name, such as index or sequence; "" when nothing has
	Err  error  // the server's error when Name can't be a table's name; else nil
}

func (e *NotTableError) Error() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("%s can't be the name of a table (%v): write it as in SQL, such as shop.book or \"Sch ema\".\"Book\"", e.Name, e.Err)
	case e.Kind != "":
		return fmt.Sprintf("%s is not a table or view, it is a kind of %s: name the table", e.Name, e.Kind)
	}
	return fmt.Sprintf("there is no table %s: qualify it with its schema if that is not in search_path, and quote names that are not all lower case", e.Name)
}

// Is reports whether target is [ErrNoTable] and nothing has the name.
func (e *NotTableError) Is(target error) bool { return target == ErrNoTable && e.Kind == "" }

func (e *NotTableError) Unwrap() error { return e.Err }
