package client

import "fmt"

// spareFiles are the files that a run needs besides one connection a request: logs, scrapes,
// pollers, the bundle.
const spareFiles = 64

// FilesNeeded is the number of open files that a run needs that keeps n requests in flight.
func FilesNeeded(n int) uint64 { return uint64(n) + spareFiles }

// TooMany says that a run cannot hold what it was asked to hold.
type TooMany struct {
	InFlight   int    // requests that were planned to be in flight at once
	Need, Have uint64 // what that takes and what there is
	What       string // of what
	Fix        string // the smallest change that passes
}

func (e *TooMany) Error() string {
	return fmt.Sprintf("client: %d requests in flight need %d %s and there are %d; %s", e.InFlight, e.Need, e.What, e.Have, e.Fix)
}

// fits checks a plan against the hard limit of open files and the number of local ports.
func fits(inFlight, urls int, files, ports uint64) error {
	if need := FilesNeeded(inFlight); need > files {
		return &TooMany{inFlight, need, files, "open files",
			fmt.Sprintf("raise the hard limit with ulimit -Hn %d or plan %d requests in flight", need, max(int64(files)-spareFiles, 0))}
	}
	each := uint64((inFlight + urls - 1) / urls)
	if each > ports {
		return &TooMany{inFlight, each, ports, "local ports towards one base URL",
			fmt.Sprintf("widen net.ipv4.ip_local_port_range or give %d base URLs", (uint64(inFlight)+ports-1)/ports)}
	}
	return nil
}

func checkFit(inFlight, urls int) error {
	files, ports, err := raiseLimits()
	if err != nil {
		return err
	}
	if inFlight <= 0 {
		return nil
	}
	return fits(inFlight, urls, files, ports)
}
