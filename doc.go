// Package annals is the front page of a module that gives an application more out of the PostgreSQL it already runs, with no server
// extension and no superuser. Each package installs its own database objects and is used through a typed API on pgx v5, or by
// plain SQL from any language:
//
//   - [github.com/annals-db/annals/ledger]: a double-entry ledger: accounts, transfers, holds, running balances.
//   - [github.com/annals-db/annals/gnomon]: version control for rows: any SQL on tables as they were, diffs, a change feed without gaps.
//   - [github.com/annals-db/annals/volvra]: the history of tables: who changed what, selective undo, tamper evidence.
//   - [github.com/annals-db/annals/automerge]: Automerge documents: merged without loading them, read as JSON now or as of any moment, synced.
//
// This package itself holds no code. Start with
//
//	go run ./examples/quickstart
//
// # Dependencies
//
// Few, each for a reason:
//
//   - github.com/jackc/pgx/v5: the driver that the API is built on.
//   - github.com/shopspring/decimal: exact amounts; money is never a float.
//   - github.com/google/uuid: identities of version 7.
//   - github.com/automerge/automerge-go: Automerge's own code, for editing documents in Go (cgo; nothing else needs it).
//   - github.com/coder/websocket: WebSockets to browsers, small and kept up by those who use it, with contexts (examples/notes only).
//   - github.com/HdrHistogram/hdrhistogram-go: latency percentiles (benchmarks only).
//   - pgregory.net/rapid: property tests (tests only).
//   - honnef.co/go/tools: staticcheck (a tool, linked into nothing).
//
// Their licences are MIT, ISC and BSD.
package annals
