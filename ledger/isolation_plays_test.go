package ledger_test

// A play is what sessions do, one step a line: the session, what it does, and after the arrow what comes of it. Sessions that have
// said begin are in a transaction of their own, the others let each call be one, which the library repeats. "waits" is a step that
// another session holds up; a later line of that session without a step says what came of it. Where the levels differ, "limit/40001"
// is the refusal at READ COMMITTED, then the SQLSTATE at REPEATABLE READ and SERIALIZABLE.
//
// The accounts a and b have 100 and may not go below zero; c and d may. Names after # are ids.
var plays = []struct{ name, steps string }{
	{"the last money goes out once", `
		one: begin
		one: transfer a b 60 -> ok
		two: begin
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit/40001
		two: rollback
		all: assert a 40 -> ok`},
	{"money that was given back goes out after all", `
		one: begin
		one: transfer a b 60 -> ok
		two: begin
		two: transfer a b 60 -> waits
		one: rollback
		two: -> ok
		two: commit
		all: assert a 40 -> ok`},
	{"a call by itself sees what the other left", `
		one: begin
		one: transfer a b 60 -> ok
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit
		all: assert a 40 -> ok`},
	{"crossing transfers", `
		one: begin
		one: transfer a b 10 -> ok
		two: transfer b a 20 -> waits
		one: transfer b a 5 -> ok
		one: commit
		two: -> ok
		all: assert a 115 -> ok`},
	{"the same id twice", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer a b 10 #x -> waits
		one: commit
		two: -> replayed
		all: assert a 90 -> ok`},
	{"the same id twice in transactions", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: begin
		two: transfer a b 10 #x -> waits
		one: commit
		two: -> replayed/40001
		two: rollback
		all: assert a 90 -> ok`},
	{"the same id after a rollback", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer a b 10 #x -> waits
		one: rollback
		two: -> ok
		all: assert a 90 -> ok`},
	{"a single transfer, then its id in a batch", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: batch a b 10 #x a b 1 #y a b 2 #z -> waits
		one: commit
		two: -> replayed
		all: assert a 87 -> ok`},
	{"a batch, then an id of it alone", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: transfer a b 1 #y -> waits
		one: commit
		two: -> replayed
		all: assert a 87 -> ok`},
	{"a batch, then an id of it alone in a transaction", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: begin
		two: transfer a b 1 #y -> waits
		one: commit
		two: -> replayed/40001
		two: rollback
		all: assert a 87 -> ok`},
	{"a single transfer, then its id in a batch in a transaction", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: begin
		two: batch a b 10 #x a b 1 #y a b 2 #z -> waits
		one: commit
		two: -> replayed/40001
		two: rollback
		all: assert a 90 -> ok`},
	{"the same batch twice", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: batch a b 10 #x a b 1 #y a b 2 #z -> waits
		one: commit
		two: -> replayed
		all: assert a 87 -> ok`},
	{"batches that share one id, on other accounts", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: batch c d 10 #u c d 1 #v c d 1 #y -> waits
		one: commit
		two: -> reused
		all: assert a 87 -> ok
		all: assert c -200 -> ok`},
	{"the same pair twice", `
		one: begin
		one: batch a b 10 #x a b 1 #y -> ok
		two: batch a b 10 #x a b 1 #y -> waits
		one: commit
		two: -> replayed
		all: assert a 89 -> ok`},
	{"a pair, then a single transfer of it", `
		one: begin
		one: batch a b 10 #x a b 1 #y -> ok
		two: transfer a b 1 #y -> waits
		one: commit
		two: -> replayed
		all: assert a 89 -> ok`},
	{"a pair, then a batch with one of it", `
		one: begin
		one: batch a b 10 #x a b 1 #y -> ok
		two: each a b 5 #u a b 1 #y a b 90 #v -> waits
		one: commit
		two: -> ok replayed limit
		all: assert a 84 -> ok`},
	{"the same id with another amount", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer a b 11 #x -> waits
		one: commit
		two: -> reused
		all: assert a 90 -> ok`},
	{"the same id on other accounts", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer c d 10 #x -> waits
		one: commit
		two: -> reused
		all: assert c -200 -> ok`},
	{"the same journal entry twice", `
		one: begin
		one: journal a b 10 #x -> ok
		two: journal a b 10 #x -> waits
		one: commit
		two: -> replayed
		all: assert a 90 -> ok`},
	{"a journal entry and a transfer for the last money", `
		one: begin
		one: journal a b 60 -> ok
		two: transfer a b 60 -> waits
		three: journal a c 60 -> waits
		one: commit
		two: -> limit
		three: -> limit
		all: assert a 40 -> ok`},
	{"a hold, then a transfer of the last money", `
		one: begin
		one: hold a b 60 #h -> ok
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit
		all: assert a 100 -> ok`},
	{"a transfer, then a hold of the last money", `
		one: begin
		one: transfer a b 60 -> ok
		two: begin
		two: hold a b 60 #h -> waits
		one: commit
		two: -> limit/40001
		two: rollback`},
	{"the same hold twice", `
		one: begin
		one: hold a b 60 #h -> ok
		two: hold a b 60 #h -> waits
		one: commit
		two: -> replayed
		all: transfer a b 40 -> ok`},
	{"a hold is posted, then voided", `
		all: hold a b 60 #h -> ok
		one: begin
		one: post #h 60 -> ok
		two: void #h -> waits
		one: commit
		two: -> settled
		all: assert a 40 -> ok`},
	{"a hold is voided, then posted", `
		all: hold a b 60 #h -> ok
		one: begin
		one: void #h -> ok
		two: begin
		two: post #h 60 -> waits
		one: commit
		two: -> settled/40001
		two: rollback
		all: assert a 100 -> ok`},
	{"a hold is posted, undone, then voided", `
		all: hold a b 60 #h -> ok
		one: begin
		one: post #h 60 -> ok
		two: void #h -> waits
		one: rollback
		two: -> ok
		all: transfer a b 100 -> ok`},
	{"a hold is posted twice", `
		all: hold a b 60 #h -> ok
		one: begin
		one: post #h 50 -> ok
		two: post #h 50 -> waits
		three: post #h 60 -> waits
		one: commit
		two: -> replayed
		three: -> settled
		all: assert a 50 -> ok`},
	{"an expired hold whose other account is busy stays for next time", `
		all: hold a b 60 #h soon -> ok
		all: hold a c 20 #i soon -> ok
		all: sleep -> ok
		one: begin
		one: assert b 100 -> ok
		two: transfer a d 60 -> limit
		two: transfer a d 40 -> ok
		one: commit
		two: transfer a d 60 -> ok
		all: assert a 0 -> ok`},
	{"two that need expired holds of each other", `
		all: hold a b 60 #h soon -> ok
		all: hold b a 60 #i soon -> ok
		all: sleep -> ok
		one: begin
		one: transfer a c 50 -> ok
		two: begin
		two: transfer b d 50 -> waits
		one: commit
		two: -> ok/40001
		two: commit
		all: transfer b a 1 -> ok`},
	{"housekeeping waits for nobody", `
		all: hold a b 60 #h soon -> ok
		all: hold c d 60 #i soon -> ok
		all: sleep -> ok
		one: begin
		one: assert b 100 -> ok
		two: expire -> ok
		three: void #i -> replayed
		one: void #h -> replayed
		one: commit`},
	{"a transfer, then its account is closed", `
		one: begin
		one: transfer a b 10 -> ok
		two: close b -> waits
		one: commit
		two: -> ok
		two: transfer a b 10 -> closed
		all: assert b 110 -> ok`},
	{"an account is closed under a transfer", `
		one: begin
		one: close b -> ok
		two: begin
		two: transfer a b 10 -> waits
		three: batch a c 1 #x a b 1 #y c b 1 #z -> waits
		one: commit
		two: -> closed/40001
		two: rollback
		three: -> closed
		all: assert a 100 -> ok`},
	{"a hold, then its account is closed", `
		one: begin
		one: hold a b 10 #h -> ok
		two: close b -> waits
		one: commit
		two: -> open holds`},
	{"a period is closed after a transfer in it", `
		one: begin
		one: transfer a b 10 past -> ok
		two: period -> waits
		three: transfer a b 10 past -> waits
		one: commit
		two: -> ok
		three: -> period
		all: assert a 90 -> ok
		all: reopen -> ok`},
	{"a period is closed before a transfer in it", `
		two: begin
		two: read a
		three: begin
		three: read a
		four: begin
		four: read a
		five: begin
		five: read a
		one: begin
		one: period -> ok
		two: transfer a b 10 past -> waits
		three: batch a b 1 #x past a b 1 #y a b 1 #z -> waits
		four: journal a b 10 past -> waits
		five: hold c d 10 #h past -> waits
		one: commit
		two: -> period/40001
		three: -> period/40001
		four: -> period/40001
		five: -> period/40001
		two: rollback
		three: rollback
		four: rollback
		five: rollback
		all: assert a 100 -> ok
		all: reopen -> ok`},
	{"an old snapshot does not see a closed period", `
		two: begin
		two: read a
		three: begin
		three: read a
		one: period -> ok
		two: transfer a b 10 past -> period/40001
		two: rollback
		three: batch c d 1 #x past c d 1 #y -> period/40001
		three: rollback
		all: assert a 100 -> ok
		all: reopen -> ok`},
	{"a limit is set under a transfer", `
		one: begin
		one: limits a 50 -> ok
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit
		two: transfer a b 50 -> ok`},
	{"a transfer, then a limit above what is left", `
		one: begin
		one: transfer a b 60 -> ok
		two: limits a 50 -> waits
		one: commit
		two: -> ok
		two: transfer a b 1 -> limit
		two: transfer b a 1 -> ok`},
	{"a transfer is reversed twice", `
		all: transfer a b 10 #x -> ok
		one: begin
		one: reverse #x #r -> ok
		two: reverse #x #s -> waits
		three: reverse #x #r -> waits
		one: commit
		two: -> reversed
		three: -> replayed
		all: assert a 100 -> ok`},
	{"a journal entry is reversed twice", `
		all: journal a b 10 #x -> ok
		one: begin
		one: unbook #x #r -> ok
		two: unbook #x #s -> waits
		three: unbook #x #r -> waits
		one: commit
		two: -> reversed
		three: -> replayed
		all: assert a 100 -> ok`},
	{"a transfer on condition of a version", `
		one: begin
		one: transfer a b 10 -> ok
		two: begin
		two: if a b 10 2 -> waits
		one: commit
		two: -> ok/40001
		two: commit
		all: if a b 10 1 -> version`},
	{"a transfer on condition of a version that passed", `
		one: begin
		one: transfer a b 10 -> ok
		two: if a b 10 1 -> waits
		one: commit
		two: -> version
		all: assert a 90 -> ok`},
	{"an asserted balance stays", `
		one: begin
		one: assert a 100 -> ok
		two: transfer a b 10 -> waits
		three: transfer b a 10 -> waits
		one: assert a 100 -> ok
		one: assert a 99 -> assertion
		one: commit
		two: -> ok
		three: -> ok
		all: assert a 100 -> ok`},
	{"as much as is available, after another", `
		one: begin
		one: transfer a b 60 -> ok
		two: available a b 1000 #x -> waits
		one: commit
		two: -> ok
		two: available a b 1000 #x -> replayed
		all: assert a 0 -> ok`},
}
