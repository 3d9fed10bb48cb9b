// Package catalog tells what a table is: its columns, keys, constraints,
// triggers, policies and relatives, as PostgreSQL's catalogs have them.
//
//	table, err := catalog.Describe(ctx, db, `"Sch ema".book`)
//	for _, column := range table.Columns {
//		fmt.Println(column.Name, column.Type)
//	}
//
// A description is read by one statement, so its parts fit together. It is what
// the caller's transaction sees, its own uncommitted changes included.
//
// Names are plain, not quoted: pass them to pgx.Identifier. Types, expressions
// and definitions are SQL text in which everything outside pg_catalog is
// qualified with its schema, whatever the caller's search_path is, so that text
// can be used in generated code.
//
// The catalogs can be read by everybody. No right on the table is needed, only
// USAGE on its schema if it is asked for by name.
package catalog
