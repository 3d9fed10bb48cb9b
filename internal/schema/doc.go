// Package schema installs and upgrades the database objects of one of this
// module's packages.
//
// A package keeps its objects in a schema of its own and describes how to make
// them in numbered steps, embedded files named sql/001_tables.sql,
// sql/002_functions.sql and so on:
//
//	//go:embed sql/0*.sql
//	var steps embed.FS
//
//	var objects = schema.Package{Name: "ledger", Schema: "ledger", Steps: steps}
//
// The number of its last step is the package's version. A step that has been
// released is never edited: what it should have done, a later one does. Which
// steps a database has is recorded in the table annals_step of the schema. There
// is no checksum: it could only tell that somebody broke that rule, and to refuse
// an upgrade would help nobody then.
//
// # One statement
//
// All of it is a single DO statement, the text that [SQL] returns and that
// [Install] executes. So it takes effect as a whole or not at all, whether it
// comes from Install, from psql -f or from another migration tool, inside a
// transaction or not. Applying it again is harmless: it leaves out the steps that
// are there. Another tool must pass it on uncut, though it holds semicolons.
//
// # Writing steps
//
// A step runs as the installing role, which becomes the owner, with
// search_path set to the package's schema and pg_temp, so unqualified names are
// created there; check_function_bodies is on and a NOTICE is not reported. These
// settings are as before when the statement ends, also in a caller's
// transaction. A step can't contain transaction control, CREATE INDEX
// CONCURRENTLY or COPY FROM STDIN. Every object must carry a comment;
// [Uncommented] lists those without.
//
// # Concurrency
//
// Installers of one schema wait for each other (an advisory lock held to the
// end of the transaction). Users of the objects don't wait long for an upgrade:
// a step that needs a lock which somebody holds gives up after a second, so that
// the queue behind it can move, and outside a caller's transaction the whole is
// tried again, ten times in all. Inside a caller's transaction that is
// SQLSTATE 55P03 (lock_not_available), and 40001 if the transaction is
// REPEATABLE READ or SERIALIZABLE and another installer was faster. A
// statement_timeout applies to the statement as a whole.
package schema
