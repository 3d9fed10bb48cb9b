package ledger_test

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/bench"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

//go:embed testdata/floor.sql
var floorSQL string

const benchAccounts = 1000

// benchBooks makes a database with the ledger, accounts without limits, and the floor beside it.
func benchBooks(b *testing.B, server *pgserver.Server, accounts int) (conn string, ids []ledger.AccountID) {
	b.Helper()
	conn = bench.Database(b, server)
	pool := must[*pgxpool.Pool](b)(pgxpool.New(b.Context(), conn))
	defer pool.Close()
	ok(b, ledger.Install(b.Context(), pool))
	books := ledger.New(pool)
	ok(b, books.CreateAsset(b.Context(), "EUR", 2))
	for i := range accounts {
		ids = append(ids, openWith(b, books, ledger.AccountParams{Name: fmt.Sprint("account ", i), Asset: "EUR"}))
	}
	_, err := pool.Exec(b.Context(), floorSQL)
	ok(b, err)
	return conn, ids
}

// random returns a transfer between two accounts, 0.01 to 100.00.
func random(r *rand.Rand, ids []ledger.AccountID) ledger.TransferParams {
	from := r.IntN(len(ids))
	to := (from + 1 + r.IntN(len(ids)-1)) % len(ids)
	return ledger.TransferParams{ID: ledger.NewTransferID(), From: ids[from], To: ids[to], Amount: decimal.New(1+r.Int64N(10_000), -2)}
}

// floorOp calls the baseline: through the same driver, into a function that only writes. It locks in the order that it is given, so it
// is given the lower account first.
func floorOp(db ledger.DB, next func() ledger.TransferParams) bench.Op {
	const sql = "select (r).id, (r).replayed, (r).from_version, (r).to_version, (r).from_balance, (r).to_balance, (r).created_at from (select floor.transfer($1, $2, $3, $4, $5, $6) as r offset 0) q"
	return func(ctx context.Context) error {
		t := next()
		if bytes.Compare(t.From[:], t.To[:]) > 0 {
			t.From, t.To = t.To, t.From
		}
		amount := pgtype.Numeric{Int: t.Amount.Coefficient(), Exp: t.Amount.Exponent(), Valid: true}
		var p ledger.Posted
		var fromBalance, toBalance pgtype.Numeric
		return db.QueryRow(ctx, sql, pgtype.UUID{Bytes: t.From, Valid: true}, pgtype.UUID{Bytes: t.To, Valid: true}, amount, pgtype.UUID{Bytes: t.ID, Valid: true}, nil, nil).
			Scan(&p.ID, &p.Replayed, &p.FromVersion, &p.ToVersion, &fromBalance, &toBalance, &p.CreatedAt)
	}
}

func singleOp(db ledger.DB, next func() ledger.TransferParams) bench.Op {
	books := ledger.New(db)
	return func(ctx context.Context) error {
		_, err := books.Transfer(ctx, next())
		return err
	}
}

// load is what transfers a benchmark makes.
type load func(r *rand.Rand, ids []ledger.AccountID) ledger.TransferParams

// side gives each client a connection and transfers of its own.
func side(name string, ids []ledger.AccountID, load load, op func(ledger.DB, func() ledger.TransferParams) bench.Op) bench.Side {
	return bench.Side{Name: name, Open: func(_ context.Context, conn *pgx.Conn, client int) (bench.Op, error) {
		r := rand.New(rand.NewPCG(1, uint64(client)))
		return op(conn, func() ledger.TransferParams { return load(r, ids) }), nil
	}}
}

func floor(ids []ledger.AccountID, load load) bench.Side { return side("floor", ids, load, floorOp) }

func single(ids []ledger.AccountID, load load) bench.Side {
	return side("single", ids, load, singleOp)
}

// batchOf books n random transfers an operation.
func batchOf(n int, ids []ledger.AccountID) bench.Side {
	return bench.Side{Name: fmt.Sprint("batch", n), Units: n, Open: func(_ context.Context, conn *pgx.Conn, client int) (bench.Op, error) {
		books, r := ledger.New(conn), rand.New(rand.NewPCG(3, uint64(client)))
		return func(ctx context.Context) error {
			batch := make([]ledger.TransferParams, n)
			for i := range batch {
				batch[i] = random(r, ids)
			}
			_, err := books.Transfers(ctx, batch)
			return err
		}, nil
	}}
}

// retry sends a transfer that was booked before.
func retry(ids []ledger.AccountID) bench.Side {
	return bench.Side{Name: "retry", Open: func(ctx context.Context, conn *pgx.Conn, client int) (bench.Op, error) {
		books, r := ledger.New(conn), rand.New(rand.NewPCG(4, uint64(client)))
		booked := make([]ledger.TransferParams, 1000)
		for i := range booked {
			booked[i] = random(r, ids)
		}
		if _, err := books.Transfers(ctx, booked); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			p, err := books.Transfer(ctx, booked[r.IntN(len(booked))])
			if err == nil && !p.Replayed {
				return fmt.Errorf("transfer %s was booked twice", p.ID)
			}
			return err
		}, nil
	}}
}

// verified fails the benchmark unless the books are whole after it.
func verified(conn string) func(context.Context, map[string]int64) error {
	return func(ctx context.Context, _ map[string]int64) error {
		c, err := pgx.Connect(ctx, conn)
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		for problem, err := range ledger.New(c).Verify(ctx, ledger.VerifyOptions{}) {
			if err != nil {
				return err
			}
			return fmt.Errorf("after the run: %+v", problem)
		}
		return nil
	}
}

