package gnomon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// listen returns a channel that says when changes were announced (the heartbeat does), as far as they are heard of, and what ends it.
func (f *Feed) listen(ctx context.Context, pool *pgxpool.Pool) (wake <-chan struct{}, stop func()) {
	notices := make(chan struct{}, 1)
	if f.o.PollOnly || f.o.Drain {
		return notices, func() {}
	}
	connect := f.o.Listen
	if connect == nil {
		connect = func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.ConnectConfig(ctx, pool.Config().ConnConfig.Copy())
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			hear(ctx, connect, notices)
			// Polling goes on meanwhile.
			select {
			case <-ctx.Done():
			case <-time.After(max(f.o.Poll, time.Second)):
			}
		}
	}()
	return notices, func() {
		cancel()
		<-ended
	}
}

// hear listens until the connection or the context ends.
func hear(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), notices chan<- struct{}) {
	conn, err := connect(ctx)
	if err != nil {
		return
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "listen gnomon_feed"); err != nil {
		return
	}
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return
		}
		select {
		case notices <- struct{}{}:
		default: // it will look anyway
		}
	}
}
