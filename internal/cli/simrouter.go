package cli

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

func newSimRouterCmd(app *App) *cobra.Command {
	var o simhttp.RouterOptions
	var addr, metricsAddr string
	var prefill []string
	cmd := &cobra.Command{
		Use:   "router",
		Short: "Spread requests over simulated engines, disaggregated ones too",
		Long: `Forwards requests to one of several workers, or, with prefill and decode servers, to one of
each with a room in which they meet. Policies: ` + strings.Join(sim.RouterPolicies, ", ") + `; a session is what
X-SMG-Routing-Key, X-Session-ID or X-Correlation-ID names, else prompts that begin alike.`,
		Example: `  weir sim router --worker http://127.0.0.1:30001 --worker http://127.0.0.1:30002 --policy cache_aware
  weir sim router --prefill http://127.0.0.1:30001,8998 --decode http://127.0.0.1:30002`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range prefill {
				u, port, ok := strings.Cut(p, ",")
				n, err := strconv.Atoi(port)
				if !ok || err != nil {
					return usagef("--prefill %q is not URL,BOOTSTRAP_PORT", p)
				}
				o.Prefill = append(o.Prefill, simhttp.PrefillPeer{URL: u, Port: n})
			}
			r, err := simhttp.NewRouter(o)
			if err != nil {
				return usage(err)
			}
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			metrics := ""
			if metricsAddr != "" {
				m, err := net.Listen("tcp", metricsAddr)
				if err != nil {
					l.Close()
					return err
				}
				h := &http.Server{Handler: r.Metrics(), ReadHeaderTimeout: time.Minute}
				defer h.Close()
				go h.Serve(m)
				metrics = "http://" + m.Addr().String()
			}
			if app.JSON {
				err = app.printJSON(struct {
					URL     string `json:"url"`
					Metrics string `json:"metrics,omitempty"`
				}{"http://" + l.Addr().String(), metrics})
			} else {
				_, err = fmt.Fprintf(app.Out, "routing (%s) at http://%s\n", o.Policy, l.Addr())
			}
			if err != nil {
				l.Close()
				return err
			}
			return r.Serve(cmd.Context(), l)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&addr, "addr", "127.0.0.1:30100", "address to listen on")
	fl.StringVar(&metricsAddr, "metrics-addr", "", "address of the router's own metrics, none when empty")
	fl.StringArrayVar(&o.Workers, "worker", nil, "base URL of a worker; may be given several times")
	fl.StringArrayVar(&prefill, "prefill", nil, "URL,BOOTSTRAP_PORT of a prefill server; may be given several times")
	fl.StringArrayVar(&o.Decode, "decode", nil, "base URL of a decode server; may be given several times")
	fl.StringVar(&o.Policy, "policy", "cache_aware", strings.Join(sim.RouterPolicies, ", "))
	return cmd
}
