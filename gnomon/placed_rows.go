package gnomon

import (
	"github.com/jackc/pgx/v5"
)

// placedRows are rows of the past, or of a statement on a branch.
type placedRows struct {
	pgx.Rows
	refused      func(error) error
	end          func() error // what is to be ended with them, if anything is
	peeked, more bool         // the first row was looked for already
	failed       error        // of the end
}

// Next moves to the next row.
func (r *placedRows) Next() bool {
	if r.peeked {
		r.peeked = false
	} else {
		r.more = r.Rows.Next()
	}
	if !r.more {
		r.Close()
	}
	return r.more
}

// Close ends the reading, and what is the statement's own: the session is put back as it was, or the transaction committed. What goes wrong in
// reading the rows changes nothing of what the server has done by then.
func (r *placedRows) Close() {
	r.Rows.Close()
	if r.end == nil {
		return
	}
	end := r.end
	r.end = nil
	if err := end(); r.Rows.Err() == nil {
		r.failed = err
	}
}

// Err returns what went wrong.
func (r *placedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return r.refused(err)
	}
	return r.failed
}

// Scan reads the current row.
func (r *placedRows) Scan(dest ...any) error {
	if len(dest) == 1 {
		if scanner, is := dest[0].(pgx.RowScanner); is {
			return scanner.ScanRow(r)
		}
	}
	if err := r.Rows.Scan(dest...); err != nil {
		r.Close()
		return r.refused(err)
	}
	return nil
}

// placedRow is the row of a query of which one is wanted, or why there is none.
type placedRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row, or says pgx.ErrNoRows.
func (r placedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
