package run

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// stopped is an executor whose context ends before it has measured anything.
type stopped struct{ stop context.CancelFunc }

func (stopped) Name() string { return "stopped" }

func (s stopped) Measure(ctx context.Context, _ *Job, _ *record.BundleWriter) error {
	s.stop()
	return ctx.Err()
}

// TestInterruptedBeforeTheLoad: who interrupts a run that has nothing yet is told so, and where.
func TestInterruptedBeforeTheLoad(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	dir := t.TempDir() + "/b"
	_, err := Measure(ctx, stopped{stop}, &Job{}, dir)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted before there was anything to measure") || !strings.Contains(err.Error(), dir) {
		t.Errorf("said %v", err)
	}
}
