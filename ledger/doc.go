// Package ledger is a double-entry ledger in the application's own PostgreSQL: accounts, transfers, running balances.
//
// Five minutes: install it, register an asset, open accounts, move money.
//
//	err := ledger.Install(ctx, pool)
//	books := ledger.New(pool)
//	err = books.CreateAsset(ctx, "EUR", 2)
//	cash, err := books.OpenAccount(ctx, ledger.AccountParams{Name: "Cash", Code: "assets:cash", Asset: "EUR"})
//	sales, err := books.OpenAccount(ctx, ledger.AccountParams{Name: "Sales", Code: "income:sales", Asset: "EUR", NormalSide: ledger.Credit})
//	posted, err := books.Transfer(ctx, ledger.TransferParams{ID: ledger.NewTransferID(), From: sales, To: cash, Amount: decimal.RequireFromString("12.50")})
//
// # Signs
//
// A balance is debits minus credits: what came in minus what went out. A transfer takes its amount out of From (its credit) and puts it into
// To (its debit), so all balances of an asset always sum to zero. Accounts of which people say that they "have" something while their
// balance is negative (income, liabilities, equity) have [Credit] as their normal side.
//
// # What is promised
//
//   - All or nothing: a call books everything that it was asked for, or nothing and returns an [*Error] that says why.
//   - Retries are safe: the same id with the same content returns the first result. Make the id before the first attempt.
//   - Running balances: each account's entries are numbered 1, 2, 3, … and carry the balance before and after, with no gap.
//   - Exact amounts: decimals with a fixed number of places per asset, never floating point, up to 10^60.
//   - Append-only: what is booked is never changed or deleted; mistakes are reversed ([Ledger.ReverseTransfer]).
//   - No deadlocks among calls: all lock accounts in one order. Several calls in one transaction of the caller's lock in the order in which
//     they are made; lock all accounts first (ledger.lock_accounts in SQL), or use one batch or journal entry.
//   - Correct at READ COMMITTED, REPEATABLE READ and SERIALIZABLE. At the latter two a transaction may have to be repeated: [Retry].
//
// # Doing more
//
// Many transfers at once are a batch ([Ledger.Transfers]); many goroutines with one each share a [Batcher]. More than two legs, or two
// assets, are a journal entry ([Ledger.PostJournal], [Ledger.Exchange]). Money can be set aside first ([Ledger.Hold], [Ledger.PostHold],
// [Ledger.VoidHold]), moved as far as it goes ([Ledger.TransferAvailable]), or only if nobody else was faster ([Ledger.TransferIf]).
//
// Projections follow the books without gaps or duplicates: [Ledger.Changes], [Ledger.Follow].
//
// Every call is a function in the schema ledger too, with the same rules, for psql and other languages; the SQLSTATEs stand beside the
// errors of this package. Reading is SQL on views, and iterators here.
//
// # In the database
//
// One row of ledger.transfer holds both of its entries, one row of ledger.balance what an account holds now: that is all a transfer
// writes. Functions that book are SECURITY DEFINER, so nobody needs write privileges on the tables, and [Grant] gives none.
package ledger
