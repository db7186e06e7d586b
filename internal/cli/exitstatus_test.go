package cli

import (
	"errors"
	"os/exec"
	"strconv"
)

func exitStatus(err error) string {
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return strconv.Itoa(ee.ExitCode())
	}
	return err.Error()
}
