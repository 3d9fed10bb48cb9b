// Package ibench is the Insert Benchmark for PostgreSQL, and what tracking and covering of tables cost in it.
//
// Each client has a table of its own, which a stream of rows goes through. The steps are
//
//	l.i0     loads the table in the order of its key, 100 rows a transaction
//	l.x      builds three more indexes, of three columns each; each is built twice
//	l.i1     inserts 50 rows a transaction, while another connection deletes the oldest at the same rate
//	l.i2     the same with 5 rows a transaction
//	settle   vacuums, makes a checkpoint where that is allowed, and waits
//	qr100    range queries at full speed, while 100 rows a second are inserted and as many deleted; qr500, qr1000
//	qp100    point queries, likewise; qp500, qp1000
//
// A range query reads ten rows of one of the three indexes, chosen at random, and nothing but the index; a point query reads ten random
// keys. The transactions beside the queries have 50 rows, or as many as come in a tenth of a second. In mode [Compatible] statements are text,
// in mode [Lean] they are prepared, rows arrive as arrays, and l.i0 doesn't wait for the answer to a transaction before it sends the next one.
//
// # Sides
//
// What is compared is a [Side]: a server, a variant (plain, gnomon: tracked, volvra: covered) and a mode. Each has a database of its own. All sides take turns
// in one run, slice by slice, in an order that rotates, and each slice is compared with the first side's slice of the same round. They get the same rows: every client has a
// stream of its own, whose seed the report names. So what slows down the machine for longer than a slice slows down all sides.
//
// An interval holds 95 % of the medians that a bootstrap of the slices gives. Where it holds 1 no difference is shown. Below 0.95 and above
// 1.05 a ratio is marked.
//
// # What is measured
//
// Operations at full speed are measured from their start. Insertions and deletions beside queries come at times that are fixed beforehand, and their
// latency counts from then, so a server that stalls can't hide it by receiving less. Where less than 95 % of them are done in the step's time, the step has failed.
//
// The server's CPU is that of the backends which work for the side, by what they do, apart from the client's; both and context switches need a server on the
// same machine. WAL is what was written during the side's slices, background work included. Page images are counted, not weighed: PostgreSQL before 19 doesn't tell
// their bytes.
//
// After each step the rows that are there are counted and their oldest and newest keys compared with what was inserted and deleted. In variants with a history, the
// table as it was after the step before is read out of the history and compared with what it was then.
package ibench
