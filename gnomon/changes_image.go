package gnomon

import (
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Image is a row as it was at some time: the values of its columns as PostgreSQL writes them with ISO dates, in UTC. Columns that are not
// captured, by option or because they are computed, are not in it. All columns are that the history ever had: those that the table did not have then, or has no
// more, are null, unless the history holds their values.
type Image struct {
	shape *shape
	raw   string // a text[] in PostgreSQL's binary form
}

// value is the text of a column, or null.
type value struct {
	text string
	null bool
}

// Known reports whether there is an image: an insert has no old one and a delete no new one, and what a row was or became may not be known.
func (i Image) Known() bool { return i.raw != "" }

// Columns returns the names of the columns of the image.
func (i Image) Columns() []string {
	if i.shape == nil {
		return nil
	}
	return i.shape.columns
}

// Value returns the text of a column; null is reported for SQL null, and ok is false where the image has no such column.
func (i Image) Value(column string) (text string, null, ok bool) {
	for n, v := range i.values() {
		if i.shape.columns[n] == column {
			return v.text, v.null, true
		}
	}
	return "", false, false
}

// Map returns the values by the names of their columns, nil for SQL null.
func (i Image) Map() map[string]*string {
	m := make(map[string]*string, len(i.Columns()))
	for n, v := range i.values() {
		if v.null {
			m[i.shape.columns[n]] = nil
		} else {
			m[i.shape.columns[n]] = &v.text
		}
	}
	return m
}

// Scan turns an image into a T, as pgx does with a row: Scan(change.New, pgx.RowToMap). A struct needs a field for each column of the image, those that the table
// has no more included.
func Scan[T any](i Image, to pgx.RowToFunc[T]) (T, error) {
	if !i.Known() {
		var zero T
		return zero, fmt.Errorf("gnomon: there is no image: %w", pgx.ErrNoRows)
	}
	return to(imageRow{i, pgtype.NewMap()})
}

// values returns the values by the numbers of their columns.
func (i Image) values() iter.Seq2[int, value] { return elementsOf(i.raw) }

// elementsOf returns the elements of a text[] in binary form.
func elementsOf(raw string) iter.Seq2[int, value] {
	return func(yield func(int, value) bool) {
		if len(raw) < 20 { // null, or empty
			return
		}
		at := 20
		for n := range int(int32At(raw, 12)) {
			size := int(int32At(raw, at))
			at += 4
			v := value{null: size < 0}
			if size > 0 {
				v.text = raw[at : at+size]
				at += size
			}
			if !yield(n, v) {
				return
			}
		}
	}
}

func int32At(s string, at int) int32 {
	return int32(s[at])<<24 | int32(s[at+1])<<16 | int32(s[at+2])<<8 | int32(s[at+3])
}

// textsOf returns the elements of a text[] in binary form none of which is null.
func textsOf(raw string) []string {
	if len(raw) < 20 {
		return nil
	}
	list := make([]string, 0, int32At(raw, 12))
	for _, v := range elementsOf(raw) {
		list = append(list, v.text)
	}
	return list
}

// imageRow is an image as pgx reads rows.
type imageRow struct {
	image Image
	types *pgtype.Map
}

func (r imageRow) FieldDescriptions() []pgconn.FieldDescription {
	list := make([]pgconn.FieldDescription, len(r.image.shape.columns))
	for n, name := range r.image.shape.columns {
		list[n] = pgconn.FieldDescription{Name: name, DataTypeOID: r.image.shape.types[n], Format: pgtype.TextFormatCode}
	}
	return list
}

func (r imageRow) RawValues() [][]byte {
	list := make([][]byte, len(r.image.shape.columns))
	for n, v := range r.image.values() {
		if !v.null {
			list[n] = append([]byte{}, v.text...)
		}
	}
	return list
}

func (r imageRow) Scan(dest ...any) error {
	raw := r.RawValues()
	if len(dest) != len(raw) {
		return fmt.Errorf("gnomon: an image with %d columns is scanned into %d values", len(raw), len(dest))
	}
	for n, d := range dest {
		if d == nil {
			continue
		}
		if err := r.types.Scan(r.image.shape.types[n], pgtype.TextFormatCode, raw[n], d); err != nil {
			return fmt.Errorf("gnomon: column %s: %w", r.image.shape.columns[n], err)
		}
	}
	return nil
}

func (r imageRow) Values() ([]any, error) {
	raw := r.RawValues()
	list := make([]any, len(raw))
	for n := range raw {
		if raw[n] == nil {
			continue
		}
		if t, ok := r.types.TypeForOID(r.image.shape.types[n]); ok {
			v, err := t.Codec.DecodeValue(r.types, t.OID, pgtype.TextFormatCode, raw[n])
			if err != nil {
				return nil, fmt.Errorf("gnomon: column %s: %w", r.image.shape.columns[n], err)
			}
			list[n] = v
		} else {
			list[n] = string(raw[n])
		}
	}
	return list, nil
}
