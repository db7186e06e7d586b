// Package cli holds one file per command: flags in, packages called, tables out. It decides
// nothing that a package above could decide.
//
// Every command that prints data takes --json. Exit codes: 0 done and valid, 1 failed, 2 wrong
// usage or configuration, 3 done but invalid, 4 refused by plan or pre-flight.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of the program.
const (
	exitOK      = 0
	exitFailed  = 1 // the command could not do its work
	exitUsage   = 2 // wrong flags, files or configuration
	exitInvalid = 3 // the command ran and its result is not valid
	exitRefused = 4 // plan or pre-flight refused
)

// App is what a command may touch of the world outside.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	JSON     bool // --json was given
}

// codeError carries the exit code that an error ends the program with.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// usage marks an error in flags, files or configuration.
func usage(err error) error { return withCode(exitUsage, err) }

// invalid marks a run that ended with an invalid result.
func invalid(err error) error { return withCode(exitInvalid, err) }

// refused marks a refusal by plan or pre-flight.
func refused(err error) error { return withCode(exitRefused, err) }

func usagef(format string, a ...any) error { return usage(fmt.Errorf(format, a...)) }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codeError{code: code, err: err}
}

// printJSON writes v, indented, as the whole output of a command.
func (a *App) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Main runs the program and returns its exit code. An interrupt cancels the context of the
// command, which then has to end by itself; a second interrupt ends the program at once.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	app := &App{In: in, Out: out, Err: errOut}
	log.SetFlags(0)
	log.SetOutput(&libraryLog{w: errOut})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := newRoot(app)
	root.SetArgs(args)
	return app.exitCode(root.ExecuteContext(ctx))
}

func (a *App) exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if msg := strings.TrimRight(plainText(err), "\n"); msg != "" {
		fmt.Fprintln(a.Err, "weir: "+msg)
	}
	var ce *codeError
	if errors.As(err, &ce) {
		return ce.code
	}
	return exitFailed
}

// noArgs and its siblings make a wrong number of arguments a usage error.
func noArgs(cmd *cobra.Command, args []string) error { return usage(cobra.NoArgs(cmd, args)) }

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(cobra.ExactArgs(n)(cmd, args)) }
}

func minArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(cobra.MinimumNArgs(n)(cmd, args)) }
}
