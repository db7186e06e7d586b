//go:build !linux

package pace

import "time"

var began = time.Now()

// Now is a monotonic clock in nanoseconds. Other processes have another one, so that stamps
// can only be compared inside one process here.
func Now() int64 { return int64(time.Since(began)) }

func sleep(ns int64) { time.Sleep(time.Duration(ns)) }