// measure runs one side against the floor, and against single where that is another one.
func measure(b *testing.B, conn string, clients int, ids []ledger.AccountID, subject bench.Side) {
	b.Helper()
	r := bench.Run{
		Conn: conn, Clients: clients, Unit: "transfers/s", Baseline: "floor", Sides: []bench.Side{subject, floor(ids, random)}, Check: verified(conn),
	}
	if subject.Name != "single" {
		r.Sides = append(r.Sides, single(ids, random))
		r.Compare = []bench.Ratio{{Metric: "vs-single", Side: subject.Name, Over: "single"}}
	}
	r.Benchmark(b)
}

func BenchmarkTransfer(b *testing.B) {
	server := bench.Server(b, bench.Volatile)
	for _, name := range []string{"single", "batch2", "batch10", "batch100", "retry"} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", name, clients), func(b *testing.B) {
				conn, ids := benchBooks(b, server, benchAccounts)
				measure(b, conn, clients, ids, sideNamed(name, ids))
			})
		}
	}
}

func sideNamed(name string, ids []ledger.AccountID) bench.Side {
	switch name {
	case "single":
		return single(ids, random)
	case "retry":
		return retry(ids)
	}
	var n int
	if _, err := fmt.Sscanf(name, "batch%d", &n); err != nil {
		panic(err)
	}
	return batchOf(n, ids)
}

func BenchmarkTransferDurable(b *testing.B) {
	server := bench.Server(b, bench.Durable)
	for _, name := range []string{"single", "batch10", "batch100"} {
		b.Run(name+"/clients=8", func(b *testing.B) {
			conn, ids := benchBooks(b, server, benchAccounts)
			measure(b, conn, 8, ids, sideNamed(name, ids))
		})
	}
}

// BenchmarkHotAccount has every transfer on one account.
func BenchmarkHotAccount(b *testing.B) {
	server := bench.Server(b, bench.Volatile)
	b.Run("clients=8", func(b *testing.B) {
		conn, ids := benchBooks(b, server, benchAccounts)
		bench.Run{
			Conn: conn, Clients: 8, Unit: "transfers/s", Baseline: "floor", Check: verified(conn),
			Sides: []bench.Side{single(ids, hot), floor(ids, hot)},
		}.Benchmark(b)
	})
}

// hot pays from a random account into one that all share, which is locked first as often as last.
func hot(r *rand.Rand, ids []ledger.AccountID) ledger.TransferParams {
	middle := len(ids) / 2
	t := random(r, ids)
	for t.From == ids[middle] {
		t = random(r, ids)
	}
	t.To = ids[middle]
	return t
}

// coalesced has callers that share a batcher; direct ones, and those of the floor, a pool of as many connections as do best.
func BenchmarkCoalesced(b *testing.B) {
	const callers, connections = 64, 8
	server := bench.Server(b, bench.Volatile)
	for _, w := range []struct {
		name string
		load load
	}{{"spread", random}, {"hot", hot}} {
		b.Run(fmt.Sprintf("%s/callers=%d", w.name, callers), func(b *testing.B) {
			conn, ids := benchBooks(b, server, benchAccounts)
			next := func(client int) func() ledger.TransferParams {
				r := rand.New(rand.NewPCG(1, uint64(client)))
				return func() ledger.TransferParams { return w.load(r, ids) }
			}
			share := func(name string, op func(ledger.DB, func() ledger.TransferParams) bench.Op) bench.Side {
				return bench.Side{Name: name, PoolSize: connections, Share: func(_ context.Context, pool *pgxpool.Pool) (func(int) bench.Op, error) {
					return func(client int) bench.Op { return op(pool, next(client)) }, nil
				}}
			}
			coalesced := bench.Side{Name: "coalesced", PoolSize: connections, Share: func(ctx context.Context, pool *pgxpool.Pool) (func(int) bench.Op, error) {
				batcher := ledger.NewBatcher(pool, ledger.BatcherOptions{})
				context.AfterFunc(ctx, batcher.Close)
				return func(client int) bench.Op {
					next := next(client)
					return func(ctx context.Context) error {
						_, err := batcher.Transfer(ctx, next())
						return err
					}
				}, nil
			}}
			bench.Run{
				Conn: conn, Clients: callers, Unit: "transfers/s", Baseline: "floor", Check: verified(conn),
				Sides:   []bench.Side{coalesced, share("floor", floorOp), share("direct", singleOp)},
				Compare: []bench.Ratio{{Metric: "vs-direct", Side: "coalesced", Over: "direct"}},
			}.Benchmark(b)
		})
	}
}

// BenchmarkStorage books 10,000 transfers and weighs them.
func BenchmarkStorage(b *testing.B) {
	server := bench.Server(b, bench.Volatile)
	conn, ids := benchBooks(b, server, benchAccounts)
	pool := must[*pgxpool.Pool](b)(pgxpool.New(b.Context(), conn))
	defer pool.Close()
	const transfers = 10_000
	for b.Loop() {
		size := storage(b, pool)
		r := rand.New(rand.NewPCG(1, 1))
		books := ledger.New(pool)
		for range transfers {
			if _, err := books.Transfer(b.Context(), random(r, ids)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(storage(b, pool)-size)/transfers, "B/transfer")
	}
}

func storage(b *testing.B, db ledger.DB) (bytes int64) {
	b.Helper()
	ok(b, db.QueryRow(b.Context(), "select pg_total_relation_size('ledger.transfer')").Scan(&bytes))
	return bytes
}
