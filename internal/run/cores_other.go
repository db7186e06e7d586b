//go:build !linux

package run

import "errors"

var errCores = errors.New("this system lets no process have CPUs of its own")

func affinity() ([]int, error) { return nil, errCores }

func setAffinity([]int) error { return errCores }
