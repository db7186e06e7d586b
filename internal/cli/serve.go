package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/store"
	"github.com/weirbench/weir/internal/web"
)

func newServeCmd(app *App) *cobra.Command {
	var db, listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Show a store as a web page, with an API",
		Long: `Serve shows the results of a store: the same frontier, hit rates and table as a report, with
filters, a page for every run and the API under /api. It only reads, and it answers to whoever
can reach the address: keep it on the loopback or behind something that asks who is there.`,
		Example: `  weir serve --db weir.db
  weir serve --db weir.db --listen 127.0.0.1:9000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := store.OpenExisting(db)
			if err != nil {
				return usage(err)
			}
			defer s.Close()
			ln, err := net.Listen("tcp", listen)
			if err != nil {
				return usage(err)
			}
			url := "http://" + ln.Addr().String() + "/"
			if app.JSON {
				err = app.printJSON(map[string]string{"url": url, "db": db})
			} else {
				_, err = fmt.Fprintf(app.Out, "%s shows %s (Ctrl-C ends it)\n", url, db)
			}
			if err != nil {
				return err
			}
			return serveUntil(cmd.Context(), ln, web.NewHandler(s))
		},
	}
	cmd.Flags().StringVar(&db, "db", "weir.db", "the store: a `FILE` or postgres://user@host/database")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8017", "`ADDRESS` to listen on")
	return cmd
}

// serveUntil serves until the context ends and then gives open requests five seconds.
func serveUntil(ctx context.Context, ln net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	return err
}
